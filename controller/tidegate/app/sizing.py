"""What one replica of each pool can carry now: profile, present lengths, measured corrections and cold starts."""

from collections.abc import Callable, Mapping

import numpy as np

from tidegate.perf.calibrate import Evidence, corrected
from tidegate.perf.capacity import replica_capacity
from tidegate.perf.profile import EngineProfile
from tidegate.terms.capacity import CapacitySource, PoolCapacity
from tidegate.terms.fleet import PoolKey, ReplicaState
from tidegate.terms.observation import PoolObservation, ServiceObservation
from tidegate.terms.policy import PoolPolicy, ServicePolicy
from tidegate.terms.signal import Unknown
from tidegate.terms.slo import Indicator

# A pool teaches nothing about capacity until all its replicas have been ready for this long: several observe windows,
# and longer than nearly every answer.
SETTLED_S = 60.0

# Below this many starts a p95 is the largest of a handful, so the policy's prior still counts.
MIN_COLD_STARTS = 3

# A request too long for the engine's whole KV cache leaves no throughput at all; the arithmetic still needs a rate.
LEAST_REQUESTS_PER_S = 0.001

# Lengths assumed before the first request finished: the means of the Azure 2023 conversation trace (CC-BY-4.0).
PRIOR_PROMPT_TOKENS = 1155.0
PRIOR_OUTPUT_TOKENS = 211.0
# In requests: what the prior counts for, and what the past counts for at most.
PRIOR_WEIGHT = 10.0
LENGTHS_WEIGHT = 200.0


def pool_capacities(
    policies: tuple[ServicePolicy, ...],
    services: tuple[ServiceObservation, ...],
    *,
    profiles: Mapping[str, EngineProfile],
    cold_starts: Callable[[PoolKey], tuple[float, ...]],
    previous: tuple[PoolCapacity, ...],
    elapsed_s: float,
    now_s: float,
) -> tuple[PoolCapacity, ...]:
    """Return one capacity per pool of `policies`, in policy order.

    Args:
        policies: All services.
        services: What was observed now; a service that is missing keeps its last lengths.
        profiles: Engine profiles by name; every pool's profile must be there.
        cold_starts: Seconds from order to ready of each start seen, oldest first.
        previous: The capacities of the tick before; carries lengths and corrections through unknown signals.
        elapsed_s: Seconds that the observation adds to what `previous` knew: the tick period.
        now_s: Unix time of the observation.
    """
    seen = {s.service: s for s in services}
    before = {c.key: c for c in previous}
    return tuple(
        _one(
            policy,
            pool,
            seen.get(policy.name),
            profile=profiles[pool.profile],
            starts=cold_starts(pool.key),
            before=before.get(pool.key),
            elapsed_s=elapsed_s,
            now_s=now_s,
        )
        for policy in policies
        for pool in policy.pools
    )


def _one(
    policy: ServicePolicy,
    pool: PoolPolicy,
    service: ServiceObservation | None,
    *,
    profile: EngineProfile,
    starts: tuple[float, ...],
    before: PoolCapacity | None,
    elapsed_s: float,
    now_s: float,
) -> PoolCapacity:
    prompt_tokens, output_tokens, weight = _lengths(service, before, elapsed_s)
    modelled_per_s, binding = modelled(policy, profile, prompt_tokens, output_tokens)
    ratio = corrected(
        before.correction_ratio if before else 1.0,
        _evidence(policy, pool.key, service, now_s=now_s),
        modelled_per_s=modelled_per_s,
    )
    p50, p95 = _cold_start_s(starts, pool.cold_start_prior_s)
    return PoolCapacity(
        key=pool.key,
        requests_per_s=modelled_per_s * ratio,
        source=CapacitySource.PROFILE if ratio == 1.0 else CapacitySource.MEASURED,
        correction_ratio=ratio,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        lengths_weight=weight,
        binding=binding,
        cold_start_p50_s=p50,
        cold_start_p95_s=p95,
        cold_starts_seen=len(starts),
    )


