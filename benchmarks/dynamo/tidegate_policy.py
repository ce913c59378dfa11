"""Tidegate's `decide` as a scaling policy of their replay simulator.

Each role is a service with one pool, decided apart. The decode engine's capacity is the largest batch inside the ITL
limit. The prefill engine's is Tidegate's closed form inside the TTFT limit, which knows mean lengths only and takes
them for exponential; or, as `service_rate`, what it prefills when always busy, with the utilisation target as the only
headroom. Both come from the fitted profiles at the mean lengths seen so far.

Snapshots become an `Observation` with what they offer: arrivals, mean lengths, each engine's running and queued
requests. They carry no latency per request, so no objective is judged and the loop that corrects capacity by what was
measured stays out; nor is any operator's tuning in it. It is the decision alone, on the forecast, the backlog and the
supply.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.dynamo.engine import ITL_S, START_UP_S, TENSOR_PARALLEL, TTFT_S
from benchmarks.dynamo.snapshots import ROLES, Snapshots, Window

from tidegate.baselines.dynamo_engine import believed_pass, decode_capacity, limits_of, prefill_capacity
from tidegate.core.decide import decide
from tidegate.forecast.select import foresee
from tidegate.perf.capacity import replica_capacity
from tidegate.perf.profile import EngineProfile
from tidegate.terms.capacity import CapacitySource, PoolCapacity
from tidegate.terms.decision import Memory
from tidegate.terms.fleet import EngineKind, PoolKey, Role
from tidegate.terms.forecast import Quantity
from tidegate.terms.history import History
from tidegate.terms.observation import Observation
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

PERIOD_S = 15.0
RATE_WINDOW_S = 60.0
HISTORY_STEP_S = 60.0
HISTORY_STEPS = 120
MAX_REPLICAS = 32


@dataclass(slots=True, kw_only=True)
class TidegatePolicy:
    """The policy; `initial_tick_ms` and `on_tick` are what their simulator calls."""

    prefill: EngineProfile
    decode: EngineProfile
    service_rate: bool = False
    _seen: Snapshots = field(default_factory=lambda: Snapshots(rate_window_s=RATE_WINDOW_S))
    _memory: Memory = field(default_factory=Memory)
    _minutes: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=HISTORY_STEPS))
    _minute: tuple[float, float] = (0.0, 0.0)  # seconds and requests since the last whole minute

    def initial_tick_ms(self) -> float:
        """Return the time of the first call."""
        return 1000.0 * PERIOD_S

    def on_tick(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """Return absolute targets, None where nothing moves, and the time of the next call."""
        self._remember(self._seen.take(snapshot))
        now_s = self._seen.now_s
        answer: dict[str, Any] = {"target_prefill": None, "target_decode": None}
        answer["next_tick_ms"] = 1000.0 * (now_s + PERIOD_S)
        if self._seen.lengths[0] <= 0.0:
            return answer
        services = tuple(self._seen.service(role, (self._seen.pool(_key(role), role),)) for role in ROLES)
        decision, self._memory = decide(
            Observation(observed_at_s=now_s, services=services),
            foresee(self._histories(), horizons_s=dict.fromkeys(ROLES, START_UP_S), now_s=now_s),
            [self._capacity(role) for role in ROLES],
            POLICIES,
            self._memory,
            now_s=now_s,
        )
        for role, pool in zip(ROLES, decision.pools, strict=True):
            if pool.asked_replicas != snapshot[f"non_draining_{role}_count"]:
                answer[f"target_{role}"] = pool.asked_replicas
        return answer

    def _remember(self, window: Window) -> None:
        seconds, requests = self._minute[0] + window.seconds, self._minute[1] + window.requests
        if seconds >= HISTORY_STEP_S - 1e-6:
            self._minutes.append((round(window.until_s / HISTORY_STEP_S) * HISTORY_STEP_S, requests / seconds))
            seconds, requests = 0.0, 0.0
        self._minute = (seconds, requests)

    def _histories(self) -> tuple[History, ...]:
        return tuple(
            History(
                service=role,
                quantity=Quantity.REQUESTS_PER_S,
                step_s=HISTORY_STEP_S,
                samples=tuple(self._minutes),
                source="replay",
            )
            for role in ROLES
        )

    def _capacity(self, role: str) -> PoolCapacity:
        _, prompt, output = self._seen.lengths
        if role == "prefill" and self.service_rate:
            forward, limits = believed_pass(self.prefill), limits_of(self.prefill)
            busy = prefill_capacity(forward, limits, prompt_tokens=prompt, ttft_s=TTFT_S)
            per_s, binding = (busy.requests_per_s if busy else 0.0), "compute"
        elif role == "prefill":
            # What is left of the TTFT limit after the decode engine's first step.
            inside = replica_capacity(
                self.prefill, ttft_s=TTFT_S - ITL_S, tpot_s=None, prompt_tokens=prompt, output_tokens=1.0
            )
            per_s, binding = inside.requests_per_s, str(inside.binding)
        else:
            forward, limits = believed_pass(self.decode), limits_of(self.decode)
            best = decode_capacity(forward, limits, prompt_tokens=prompt, output_tokens=output, itl_s=ITL_S)
            per_s, binding = (best.requests_per_s if best else 0.0), "tpot"
        return PoolCapacity(
            key=_key(role),
            requests_per_s=max(per_s, 1e-3),
            source=CapacitySource.PROFILE,
            prompt_tokens=prompt,
            output_tokens=output,
            binding=binding,
            cold_start_p50_s=START_UP_S,
            cold_start_p95_s=START_UP_S,
            cold_starts_seen=0,
        )


def _key(role: str) -> PoolKey:
    return PoolKey(service=role, pool=role)


def pool_policy(key: PoolKey, role: str) -> PoolPolicy:
    """Return a pool of one to 32 replicas of two accelerators each."""
    return PoolPolicy(
        key=key,
        role=Role(role),
        engine=EngineKind.VLLM,
        accelerator="nvidia-h200",
        gpus_per_replica=TENSOR_PARALLEL,
        parallelism=Parallelism(tensor=TENSOR_PARALLEL),
        profile=role,
        min_replicas=1,
        max_replicas=MAX_REPLICAS,
        cold_start_prior_s=START_UP_S,
        cost_usd_per_h=1.0,
        target=ScaleTarget(kind=TargetKind.LOCAL, name=role),
    )


PLAIN = ServicePolicy(
    name="replay",
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
POLICIES = tuple(replace(PLAIN, name=role, pools=(pool_policy(_key(role), role),)) for role in ROLES)
