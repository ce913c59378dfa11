"""Observations, worlds and single decisions for the tests of rival laws."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.policies import pool_policy, service_policy

from tidegate.baselines.law import LawMemory
from tidegate.perf.profile import EngineProfile
from tidegate.sim.policies import Contender, PolicyFn, World
from tidegate.terms.decision import PoolDecision
from tidegate.terms.fleet import PoolKey, Replica, ReplicaState
from tidegate.terms.observation import Observation, PoolObservation, ReplicaObservation, ServiceObservation
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.signal import Signal, UnknownReason, reading, unknown

KEY = PoolKey(service="chat", pool="main")
POLICY = service_policy(pools=("main",))
ABSENT = UnknownReason.ABSENT
UNREACHABLE = UnknownReason.UNREACHABLE

Number = float | UnknownReason  # a reason stands for a signal without a number

PROFILE = EngineProfile(
    name="a100-llama8b-tp1", model="m", accelerator="a", engine="vllm", engine_version="0", tensor_parallel=1,
    source="made up", dated="2026-01-01", step_base_ps=100, weight_read_ps=10, compute_ps_per_token=1,
    smooth_max_power=1.0, compute_factor_ratio=1.0, kv_read_ps_per_token=2, attention_ps_per_pair=3, host_fixed_ps=0,
    host_ps_per_sequence=7, front_end_ps=50, kv_capacity_tokens=100_000, block_tokens=16, token_budget=2048,
    max_sequences=256, max_context_tokens=8192,
)  # fmt: skip


def bounded(least: int, most: int, **changes: Any) -> ServicePolicy:  # noqa: ANN401  (any field of the pool)
    """Return the service with one pool of `least` to `most` replicas."""
    return replace(POLICY, pools=(pool_policy(KEY, min_replicas=least, max_replicas=most, **changes),))


def signal(number: Number) -> Signal:
    """Return the signal as read at 0."""
    if isinstance(number, UnknownReason):
        return unknown(number, "", now_s=0.0, source="t")
    return reading(number, sampled_at_s=0.0, coverage_ratio=1.0, source="t")


def replicas(ready: int, starting: int = 0, draining: int = 0, *, pending: int = 0) -> list[Replica]:
    """Return so many replicas of each state; pending ones start and have no address yet."""
    starts = starting + pending
    states = [ReplicaState.READY] * ready + [ReplicaState.STARTING] * starts + [ReplicaState.DRAINING] * draining
    return [
        Replica(
            name=f"r{i:03d}",
            pool=KEY,
            state=s,
            ordered_at_s=0.0,
            address="" if ready + starting <= i < ready + starts else f"r{i:03d}:8000",
        )
        for i, s in enumerate(states)
    ]


def seen(
    fleet: Sequence[Replica] = (),
    *,
    running: Number = ABSENT,
    waiting: Number = ABSENT,
    in_flight: Number = ABSENT,
    pending: Number = ABSENT,
    arrivals: Number = ABSENT,
    kv: Sequence[Number] = (),  # of the ready replicas, in order; missing ones are unknown
) -> Observation:
    """Return an observation of one pool."""
    none = signal(ABSENT)
    known = iter(kv)
    members = tuple(
        ReplicaObservation(
            replica=r, running_requests=none, waiting_requests=none,
            kv_used_ratio=signal(next(known, ABSENT)) if r.state is ReplicaState.READY else none,
            finished_per_s=none, prompt_tokens_per_s=none, output_tokens_per_s=none, preemptions_per_s=none,
        )
        for r in fleet
    )  # fmt: skip
    pool = PoolObservation(
        key=KEY, replicas=members, running_requests=signal(running), waiting_requests=signal(waiting),
        finished_per_s=none, output_tokens_per_s=none, gateway_in_flight_requests=signal(in_flight),
        gateway_pending_requests=signal(pending),
    )  # fmt: skip
    service = ServiceObservation(
        service="chat", arrivals_per_s=signal(arrivals), prompt_tokens_mean=none, output_tokens_mean=none,
        failed_per_s=none, slis=(), pools=(pool,),
    )  # fmt: skip
    return Observation(observed_at_s=0.0, services=(service,))


def ask(
    law: PolicyFn[Any],
    obs: Observation,
    memory: LawMemory[Any] | None = None,
    *,
    now_s: float = 0.0,
    policy: ServicePolicy | None = None,
) -> tuple[PoolDecision, LawMemory[Any]]:
    """Return what one law decides for the only pool (1 to 8 replicas unless given), and its memory."""
    before: LawMemory[Any] = LawMemory() if memory is None else memory
    decision, after = law(obs, (), (), (policy or POLICY,), before, now_s=now_s)
    return decision.pools[0], after


def world(policy: ServicePolicy | None = None, **changes: Any) -> World:  # noqa: ANN401  (any field of the world)
    """Return a world whose replicas carry 2 requests/s with 10 in flight, at 8/s mean and 15/s peak."""
    policy = policy or bounded(1, 40)
    plain = World(
        policy=policy,
        profiles={p.profile: PROFILE for p in policy.pools},
        capacity_per_s={p.key: 2.0 for p in policy.pools},
        concurrency={p.key: 10.0 for p in policy.pools},
        prompt_tokens=1000.0,
        output_tokens=200.0,
        cold_start_s=60.0,
        mean_per_s=8.0,
        peak_per_s=15.0,
    )
    return replace(plain, **changes)


def play(
    contender: Contender, observations: Sequence[Observation], policy: ServicePolicy | None = None
) -> list[PoolDecision]:
    """Return the contender's decisions on these observations, one a period."""
    memory, made = contender.start, []
    for tick, obs in enumerate(observations):
        now_s = tick * contender.wants.period_s
        decision, memory = ask(contender.law, obs, memory, now_s=now_s, policy=policy)
        made.append(decision)
    return made
