"""The rival that follows: Kubernetes' HorizontalPodAutoscaler (autoscaling/v2) on running + waiting requests.

External metric with an AverageValue target: the sum over the pool against `target_per_replica`. It knows neither
forecast nor cold start; its memory is the window of recommendations.

Source: Kubernetes, horizontal pod autoscaling (autoscaling/v2): AverageValue, tolerance, stabilisation windows,
policies with selectPolicy Max; defaults of kube-controller-manager.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from tidegate.sim.rehearse import PolicyFn, RehearsalResult
from tidegate.terms.capacity import PoolCapacity
from tidegate.terms.decision import Decision, Memory, PoolDecision, PoolMemory, Reason, ReasonNote, Verdict
from tidegate.terms.fleet import Replica, ReplicaState
from tidegate.terms.forecast import Forecast
from tidegate.terms.observation import Observation, PoolObservation
from tidegate.terms.policy import Mode, PoolPolicy, ServicePolicy
from tidegate.terms.signal import Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class HpaSettings:
    """The fields of one HorizontalPodAutoscaler; the defaults are Kubernetes'."""

    target_per_replica: float  # requests running + waiting, > 0
    tolerance: float = 0.1
    up_window_s: float = 0.0
    down_window_s: float = 300.0
    period_s: float = 15.0  # of the rate policies
    up_percent: float = 100.0
    up_pods: int = 4
    down_percent: float = 100.0

    def within_windows(self, history: tuple[tuple[float, int], ...], now_s: float) -> tuple[tuple[float, int], ...]:
        """Return the recommendations (time, count) that the longer window still needs."""
        since_s = now_s - max(self.up_window_s, self.down_window_s)
        return tuple((at_s, n) for at_s, n in history if at_s > since_s)


def recommended(total: float, replicas: int, settings: HpaSettings) -> int:
    """Return the count an AverageValue target recommends, before any limit.

    Args:
        total: The metric summed over the pool, >= 0.
        replicas: The count the HPA sees in the scale object's status, >= 0.
        settings: Target and tolerance.
    """
    if replicas > 0 and abs(total / (settings.target_per_replica * replicas) - 1.0) <= settings.tolerance:
        return replicas
    return math.ceil(total / settings.target_per_replica)


def stabilised(
    now_replicas: int, wanted: int, older: tuple[tuple[float, int], ...], settings: HpaSettings, *, now_s: float
) -> int:
    """Return the count after both stabilisation windows; `older` holds (time, recommendation) before this one."""
    up = min([wanted, *(n for at_s, n in older if at_s > now_s - settings.up_window_s)])
    down = max([wanted, *(n for at_s, n in older if at_s > now_s - settings.down_window_s)])
    return up if now_replicas < up else min(now_replicas, down)


def rate_limited(now_replicas: int, wanted: int, settings: HpaSettings, *, added: int, removed: int) -> int:
    """Return `wanted` within the rate policies, selectPolicy Max; `added` and `removed` within the last period."""
    start = now_replicas - added + removed
    if wanted > now_replicas:
        most = max(start + settings.up_pods, math.ceil(start * (1.0 + settings.up_percent / 100.0)))
        return max(now_replicas, min(wanted, most))
    least = math.trunc(start * (1.0 - settings.down_percent / 100.0))
    return min(now_replicas, max(wanted, least))


