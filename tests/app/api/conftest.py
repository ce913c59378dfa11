"""A small fleet as the loop would publish it: numbers chosen, types real."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.app.config import load_policies
from tidegate.app.record import TickInputs, TickRecord
from tidegate.app.state import LiveView
from tidegate.core.decide import decide
from tidegate.terms.capacity import CapacitySource, PoolCapacity
from tidegate.terms.decision import Memory
from tidegate.terms.fleet import Membership, PoolKey, Replica, ReplicaState
from tidegate.terms.forecast import Forecast, Quantity
from tidegate.terms.observation import (
    Intervention,
    Observation,
    PoolObservation,
    ReplicaObservation,
    ServiceObservation,
    SliReading,
)
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.signal import Signal, UnknownReason, reading, unknown

T0 = 1_790_000_000.0
KEY = PoolKey(service="chat", pool="main")

MakeRecord = Callable[..., tuple[TickRecord, LiveView]]


def known(number: float, at_s: float, source: str = "vllm:num_requests_running") -> Signal:
    return reading(number, sampled_at_s=at_s, coverage_ratio=1.0, source=source)


def lost(at_s: float) -> Signal:
    return unknown(UnknownReason.UNREACHABLE, "connection refused", now_s=at_s, source="prometheus")


def chat_policy() -> ServicePolicy:
    return load_policies([Path(__file__).parents[3] / "examples" / "policies" / "chat.yaml"])[0]


def _replicas(ready: int, starting: int, at_s: float) -> tuple[Replica, ...]:
    return tuple(
        Replica(
            name=f"chat-main-{i}",
            pool=KEY,
            state=ReplicaState.READY if i < ready else ReplicaState.STARTING,
            address=f"127.0.0.1:{9000 + i}" if i < ready else "",
            ordered_at_s=at_s - 60.0,
            ready_at_s=at_s - 40.0 if i < ready else None,
        )
        for i in range(ready + starting)
    )


def _observed(
    replicas: Sequence[Replica], signal: Callable[[float], Signal], violations: tuple[str, ...]
) -> PoolObservation:
    seen = tuple(
        ReplicaObservation(
            replica=r,
            running_requests=signal(11.0),
            waiting_requests=signal(0.0),
            kv_used_ratio=signal(0.41),
            finished_per_s=signal(1.7),
            prompt_tokens_per_s=signal(1800.0),
            output_tokens_per_s=signal(420.0),
            preemptions_per_s=signal(0.0),
        )
        for r in replicas
        if r.state is ReplicaState.READY
    )
    return PoolObservation(
        key=KEY,
        replicas=seen,
        running_requests=signal(22.0),
        waiting_requests=signal(0.0),
        finished_per_s=signal(3.4),
        output_tokens_per_s=signal(840.0),
        gateway_in_flight_requests=signal(23.0),
        gateway_pending_requests=signal(0.0),
        violations=violations,
    )


def make_record(
    at_s: float = T0,
    *,
    load: float = 4.0,
    ready: int = 2,
    starting: int = 0,
    memory: Memory | None = None,
    blind: bool = False,
    violations: tuple[str, ...] = (),
    interventions: tuple[Intervention, ...] = (),
    ttft_s: float = 0.42,
    policy: ServicePolicy | None = None,
) -> tuple[TickRecord, LiveView]:
    """Return one tick, decided by the real core; `blind` loses every metric."""
    policy = policy or chat_policy()

    def signal(number: float) -> Signal:
        return lost(at_s) if blind else known(number, at_s - 2.0)

    replicas = _replicas(ready, starting, at_s)
    service = ServiceObservation(
        service="chat",
        arrivals_per_s=signal(load),
        prompt_tokens_mean=signal(1040.0),
        output_tokens_mean=signal(211.0),
        failed_per_s=signal(0.0),
        slis=(
            SliReading(
                slo="ttft", attained_ratio=signal(0.981), quantile_s=signal(ttft_s), source="gateway", threshold_s=1.0
            ),
            SliReading(
                slo="tpot",
                attained_ratio=signal(0.93),
                quantile_s=signal(0.083),
                source="engine: the gateway has no TPOT",
                threshold_s=0.08,
            ),
            SliReading(
                slo="available", attained_ratio=signal(1.0), quantile_s=lost(at_s), source="gateway", threshold_s=None
            ),
        ),
        pools=(_observed(replicas, signal, violations),),
    )
    observation = Observation(observed_at_s=at_s, services=(service,), interventions=interventions)
    forecast = Forecast(
        service="chat",
        quantity=Quantity.REQUESTS_PER_S,
        made_at_s=at_s,
        step_s=10.0,
        levels=(0.5, 0.9, 0.99),
        values=tuple(tuple(load * f * (1.0 + 0.05 * j) for j in range(3)) for f in (1.0, 1.2, 1.4)),
        method="trend+residuals",
        reason="120 samples at 10 s",
    )
    capacity = PoolCapacity(
        key=KEY,
        requests_per_s=2.1,
        source=CapacitySource.PROFILE,
        prompt_tokens=1040.0,
        output_tokens=211.0,
        binding="tpot",
        cold_start_p50_s=17.0,
        cold_start_p95_s=20.0,
        cold_starts_seen=4,
    )
    inputs = TickInputs(
        observation=observation,
        forecasts=() if blind else (forecast,),
        capacity=(capacity,),
        policies=(policy,),
        memory=memory or Memory(),
        now_s=at_s,
    )
    decision, after = decide(
        inputs.observation, inputs.forecasts, inputs.capacity, inputs.policies, inputs.memory, now_s=at_s
    )
    record = TickRecord(inputs=inputs, decision=decision, memory_after=after)
    view = LiveView(
        membership=Membership(taken_at_s=at_s, replicas=replicas), tick_duration_s=0.035, gateway_acked=True
    )
    return record, view


@pytest.fixture(name="make_record")
def make_record_fixture() -> MakeRecord:
    return make_record


def renamed(policy: ServicePolicy, model: str) -> ServicePolicy:
    return replace(policy, model=model)
