"""A small fleet to decide on: one service, two pools at most, every fact a keyword."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from tidegate.core.decide import decide
from tidegate.terms.capacity import CapacitySource, PoolCapacity
from tidegate.terms.decision import Memory, PoolDecision, PoolMemory
from tidegate.terms.fleet import EngineKind, PoolKey, Replica, ReplicaState, Role
from tidegate.terms.forecast import Forecast, Quantity
from tidegate.terms.observation import (
    Intervention,
    Observation,
    PoolObservation,
    ReplicaObservation,
    ServiceObservation,
    SliReading,
)
from tidegate.terms.policy import (
    BudgetPolicy,
    CachePolicy,
    GatewayPolicy,
    Mode,
    Parallelism,
    PoolPolicy,
    ScaleTarget,
    ScalingPolicy,
    ServicePolicy,
    TargetKind,
)
from tidegate.terms.signal import Signal, Unknown, UnknownReason, reading
from tidegate.terms.slo import Indicator, Slo

NOW_S = 10_000.0
MAIN = PoolKey(service="chat", pool="main")
Number = float | Signal


def signal(number: Number, *, now_s: float = NOW_S, coverage_ratio: float = 1.0) -> Signal:
    """Return a fresh signal for a plain number; a signal is passed through."""
    if isinstance(number, int | float):
        return reading(float(number), sampled_at_s=now_s, coverage_ratio=coverage_ratio, source="test")
    return number


def lost(reason: UnknownReason = UnknownReason.UNREACHABLE, *, now_s: float = NOW_S) -> Unknown:
    """Return a signal that could not be read."""
    return Unknown(reason=reason, detail="", sampled_at_s=now_s, coverage_ratio=0.0, source="test")


def pool_policy(name: str = "main", **changes: object) -> PoolPolicy:
    """Return a pool of 1..8 replicas at 2 $/h and one GPU each."""
    values: dict[str, object] = {
        "key": PoolKey(service="chat", pool=name),
        "role": Role.AGGREGATED,
        "engine": EngineKind.VLLM,
        "accelerator": "nvidia-a100-80gb",
        "gpus_per_replica": 1,
        "parallelism": Parallelism(),
        "profile": "a100-llama8b-tp1",
        "min_replicas": 1,
        "max_replicas": 8,
        "cold_start_prior_s": 20.0,
        "cost_usd_per_h": 2.0,
        "target": ScaleTarget(kind=TargetKind.LOCAL, name=name),
    }
    return PoolPolicy(**(values | changes))  # type: ignore[arg-type]


def replica(name: str, state: ReplicaState, *, ready_at_s: float = 0.0, pool: PoolKey = MAIN) -> Replica:
    """Return one replica, long since ready unless said otherwise."""
    return Replica(
        name=name,
        pool=pool,
        state=state,
        ordered_at_s=0.0,
        ready_at_s=ready_at_s if state is ReplicaState.READY else None,
    )


def pool_seen(
    key: PoolKey = MAIN,
    *,
    ready: int = 2,
    starting: int = 0,
    draining: int = 0,
    failed: int = 0,
    running: Number = 4.0,
    waiting: Number = 0.0,
    finished: Number = 0.0,
    pending: Number = 0.0,
    ready_at_s: float = 0.0,
    loads: Sequence[Number] = (),
    violations: tuple[str, ...] = (),
) -> PoolObservation:
    """Return a pool as observed; `loads` are the running requests of its first replicas."""
    counts = (
        (ReplicaState.READY, ready),
        (ReplicaState.STARTING, starting),
        (ReplicaState.DRAINING, draining),
        (ReplicaState.FAILED, failed),
    )
    states = [state for state, count in counts for _ in range(count)]
    members = []
    for i, state in enumerate(states):
        load = signal(loads[i] if i < len(loads) else 0.0)
        none = signal(0.0)
        members.append(
            ReplicaObservation(
                replica=replica(f"{key.pool}-{i}", state, ready_at_s=ready_at_s, pool=key),
                running_requests=load,
                waiting_requests=none,
                kv_used_ratio=none,
                finished_per_s=none,
                prompt_tokens_per_s=none,
                output_tokens_per_s=none,
                preemptions_per_s=none,
            )
        )
    return PoolObservation(
        key=key,
        replicas=tuple(members),
        running_requests=signal(running),
        waiting_requests=signal(waiting),
        finished_per_s=signal(finished),
        output_tokens_per_s=signal(0.0),
        gateway_in_flight_requests=signal(running),
        gateway_pending_requests=signal(pending),
        violations=violations,
    )


def taken_at(pool: PoolObservation, now_s: float) -> PoolObservation:
    """Return the pool with its sums, fresh ones only, sampled at `now_s`."""
    names = ("running_requests", "waiting_requests", "finished_per_s", "gateway_pending_requests")
    sums: dict[str, Signal] = {n: getattr(pool, n) for n in names}
    fresh = {n: replace(s, sampled_at_s=now_s) for n, s in sums.items() if s.sampled_at_s == NOW_S}
    return replace(pool, **fresh)  # type: ignore[arg-type]


def window(*wanted: int, now_s: float = NOW_S, every_s: float = 10.0) -> tuple[tuple[float, int], ...]:
    """Return a history that ends one step before now; the last number is the newest."""
    return tuple((now_s - every_s * (len(wanted) - i), n) for i, n in enumerate(wanted))


def watched(wanted: int = 1) -> tuple[tuple[float, int], ...]:
    """Return a history in which the whole default window (60 s) was watched at `wanted`."""
    return window(*([wanted] * 7))


@dataclass(kw_only=True)
class Case:
    """All arguments of `decide` for service `chat`, each with a calm default: 2 ready, 2 asked, 3 requests/s."""

    arrivals: Number = 3.0
    forecast: float | None = 3.0
    pools: Sequence[PoolPolicy] = field(default_factory=lambda: [pool_policy()])
    seen: Sequence[PoolObservation] = field(default_factory=lambda: [pool_seen()])
    capacity: Mapping[str, float] = field(default_factory=lambda: {"main": 2.0})
    attained: Number = 1.0
    asked: Mapping[str, int] | None = field(default_factory=lambda: {"main": 2})
    history: tuple[tuple[float, int], ...] = field(default_factory=watched)
    ever_observed: bool = True
    waiting_before: float | None = 0.0
    mode: Mode = Mode.ACT
    max_grow: int = 4
    max_shrink: int = 1
    stabilisation_s: float | None = 60.0
    stale_after_s: float = 30.0
    budget: BudgetPolicy = field(default_factory=BudgetPolicy)
    interventions: tuple[Intervention, ...] = ()
    now_s: float = NOW_S

    def policy(self) -> ServicePolicy:
        """Return the service's policy."""
        return ServicePolicy(
            name="chat",
            model="meta-llama/Llama-3.1-8B-Instruct",
            mode=self.mode,
            priority=100,
            slos=(
                Slo(name="ttft", indicator=Indicator.TTFT, objective_ratio=0.95, threshold_s=1.0, window_s=86_400.0),
            ),
            pools=tuple(self.pools),
            scaling=ScalingPolicy(
                max_grow_replicas=self.max_grow,
                max_shrink_replicas=self.max_shrink,
                shrink_stabilisation_s=self.stabilisation_s,
                target_utilisation_ratio=1.0,
                forecast_quantile=0.9,
                stale_after_s=self.stale_after_s,
            ),
            budget=self.budget,
            gateway=GatewayPolicy(retries=3, idle_timeout_s=300.0, max_body_bytes=8 << 20),
            cache=CachePolicy(),
        )

    def observation(self) -> Observation:
        """Return the fleet as seen."""
        attained = signal(self.attained, now_s=self.now_s)
        service = ServiceObservation(
            service="chat",
            arrivals_per_s=signal(self.arrivals, now_s=self.now_s),
            prompt_tokens_mean=signal(500.0),
            output_tokens_mean=signal(100.0),
            failed_per_s=signal(0.0),
            slis=(
                SliReading(
                    slo="ttft", attained_ratio=attained, quantile_s=signal(0.2), source="gateway", threshold_s=1.0
                ),
            ),
            pools=tuple(taken_at(pool, self.now_s) for pool in self.seen),
        )
        return Observation(observed_at_s=self.now_s, services=(service,), interventions=self.interventions)

    def forecasts(self) -> tuple[Forecast, ...]:
        """Return the forecast, if there is one."""
        if self.forecast is None:
            return ()
        return (
            Forecast(
                service="chat",
                quantity=Quantity.REQUESTS_PER_S,
                made_at_s=self.now_s,
                step_s=10.0,
                levels=(0.5, 0.9),
                values=((self.forecast * 0.8,) * 2, (self.forecast,) * 2),
                method="test",
                reason="given",
            ),
        )

    def capacities(self) -> tuple[PoolCapacity, ...]:
        """Return one capacity per pool named in `capacity`."""
        return tuple(
            PoolCapacity(
                key=PoolKey(service="chat", pool=name),
                requests_per_s=each,
                source=CapacitySource.PROFILE,
                prompt_tokens=500.0,
                output_tokens=100.0,
                binding="tpot",
                cold_start_p50_s=15.0,
                cold_start_p95_s=20.0,
                cold_starts_seen=0,
            )
            for name, each in self.capacity.items()
        )

    def memory(self) -> Memory:
        """Return what the decision before left; nothing at all when `asked` is None."""
        if self.asked is None:
            return Memory()
        return Memory(
            sequence=7,
            pools=tuple(
                PoolMemory(
                    key=PoolKey(service="chat", pool=name),
                    asked_replicas=asked,
                    wanted_history=self.history,
                    ever_observed=self.ever_observed,
                    waiting_requests=self.waiting_before,
                )
                for name, asked in self.asked.items()
            ),
        )

    def decide(self) -> tuple[tuple[PoolDecision, ...], Memory]:
        """Return the pools' decisions and the memory after."""
        decision, memory = decide(
            self.observation(),
            self.forecasts(),
            self.capacities(),
            (self.policy(),),
            self.memory(),
            now_s=self.now_s,
        )
        return decision.pools, memory

    def pool(self) -> PoolDecision:
        """Return the first pool's decision."""
        return self.decide()[0][0]


class Fleet:
    """The builders above, handed to tests by the `fleet` fixture."""

    Case = Case
    MAIN = MAIN
    NOW_S = NOW_S
    lost = staticmethod(lost)
    pool_policy = staticmethod(pool_policy)
    pool_seen = staticmethod(pool_seen)
    signal = staticmethod(signal)
    watched = staticmethod(watched)
    window = staticmethod(window)


@pytest.fixture(scope="session")
def fleet() -> type[Fleet]:
    """Return the builders of a small fleet."""
    return Fleet
