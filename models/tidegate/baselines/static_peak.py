"""The rival that never scales, sized for the peak."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tidegate.baselines.figures import apportioned, replica_knob, replicas_for
from tidegate.baselines.law import LawMemory, PoolFacts, PoolRule, Proposal, pool_law
from tidegate.sim.policies import Contender, Knob, PolicyFn, Rival, Wants, World
from tidegate.terms.fleet import PoolKey


class Served(Protocol):
    """What of a rehearsal's result the search for the smallest static size reads."""

    @property
    def attained_ratio(self) -> tuple[tuple[str, float], ...]:
        """Share of all requests that met each objective, by name."""
        ...

    @property
    def failed(self) -> int:
        """Requests without an answer."""
        ...


ServedT = TypeVar("ServedT", bound=Served)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPeak(Generic[ServedT]):
    """The smallest size that keeps every objective, or the largest allowed when none does."""

    replicas: int
    kept: bool  # whether every objective was met and no request failed
    result: ServedT


def static(replicas: int | Mapping[PoolKey, int]) -> PolicyFn[LawMemory[None]]:
    """Return a law that always asks for `replicas` (>= 0), in every pool or pool by pool; nothing is remembered."""

    def always(facts: PoolFacts, _: None) -> tuple[Proposal, None]:
        count = replicas if isinstance(replicas, int) else replicas[facts.pool.key]
        return Proposal(asked=count, wanted=count, notes=()), None

    rule: PoolRule[None] = always
    return pool_law(rule)


def keeps(result: Served, objectives: tuple[tuple[str, float], ...]) -> bool:
    """Return whether no request failed and each objective (name, ratio) was attained."""
    attained = dict(result.attained_ratio)
    return result.failed == 0 and all(attained[name] >= ratio for name, ratio in objectives)


def static_peak(
    run: Callable[[int], ServedT], *, objectives: tuple[tuple[str, float], ...], max_replicas: int
) -> StaticPeak[ServedT]:
    """Return the smallest size whose rehearsal keeps every objective.

    Found by bisection: more replicas never serve the same arrivals worse, but for rounding at the edge.

    Args:
        run: Rehearses `static(n)` with n replicas ready from the start, on the arrivals of the comparison.
        objectives: (name, ratio) of each objective of the policy.
        max_replicas: Largest size tried, >= 1.
    """
    tried: dict[int, ServedT] = {}

    def good(count: int) -> bool:
        tried[count] = run(count)
        return keeps(tried[count], objectives)

    low, high = 0, 1  # `low` is known to be too small
    while high < max_replicas and not good(high):
        low, high = high, min(2 * high, max_replicas)
    kept = good(high) if high not in tried else keeps(tried[high], objectives)
    while kept and high - low > 1:
        middle = (low + high) // 2
        if good(middle):
            high = middle
        else:
            low = middle
    return StaticPeak(replicas=high, kept=kept, result=tried[high])


def sized(name: str, world: World, default: dict[PoolKey, int], setting: float | None) -> Contender:
    """Return the contender that keeps `setting` replicas in total, or `default` of each pool."""
    counts = default if setting is None else apportioned(world, round(setting))
    return Contender(
        name=name,
        law=static(counts),
        start=LawMemory(),
        wants=Wants(period_s=15.0, scrape_interval_s=15.0, rates=False),
        setting=float(sum(counts.values())),
        initial_replicas=max(counts.values()),
    )


def _knob(world: World) -> Knob:
    return replica_knob(world, sum(replicas_for(world, world.peak_per_s).values()))


def _make(world: World, setting: float | None) -> Contender:
    return sized("static-peak", world, replicas_for(world, world.peak_per_s), setting)


RIVALS = (
    Rival(
        name="static-peak",
        summary="one size for the whole run, by default the busiest 10 minutes over a replica's capacity",
        source="common practice; N = ceil(peak requests/s / requests/s of a replica)",
        knob=_knob,
        make=_make,
    ),
)
