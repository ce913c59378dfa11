"""An HPA on running + waiting requests by its settings, and the best target out of several."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tidegate.baselines.hpa import Behavior, HpaState, Rules, queue_law
from tidegate.baselines.law import LawMemory
from tidegate.sim.policies import PolicyFn


@dataclass(frozen=True, slots=True, kw_only=True)
class HpaSettings:
    """The fields of one HorizontalPodAutoscaler that are set apart; all others are Kubernetes' defaults."""

    target_per_replica: float  # requests running + waiting, > 0
    tolerance: float = 0.1
    up_window_s: float = 0.0
    down_window_s: float = 300.0

    @property
    def behavior(self) -> Behavior:
        """The object's behaviour."""
        plain = Behavior()
        return Behavior(
            tolerance=self.tolerance,
            up=Rules(window_s=self.up_window_s, steps=plain.up.steps),
            down=Rules(window_s=self.down_window_s, steps=plain.down.steps),
        )


class Costed(Protocol):
    """What of a rehearsal's result the choice of a target reads."""

    @property
    def joint_ratio(self) -> float:
        """Share of all requests that met all objectives together."""
        ...

    @property
    def replica_seconds(self) -> float:
        """Replica time, from each order to the end of its drain."""
        ...


CostedT = TypeVar("CostedT", bound=Costed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned(Generic[CostedT]):
    """The target that did best, and its rehearsal."""

    settings: HpaSettings
    result: CostedT


def reactive(settings: HpaSettings) -> PolicyFn[LawMemory[HpaState]]:
    """Return the HPA as a law; every pool has the same target."""
    return queue_law(lambda _: settings.target_per_replica, settings.behavior)


def tuned(
    run: Callable[[HpaSettings], CostedT],
    candidates: tuple[HpaSettings, ...],
    keeps: Callable[[CostedT], bool],
) -> Tuned[CostedT]:
    """Return the cheapest candidate that keeps the objectives; when none does, the one with most requests well served.

    A rival that nobody tuned proves nothing. Ties go to the candidate named first.
    """
    tried = [Tuned(settings=c, result=run(c)) for c in candidates]
    good = [t for t in tried if keeps(t.result)]
    if good:
        return min(good, key=lambda t: t.result.replica_seconds)
    return max(tried, key=lambda t: (t.result.joint_ratio, -t.result.replica_seconds))
