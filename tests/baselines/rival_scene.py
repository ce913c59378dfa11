"""Fleets as a rival law sees them, for tests that fix what is read and not how it came about."""

from collections.abc import Sequence
from dataclasses import replace

from tidegate.terms.fleet import PoolKey, Replica, ReplicaState
from tidegate.terms.observation import (
    EngineDetail,
    LatencyReading,
    Observation,
    PoolObservation,
    ReplicaObservation,
    ServiceObservation,
)
from tidegate.terms.signal import Signal, UnknownReason, combine, reading, unknown
from tidegate.terms.slo import Indicator


def known(number: float | None, *, now_s: float) -> Signal:
    """Return a fresh signal of full coverage, or an absent one for None."""
    if number is None:
        return unknown(UnknownReason.ABSENT, "no series", now_s=now_s, source="test")
    return reading(number, sampled_at_s=now_s, coverage_ratio=1.0, source="test")


def latency(indicator: Indicator, seconds: float | None, *, now_s: float) -> LatencyReading:
    """Return a p90 over one minute."""
    return LatencyReading(indicator=indicator, quantile=0.9, window_s=60.0, seconds=known(seconds, now_s=now_s))


def unread(indicator: Indicator, *, now_s: float) -> LatencyReading:
    """Return a p90 whose query failed."""
    signal = unknown(UnknownReason.UNREACHABLE, "connection refused", now_s=now_s, source="test")
    return LatencyReading(indicator=indicator, quantile=0.9, window_s=60.0, seconds=signal)


def replica(
    key: PoolKey,
    number: int,
    *,
    now_s: float,
    state: ReplicaState = ReplicaState.READY,
    kv: float | None = 0.0,
    queue: float | None = 0.0,
    running: float | None = 0.0,
    engine: tuple[float | None, float | None, float | None] | None = None,
) -> ReplicaObservation:
    """Return one replica; `engine` is (KV capacity, waiting prompt tokens, context tokens)."""
    absent = known(None, now_s=now_s)
    detail = None
    if engine is not None:
        capacity, waiting, context = (known(n, now_s=now_s) for n in engine)
        detail = EngineDetail(kv_capacity_tokens=capacity, waiting_prompt_tokens=waiting, context_tokens=context)
    return ReplicaObservation(
        replica=Replica(name=f"{key.pool}-{number}", pool=key, state=state, ordered_at_s=0.0, ready_at_s=1.0),
        running_requests=known(running, now_s=now_s),
        waiting_requests=known(queue, now_s=now_s),
        kv_used_ratio=known(kv, now_s=now_s),
        finished_per_s=absent,
        prompt_tokens_per_s=absent,
        output_tokens_per_s=absent,
        preemptions_per_s=absent,
        engine=detail,
    )


def pool(
    key: PoolKey, members: Sequence[ReplicaObservation], *, now_s: float, pending: float | None = None
) -> PoolObservation:
    """Return a pool with its members' sums; `pending` is what the gateway holds for it."""
    ready = [m for m in members if m.replica.state is ReplicaState.READY]

    def total(signals: list[Signal]) -> Signal:
        return combine(signals, expected=len(ready), source="test", now_s=now_s)

    absent = known(None, now_s=now_s)
    return PoolObservation(
        key=key,
        replicas=tuple(members),
        running_requests=total([m.running_requests for m in ready]),
        waiting_requests=total([m.waiting_requests for m in ready]),
        finished_per_s=absent,
        output_tokens_per_s=absent,
        gateway_in_flight_requests=absent,
        gateway_pending_requests=known(pending, now_s=now_s),
    )


def service(
    name: str,
    pools: Sequence[PoolObservation],
    *,
    now_s: float,
    arrivals_per_s: float | None = None,
    prompt: float | None = None,
    output: float | None = None,
    pending_tokens: float | None = None,
    latencies: Sequence[LatencyReading] = (),
) -> Observation:
    """Return an observation of one service."""
    seen = ServiceObservation(
        service=name,
        arrivals_per_s=known(arrivals_per_s, now_s=now_s),
        prompt_tokens_mean=known(prompt, now_s=now_s),
        output_tokens_mean=known(output, now_s=now_s),
        failed_per_s=known(None, now_s=now_s),
        slis=(),
        pools=tuple(pools),
        latencies=tuple(latencies),
        pending_prompt_tokens=known(pending_tokens, now_s=now_s),
    )
    return Observation(observed_at_s=now_s, services=(seen,))


def fleet(
    key: PoolKey, *, ready: int, now_s: float, starting: int = 0, latencies: Sequence[LatencyReading] = ()
) -> Observation:
    """Return one pool of idle replicas with the latencies given."""
    members = [replica(key, n, now_s=now_s) for n in range(ready)]
    members += [
        replace(r, replica=replace(r.replica, state=ReplicaState.STARTING, ready_at_s=None))
        for r in (replica(key, ready + n, now_s=now_s) for n in range(starting))
    ]
    return service(key.service, (pool(key, members, now_s=now_s),), now_s=now_s, latencies=latencies)
