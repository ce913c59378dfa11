"""The rival that never scales: one size for the whole run, as small as its peak allows."""

from collections.abc import Callable
from dataclasses import dataclass

from tidegate.sim.rehearse import PolicyFn, RehearsalResult
from tidegate.terms.capacity import PoolCapacity
from tidegate.terms.decision import Decision, Memory, PoolDecision, PoolMemory, Reason, Verdict
from tidegate.terms.fleet import ReplicaState
from tidegate.terms.forecast import Forecast
from tidegate.terms.observation import Observation
from tidegate.terms.policy import Mode, PoolPolicy, ServicePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPeak:
    """The smallest size that keeps every objective, or the largest allowed when none does."""

    replicas: int
    kept: bool  # whether every objective was met and no request failed
    result: RehearsalResult


def static(replicas: int) -> PolicyFn:
    """Return a policy that asks for `replicas` (>= 0) in every pool, always."""

    def decide(
        obs: Observation,
        forecasts: tuple[Forecast, ...],  # noqa: ARG001  (the signature of core.decide)
        capacity: tuple[PoolCapacity, ...],  # noqa: ARG001
        policies: tuple[ServicePolicy, ...],
        memory: Memory,
        *,
        now_s: float,
    ) -> tuple[Decision, Memory]:
        pools = tuple(
            _pool(obs, policy, pool, memory.of(pool.key), replicas) for policy in policies for pool in policy.pools
        )
        sequence = memory.sequence + 1
        after = Memory(sequence=sequence, pools=tuple(PoolMemory(key=p.key, asked_replicas=replicas) for p in pools))
        return Decision(decided_at_s=now_s, sequence=sequence, pools=pools), after

    return decide


def keeps(result: RehearsalResult, objectives: tuple[tuple[str, float], ...]) -> bool:
    """Return whether no request failed and each objective (name, ratio) was attained."""
    attained = dict(result.attained_ratio)
    return result.failed == 0 and all(attained[name] >= ratio for name, ratio in objectives)


def static_peak(
    run: Callable[[int], RehearsalResult], *, objectives: tuple[tuple[str, float], ...], max_replicas: int
) -> StaticPeak:
    """Return the smallest size whose rehearsal keeps every objective.

    Found by bisection: more replicas never serve the same arrivals worse, but for rounding at the edge.

    Args:
        run: Rehearses `static(n)` with n replicas ready from the start, on the arrivals of the comparison.
        objectives: (name, ratio) of each objective of the policy.
        max_replicas: Largest size tried, >= 1.
    """
    tried: dict[int, RehearsalResult] = {}

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


def _pool(
    obs: Observation, policy: ServicePolicy, pool: PoolPolicy, before: PoolMemory | None, replicas: int
) -> PoolDecision:
    seen = [r.replica.state for s in obs.services for p in s.pools if p.key == pool.key for r in p.replicas]
    return PoolDecision(
        key=pool.key,
        role=pool.role,
        verdict=Verdict.HOLD,
        ready_replicas=seen.count(ReplicaState.READY),
        starting_replicas=seen.count(ReplicaState.STARTING),
        draining_replicas=seen.count(ReplicaState.DRAINING),
        asked_before_replicas=replicas if before is None else before.asked_replicas,
        wanted_replicas=replicas,
        asked_replicas=replicas,
        binding=Reason.STEADY,
        notes=(),
        writes=policy.mode is Mode.ACT,
    )
