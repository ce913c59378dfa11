"""An actuator that says what it would do and does nothing."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from tidegate.terms.fleet import Membership, PoolKey
from tidegate.terms.plan import Receipt, Step, StepKind

# Enough to look back over an hour of steps; more would only grow.
STEPS_KEPT = 1000
# A step not planned for so long has been given up; planned once more, it is told once more.
TELL_AGAIN_AFTER_S = 60.0

_What = tuple[StepKind, PoolKey, str, str]


class Seen(Protocol):
    """A fleet that can be looked at."""

    def membership(self, now_s: float) -> Membership:
        """Return every replica that exists."""
        ...

    def cold_starts(self, pool: PoolKey) -> tuple[float, ...]:
        """Return the measured seconds from order to ready, oldest first."""
        ...


class DryRun:
    """Records and tells steps; the fleet behind it is read and never changed.

    Args:
        behind: The fleet whose membership is shown; None: a fleet without replicas.
        tell: Gets one line per step, once as long as the same step is planned again and again.
    """

    def __init__(self, behind: Seen | None = None, *, tell: Callable[[str], None] | None = None) -> None:
        self._behind = behind
        self._tell = tell
        self._steps: deque[tuple[float, Step]] = deque(maxlen=STEPS_KEPT)
        self._planned_at_s: dict[_What, float] = {}

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
        self._planned_at_s = {w: at for w, at in self._planned_at_s.items() if 0.0 <= now_s - at < TELL_AGAIN_AFTER_S}
        if _what(step) not in self._planned_at_s:
            self._steps.append((now_s, step))
            if self._tell is not None:
                where = f" on {step.node}" if step.node else ""
                self._tell(f"would {step.kind} {step.replica} of {step.pool}{where}")
        self._planned_at_s[_what(step)] = now_s
        return Receipt(step=step, accepted=False, detail="dry run")

    def cold_starts(self, pool: PoolKey) -> tuple[float, ...]:
        """Return what the fleet behind has measured."""
        return self._behind.cold_starts(pool) if self._behind is not None else ()


def _what(step: Step) -> _What:
    """Return what makes a step another one.

    Nothing is ever ordered here, so each decision orders the same replica under a name of its own number.
    """
    name = step.replica.rpartition(".")[2] if step.kind is StepKind.WARM else step.replica
    return step.kind, step.pool, step.node, name
