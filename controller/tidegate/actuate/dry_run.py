"""An actuator that says what it would do and does nothing."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from tidegate.terms.fleet import Membership, PoolKey
from tidegate.terms.plan import Receipt, Step

# Enough to look back over an hour of steps; more would only grow.
STEPS_KEPT = 1000


class Actuator(Protocol):
    """What every actuator offers."""

    def membership(self, now_s: float) -> Membership:
        """Return every replica that exists."""
        ...

    def apply(self, step: Step, now_s: float) -> Receipt:
        """Carry out one step, idempotently."""
        ...

    def cold_starts(self, pool: PoolKey) -> tuple[float, ...]:
        """Return the measured seconds from order to ready, oldest first."""
        ...


class DryRun:
    """Records and tells steps; the fleet behind it is read and never changed.

    Args:
        behind: The real actuator whose membership is shown; None: a fleet without replicas.
        tell: Gets one line per step, once as long as the same step is planned again and again.
    """

    def __init__(self, behind: Actuator | None = None, *, tell: Callable[[str], None] | None = None) -> None:
        self._behind = behind
        self._tell = tell
        self._steps: deque[tuple[float, Step]] = deque(maxlen=STEPS_KEPT)

    @property
    def steps(self) -> tuple[tuple[float, Step], ...]:
        """(Unix time, step) of each different step, oldest first."""
        return tuple(self._steps)

    def membership(self, now_s: float) -> Membership:
        """Return the fleet as it is."""
        if self._behind is None:
            return Membership(taken_at_s=now_s, replicas=())
        return self._behind.membership(now_s)

    def apply(self, step: Step, now_s: float) -> Receipt:
        """Record the step; the receipt is a refusal, because nothing has been done."""
        if all(step != told for _, told in self._steps):
            self._steps.append((now_s, step))
            if self._tell is not None:
                where = f" on {step.node}" if step.node else ""
                self._tell(f"would {step.kind} {step.replica} of {step.pool}{where}")
        return Receipt(step=step, accepted=False, detail="dry run")

    def cold_starts(self, pool: PoolKey) -> tuple[float, ...]:
        """Return what the fleet behind has measured."""
        return self._behind.cold_starts(pool) if self._behind is not None else ()