def modelled(policy: ServicePolicy, profile: EngineProfile, prompt: float, output: float) -> tuple[float, str]:
    """Return requests/s one replica carries inside the objectives and the limit that binds.

    When not even one request at these lengths can meet an objective, no number of replicas helps: the pool is sized
    for throughput alone then, and the binding limit says which objective is out of reach.
    """
    inside = replica_capacity(
        profile,
        ttft_s=policy.threshold_s(Indicator.TTFT),
        tpot_s=policy.threshold_s(Indicator.TPOT) or policy.threshold_s(Indicator.ITL),
        prompt_tokens=prompt,
        output_tokens=output,
    )
    if inside.requests_per_s > 0.0:
        return inside.requests_per_s, str(inside.binding)
    alone = replica_capacity(profile, ttft_s=None, tpot_s=None, prompt_tokens=prompt, output_tokens=output)
    return max(alone.requests_per_s, LEAST_REQUESTS_PER_S), f"{inside.binding} out of reach"


def _lengths(
    service: ServiceObservation | None, before: PoolCapacity | None, elapsed_s: float
) -> tuple[float, float, float]:
    """Return mean prompt tokens, mean output tokens and the weight behind them.

    A running mean that weighs every request alike and forgets beyond LENGTHS_WEIGHT requests: token counts scatter by
    about their own mean, so the mean of a window of ten is off by a third and would swing the size of the fleet.
    """
    prompt, output, weight = PRIOR_PROMPT_TOKENS, PRIOR_OUTPUT_TOKENS, PRIOR_WEIGHT
    if before is not None:
        prompt, output, weight = before.prompt_tokens, before.output_tokens, before.lengths_weight
    if service is None:
        return prompt, output, weight
    seen = (service.prompt_tokens_mean, service.output_tokens_mean, service.arrivals_per_s)
    if any(isinstance(s, Unknown) or s.number <= 0.0 for s in seen):
        return prompt, output, weight
    seen_prompt, seen_output, per_s = (0.0 if isinstance(s, Unknown) else s.number for s in seen)
    requests = per_s * elapsed_s
    return (
        (weight * prompt + requests * seen_prompt) / (weight + requests),
        (weight * output + requests * seen_output) / (weight + requests),
        min(LENGTHS_WEIGHT, weight + requests),
    )


def _evidence(
    policy: ServicePolicy, key: PoolKey, service: ServiceObservation | None, *, now_s: float
) -> Evidence | None:
    """Return what one ready replica carried and whether the objectives held; None when not surely known.

    Only a settled pool says anything: right after a change, latencies still show the fleet before it.
    """
    pool = _pool(service, key)
    if service is None or pool is None or not _settled(pool, now_s=now_s):
        return None
    ready = len(pool.replicas)
    # Objectives are of the service: with several pools it is not known whose latency was missed.
    needed = (pool.finished_per_s, pool.waiting_requests, service.arrivals_per_s)
    if len(policy.pools) > 1 or any(isinstance(s, Unknown) or s.coverage_ratio < 1.0 for s in needed):
        return None
    finished, waiting, arrivals = (0.0 if isinstance(s, Unknown) else s.number for s in needed)
    attained = [
        (sli.attained_ratio, slo.objective_ratio)
        for sli in service.slis
        for slo in policy.slos
        if slo.name == sli.slo and slo.threshold_s is not None
    ]
    known = [(a.number, objective) for a, objective in attained if not isinstance(a, Unknown)]
    if not known:
        return None
    return Evidence(
        offered_per_s=arrivals / ready,
        finished_per_s=finished / ready,
        waiting=waiting / ready,
        objectives_held=len(known) == len(attained) and all(a >= objective for a, objective in known),
        objective_missed=any(a < objective for a, objective in known),
    )


def _settled(pool: PoolObservation, *, now_s: float) -> bool:
    members = [r.replica for r in pool.replicas]
    return bool(members) and all(
        m.state is ReplicaState.READY and m.ready_at_s is not None and now_s - m.ready_at_s >= SETTLED_S
        for m in members
    )


def _pool(service: ServiceObservation | None, key: PoolKey) -> PoolObservation | None:
    return next((p for p in service.pools if p.key == key), None) if service else None


def _cold_start_s(starts: tuple[float, ...], prior_s: float) -> tuple[float, float]:
    """Return p50 and p95 in seconds; the prior until enough starts were seen."""
    if len(starts) < MIN_COLD_STARTS:
        return prior_s, max((prior_s, *starts))
    p50, p95 = np.quantile(np.asarray(starts), [0.5, 0.95])
    return float(p50), float(p95)
