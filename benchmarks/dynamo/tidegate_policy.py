"""Tidegate's `decide` as a scaling policy of their replay simulator.

Each role is a service with one pool, decided apart: the prefill engine's capacity holds the TTFT limit, the decode
engine's the ITL limit, both from the fitted profiles at the mean lengths seen so far. Snapshots become an `Observation`
with what they offer: arrivals, mean lengths, each engine's running and queued requests. They carry no latency per
request, so no objective is judged and the loop that corrects capacity by what was measured stays out; nor is any
operator's tuning in it. It is the decision alone, on the forecast, the backlog and the supply.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.dynamo.engine import ITL_S, START_UP_S, TENSOR_PARALLEL, TTFT_S

from tidegate.baselines.dynamo_engine import believed_pass, decode_capacity, limits_of
from tidegate.core.decide import decide
from tidegate.forecast.select import foresee
from tidegate.perf.capacity import replica_capacity
from tidegate.perf.profile import EngineProfile
from tidegate.terms.capacity import CapacitySource, PoolCapacity
from tidegate.terms.decision import Memory
from tidegate.terms.fleet import EngineKind, PoolKey, Replica, ReplicaState, Role
from tidegate.terms.forecast import Quantity
from tidegate.terms.history import History
from tidegate.terms.observation import Observation, PoolObservation, ReplicaObservation, ServiceObservation
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
from tidegate.terms.signal import Signal, UnknownReason, combine, reading, unknown

PERIOD_S = 15.0
HISTORY_STEP_S = 60.0
HISTORY_STEPS = 120
RATE_TICKS = 4  # arrivals/s are over the last minute
ROLES = ("prefill", "decode")
_SOURCE = "replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What an operator would choose."""

    target_utilisation_ratio: float = 0.85
    forecast_quantile: float = 0.9
    max_replicas: int = 32