def reactive(settings: HpaSettings) -> PolicyFn:
    """Return the HPA as a policy with the signature of `core.decide`."""

    def decide(
        obs: Observation,
        forecasts: tuple[Forecast, ...],  # noqa: ARG001  (a purely reactive rule has no use for them)
        capacity: tuple[PoolCapacity, ...],  # noqa: ARG001
        policies: tuple[ServicePolicy, ...],
        memory: Memory,
        *,
        now_s: float,
    ) -> tuple[Decision, Memory]:
        made = [
            _pool(obs, policy, pool, memory.of(pool.key), settings, now_s=now_s)
            for policy in policies
            for pool in policy.pools
        ]
        sequence = memory.sequence + 1
        decision = Decision(decided_at_s=now_s, sequence=sequence, pools=tuple(d for d, _ in made))
        return decision, Memory(sequence=sequence, pools=tuple(m for _, m in made))

    return decide


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The target that did best, and its rehearsal."""

    settings: HpaSettings
    result: RehearsalResult


def tuned(
    run: Callable[[HpaSettings], RehearsalResult],
    candidates: tuple[HpaSettings, ...],
    keeps: Callable[[RehearsalResult], bool],
) -> Tuned:
    """Return the cheapest candidate that keeps the objectives; when none does, the one with most requests well served.

    A rival that nobody tuned proves nothing. Ties go to the candidate named first.
    """
    tried = [Tuned(settings=c, result=run(c)) for c in candidates]
    good = [t for t in tried if keeps(t.result)]
    if good:
        return min(good, key=lambda t: t.result.replica_seconds)
    return max(tried, key=lambda t: (t.result.joint_ratio, -t.result.replica_seconds))


def _pool(
    obs: Observation,
    policy: ServicePolicy,
    pool: PoolPolicy,
    before: PoolMemory | None,
    settings: HpaSettings,
    *,
    now_s: float,
) -> tuple[PoolDecision, PoolMemory]:
    seen = next((p for s in obs.services for p in s.pools if p.key == pool.key), None)
    replicas = [r.replica for r in seen.replicas] if seen else []
    states = [r.state for r in replicas]
    existing = states.count(ReplicaState.READY) + states.count(ReplicaState.STARTING)
    now_replicas = existing if before is None else before.asked_replicas
    # Seeded with the present count, as the HPA does after a restart.
    history = ((now_s, now_replicas),) if before is None else before.wanted_history
    wanted = _recommended(seen, existing, settings)
    if wanted is None:
        unknown = ReasonNote(reason=Reason.STALE_METRICS, before_replicas=now_replicas, after_replicas=now_replicas)
        asked, notes = now_replicas, [unknown]
    else:
        moved = _moved(replicas, now_s - settings.period_s)
        asked, notes = _restrained(wanted, now_replicas, history, pool, settings, moved=moved, now_s=now_s)
        history = (*settings.within_windows(history, now_s), (now_s, wanted))
    decision = PoolDecision(
        key=pool.key,
        role=pool.role,
        verdict=_verdict(asked - now_replicas),
        ready_replicas=states.count(ReplicaState.READY),
        starting_replicas=states.count(ReplicaState.STARTING),
        draining_replicas=states.count(ReplicaState.DRAINING),
        asked_before_replicas=now_replicas,
        wanted_replicas=wanted,
        asked_replicas=asked,
        binding=notes[-1].reason,
        notes=tuple(notes),
        writes=policy.mode is Mode.ACT,
    )
    return decision, PoolMemory(key=pool.key, asked_replicas=asked, wanted_history=history, ever_observed=True)


def _restrained(
    wanted: int,
    now_replicas: int,
    history: tuple[tuple[float, int], ...],
    pool: PoolPolicy,
    settings: HpaSettings,
    *,
    moved: tuple[int, int],
    now_s: float,
) -> tuple[int, list[ReasonNote]]:
    """Return the count after windows, rate policies and bounds, in that order, with a note for each that spoke."""
    steady = stabilised(now_replicas, wanted, history, settings, now_s=now_s)
    limited = rate_limited(now_replicas, steady, settings, added=moved[0], removed=moved[1])
    asked = max(pool.min_replicas, min(pool.max_replicas, limited))
    border = Reason.AT_MAXIMUM if limited > asked else Reason.AT_MINIMUM
    notes = _notes(
        (Reason.DEMAND_NOW, wanted), (Reason.STABILISATION, steady), (Reason.RATE_LIMIT, limited), (border, asked)
    )
    return asked, notes


def _verdict(moved: int) -> Verdict:
    return Verdict.GROW if moved > 0 else Verdict.SHRINK if moved < 0 else Verdict.HOLD


def _recommended(seen: PoolObservation | None, existing: int, settings: HpaSettings) -> int | None:
    """Return the recommendation, or None when one of the metrics is unknown."""
    if seen is None or isinstance(seen.running_requests, Unknown) or isinstance(seen.waiting_requests, Unknown):
        return None
    return recommended(seen.running_requests.number + seen.waiting_requests.number, existing, settings)


def _moved(replicas: list[Replica], since_s: float) -> tuple[int, int]:
    """Return how many replicas were ordered and how many were taken out of service after `since_s`."""
    added = sum(r.ordered_at_s > since_s and r.state is not ReplicaState.DRAINING for r in replicas)
    removed = sum(r.draining_since_s is not None and r.draining_since_s > since_s for r in replicas)
    return added, removed


def _notes(*stages: tuple[Reason, int]) -> list[ReasonNote]:
    """Return the first stage and each later one that changed the number."""
    reason, number = stages[0]
    notes = [ReasonNote(reason=reason, before_replicas=number, after_replicas=number)]
    for reason, after in stages[1:]:
        if after != number:
            notes.append(ReasonNote(reason=reason, before_replicas=number, after_replicas=after))
            number = after
    return notes