@dataclass(slots=True, kw_only=True)
class TidegatePolicy:
    """The policy; `initial_tick_ms` and `on_tick` are what their simulator calls."""

    prefill: EngineProfile
    decode: EngineProfile
    setting: Setting = field(default_factory=Setting)
    _memory: Memory = field(default_factory=Memory)
    _windows: deque[tuple[float, float, float]] = field(default_factory=lambda: deque(maxlen=RATE_TICKS))
    _minutes: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=HISTORY_STEPS))
    _minute: tuple[float, float] = (0.0, 0.0)  # seconds and requests since the last whole minute
    _lengths: tuple[float, float, float] = (0.0, 0.0, 0.0)  # weight, prompt tokens, output tokens
    _engines: dict[str, dict[int, dict[str, Any]]] = field(default_factory=lambda: {role: {} for role in ROLES})
    _since: dict[tuple[str, int], tuple[float, float | None]] = field(default_factory=dict)

    def initial_tick_ms(self) -> float:
        """Return the time of the first call."""
        return 1000.0 * PERIOD_S

    def on_tick(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """Return absolute targets and the time of the next call."""
        now_s = snapshot["now_ms"] / 1000.0
        self._see(snapshot, now_s)
        answer: dict[str, Any] = {"target_prefill": None, "target_decode": None}
        answer["next_tick_ms"] = 1000.0 * (now_s + PERIOD_S)
        if self._lengths[0] <= 0.0:
            return answer
        observation = Observation(
            observed_at_s=now_s, services=tuple(self._service(role, snapshot, now_s) for role in ROLES)
        )
        decision, self._memory = decide(
            observation,
            foresee(self._histories(), horizons_s=dict.fromkeys(ROLES, START_UP_S), now_s=now_s),
            [self._capacity(role) for role in ROLES],
            [self._policy(role) for role in ROLES],
            self._memory,
            now_s=now_s,
        )
        for role, pool in zip(ROLES, decision.pools, strict=True):
            if pool.asked_replicas != snapshot[f"non_draining_{role}_count"]:
                answer[f"target_{role}"] = pool.asked_replicas
        return answer

    def _see(self, snapshot: dict[str, Any], now_s: float) -> None:
        traffic = snapshot["traffic"]
        seconds, requests = float(traffic["duration_s"]), float(traffic["num_req"])
        shaped = float(traffic["shape_count"])
        self._windows.append((seconds, requests, shaped))
        total_s, total = self._minute[0] + seconds, self._minute[1] + requests
        if total_s >= HISTORY_STEP_S - 1e-6:
            self._minutes.append((round(now_s / HISTORY_STEP_S) * HISTORY_STEP_S, total / total_s))
            total_s, total = 0.0, 0.0
        self._minute = (total_s, total)
        weight, prompt, output = self._lengths
        if shaped > 0.0:
            both = weight + shaped
            prompt = (weight * prompt + shaped * traffic["avg_isl"]) / both
            output = (weight * output + shaped * traffic["avg_osl"]) / both
            self._lengths = (min(200.0, both), prompt, output)
        for role in ROLES:
            engines = self._engines[role]
            engines |= {int(found["worker_id"]): found for found in snapshot[f"{role}_fpm_snapshots"]}
            for gone in set(engines) - set(snapshot[f"active_{role}_ids"]):
                del engines[gone]

    def _service(self, role: str, snapshot: dict[str, Any], now_s: float) -> ServiceObservation:
        seconds = sum(w[0] for w in self._windows)
        lost = unknown(UnknownReason.NOT_OFFERED, "not in a snapshot", now_s=now_s, source=_SOURCE)
        return ServiceObservation(
            service=role,
            arrivals_per_s=_read(sum(w[1] for w in self._windows) / seconds, now_s),
            prompt_tokens_mean=_read(self._lengths[1], now_s),
            output_tokens_mean=_read(self._lengths[2], now_s),
            failed_per_s=lost,
            slis=(),
            pools=(self._pool(role, snapshot, now_s),),
        )

    def _pool(self, role: str, snapshot: dict[str, Any], now_s: float) -> PoolObservation:
        states = {
            ReplicaState.READY: snapshot[f"active_{role}_ids"],
            ReplicaState.STARTING: snapshot[f"starting_{role}_ids"],
            ReplicaState.DRAINING: snapshot[f"draining_{role}_ids"],
        }
        members = [self._replica(role, n, state, now_s) for state, ids in states.items() for n in ids]
        ready = [m for m in members if m.replica.state is ReplicaState.READY]

        def total(signals: list[Signal]) -> Signal:
            return combine(signals, expected=len(ready), source=_SOURCE, now_s=now_s)

        seconds = sum(w[0] for w in self._windows)
        return PoolObservation(
            key=PoolKey(service=role, pool=role),
            replicas=tuple(sorted(members, key=lambda m: m.replica.name)),
            running_requests=total([m.running_requests for m in ready]),
            waiting_requests=total([m.waiting_requests for m in ready]),
            finished_per_s=_read(sum(w[2] for w in self._windows) / seconds, now_s),
            output_tokens_per_s=unknown(UnknownReason.NOT_OFFERED, "", now_s=now_s, source=_SOURCE),
            gateway_in_flight_requests=unknown(UnknownReason.NOT_OFFERED, "", now_s=now_s, source=_SOURCE),
            gateway_pending_requests=_read(0.0, now_s),  # their router holds none while an engine is ready
        )

    def _replica(self, role: str, number: int, state: ReplicaState, now_s: float) -> ReplicaObservation:
        ordered_s, ready_s = self._since.get((role, number), (now_s, None))
        if state is ReplicaState.READY and ready_s is None:
            ready_s = now_s
        self._since[role, number] = (ordered_s, ready_s)
        key = PoolKey(service=role, pool=role)
        seen = self._engines[role].get(number)
        absent = unknown(UnknownReason.ABSENT, "no pass seen yet", now_s=now_s, source=_SOURCE)
        # An engine that has not run a pass holds nothing: their router gives it work within one arrival.
        running, waiting = (seen["num_" + role + "_requests"], seen["num_queued_" + role]) if seen else (0, 0)
        return ReplicaObservation(
            replica=Replica(
                name=f"{role}-{number:04d}", pool=key, state=state, ordered_at_s=ordered_s, ready_at_s=ready_s
            ),
            running_requests=_read(float(running), now_s),
            waiting_requests=_read(float(waiting), now_s),
            kv_used_ratio=absent,
            finished_per_s=absent,
            prompt_tokens_per_s=absent,
            output_tokens_per_s=absent,
            preemptions_per_s=absent,
        )

    def _histories(self) -> tuple[History, ...]:
        return tuple(
            History(
                service=role,
                quantity=Quantity.REQUESTS_PER_S,
                step_s=HISTORY_STEP_S,
                samples=tuple(self._minutes),
                source=_SOURCE,
            )
            for role in ROLES
        )

    def _capacity(self, role: str) -> PoolCapacity:
        _, prompt, output = self._lengths
        if role == "prefill":
            # What is left of the TTFT limit after the decode engine's first step.
            inside = replica_capacity(
                self.prefill, ttft_s=TTFT_S - ITL_S, tpot_s=None, prompt_tokens=prompt, output_tokens=1.0
            )
            per_s, binding = inside.requests_per_s, str(inside.binding)
        else:
            best = decode_capacity(
                believed_pass(self.decode),
                limits_of(self.decode),
                prompt_tokens=prompt,
                output_tokens=output,
                itl_s=ITL_S,
            )
            per_s, binding = (best.requests_per_s if best else 0.0), "tpot"
        return PoolCapacity(
            key=PoolKey(service=role, pool=role),
            requests_per_s=max(per_s, 1e-3),
            source=CapacitySource.PROFILE,
            prompt_tokens=prompt,
            output_tokens=output,
            binding=binding,
            cold_start_p50_s=START_UP_S,
            cold_start_p95_s=START_UP_S,
            cold_starts_seen=0,
        )

    def _policy(self, role: str) -> ServicePolicy:
        pool = PoolPolicy(
            key=PoolKey(service=role, pool=role),
            role=Role(role),
            engine=EngineKind.VLLM,
            accelerator="nvidia-h200",
            gpus_per_replica=TENSOR_PARALLEL,
            parallelism=Parallelism(tensor=TENSOR_PARALLEL),
            profile=role,
            min_replicas=1,
            max_replicas=self.setting.max_replicas,
            cold_start_prior_s=START_UP_S,
            cost_usd_per_h=1.0,
            target=ScaleTarget(kind=TargetKind.LOCAL, name=role),
        )
        return replace(_PLAIN, name=role, pools=(pool,), scaling=self._scaling())

    def _scaling(self) -> ScalingPolicy:
        return replace(
            _PLAIN.scaling,
            target_utilisation_ratio=self.setting.target_utilisation_ratio,
            forecast_quantile=self.setting.forecast_quantile,
        )


_PLAIN = ServicePolicy(
    name="",
    model="",
    mode=Mode.ACT,
    priority=100,
    slos=(),
    pools=(),
    scaling=ScalingPolicy(
        max_grow_replicas=4,
        max_shrink_replicas=1,
        shrink_stabilisation_s=None,
        target_utilisation_ratio=0.85,
        forecast_quantile=0.9,
        stale_after_s=60.0,
    ),
    budget=BudgetPolicy(),
    gateway=GatewayPolicy(retries=1, idle_timeout_s=300.0, max_body_bytes=8 << 20),
    cache=CachePolicy(),
)


def _read(number: float, now_s: float) -> Signal:
    return reading(number, sampled_at_s=now_s, coverage_ratio=1.0, source=_SOURCE)
