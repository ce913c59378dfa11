"""The HPA's arithmetic by worked examples, and as a policy."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.baselines.reactive import HpaSettings, Tuned, rate_limited, reactive, recommended, stabilised, tuned
from tidegate.sim.rehearse import RehearsalResult
from tidegate.terms.decision import Decision, Memory, PoolDecision, Reason, Verdict
from tidegate.terms.fleet import EngineKind, PoolKey, Replica, ReplicaState, Role
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
from tidegate.terms.signal import Signal, UnknownReason, reading, unknown

KEY = PoolKey(service="chat", pool="main")
HPA = HpaSettings(target_per_replica=10.0)
POLICY = ServicePolicy(
    name="chat", model="m", mode=Mode.ACT, priority=1, slos=(),
    pools=(
        PoolPolicy(
            key=KEY, role=Role.AGGREGATED, engine=EngineKind.VLLM, accelerator="a", gpus_per_replica=1,
            parallelism=Parallelism(), profile="p", min_replicas=1, max_replicas=12, cold_start_prior_s=10.0,
            cost_usd_per_h=1.0, target=ScaleTarget(kind=TargetKind.LOCAL, name="main"),
        ),
    ),
    scaling=ScalingPolicy(
        max_grow_replicas=4, max_shrink_replicas=1, shrink_stabilisation_s=None, target_utilisation_ratio=0.8,
        forecast_quantile=0.9, stale_after_s=30.0,
    ),
    budget=BudgetPolicy(), gateway=GatewayPolicy(retries=1, idle_timeout_s=1.0, max_body_bytes=1), cache=CachePolicy(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("total", "replicas", "wanted"),
    [
        (25.0, 2, 3),  # 1.25 of the target
        (21.9, 2, 2),  # within the tolerance
        (22.1, 2, 3),
        (18.0, 2, 2),  # 0.9: on the tolerance
        (17.9, 2, 2),  # outside it, and ceil(1.79) is still 2
        (9.9, 2, 1),
        (100.0, 1, 10),  # does not depend on the present count, so it cannot run away
        (100.0, 7, 10),
        (0.0, 3, 0),
        (1.0, 0, 1),
    ],
)
def test_average_value_recommends_the_ceiling_outside_the_tolerance(total: float, replicas: int, wanted: int) -> None:
    assert recommended(total, replicas, HPA) == wanted


def test_tolerance_includes_its_border() -> None:
    quarter = replace(HPA, tolerance=0.25)  # exact in binary, which 0.1 is not
    assert [recommended(total, 2, quarter) for total in (15.0, 25.0, 25.1)] == [2, 2, 3]


def test_down_window_holds_the_highest_and_up_window_the_lowest_recommendation() -> None:
    older = ((0.0, 9), (100.0, 6), (290.0, 4))
    assert stabilised(8, 3, older, HPA, now_s=300.0) == 6  # the 9 is 300 s old: just out of the window
    assert stabilised(8, 3, older, HPA, now_s=299.9) == 8
    assert stabilised(5, 7, older, HPA, now_s=300.0) == 7  # up at once
    slow_up = replace(HPA, up_window_s=60.0)
    assert stabilised(3, 7, older, slow_up, now_s=300.0) == 4
    assert stabilised(5, 7, older, slow_up, now_s=300.0) == 5  # above the lowest of the minute: it waits
    assert stabilised(5, 3, (), HPA, now_s=0.0) == 3


@pytest.mark.parametrize(
    ("now", "wanted", "added", "removed", "limited"),
    [
        (1, 50, 0, 0, 5),  # 4 pods beat 100 %
        (3, 50, 0, 0, 7),
        (4, 50, 0, 0, 8),  # the same
        (10, 50, 0, 0, 20),  # 100 % beats 4 pods
        (20, 50, 10, 0, 20),  # the period's growth is used up
        (7, 50, 2, 0, 10),
        (10, 1, 0, 0, 1),  # down 100 %: no limit
        (5, 6, 0, 0, 6),
        (6, 6, 0, 0, 6),
    ],
)
def test_rate_policies_take_the_most_permissive(now: int, wanted: int, added: int, removed: int, limited: int) -> None:
    assert rate_limited(now, wanted, HPA, added=added, removed=removed) == limited


def test_down_percent_limits_what_goes_in_one_period() -> None:
    half = replace(HPA, down_percent=50.0)
    assert rate_limited(9, 1, half, added=0, removed=0) == 4  # trunc(4.5)
    assert rate_limited(5, 1, half, added=0, removed=4) == 4  # started the period at 9


def signal(number: float | None) -> Signal:
    if number is None:
        return unknown(UnknownReason.UNREACHABLE, "", now_s=0.0, source="t")
    return reading(number, sampled_at_s=0.0, coverage_ratio=1.0, source="t")


def seen(running: float | None, waiting: float | None, *replicas: Replica) -> Observation:
    none = signal(None)
    pool = PoolObservation(
        key=KEY,
        replicas=tuple(
            ReplicaObservation(
                replica=r, running_requests=none, waiting_requests=none, kv_used_ratio=none, finished_per_s=none,
                prompt_tokens_per_s=none, output_tokens_per_s=none, preemptions_per_s=none,
            )
            for r in replicas
        ),
        running_requests=signal(running), waiting_requests=signal(waiting), finished_per_s=none,
        output_tokens_per_s=none, gateway_in_flight_requests=none, gateway_pending_requests=none,
    )  # fmt: skip
    service = ServiceObservation(
        service="chat", arrivals_per_s=none, prompt_tokens_mean=none, output_tokens_mean=none, failed_per_s=none,
        slis=(), pools=(pool,),
    )  # fmt: skip
    return Observation(observed_at_s=0.0, services=(service,))


def replicas(count: int, state: ReplicaState = ReplicaState.READY, *, ordered_at_s: float = -1000.0) -> list[Replica]:
    return [Replica(name=f"{state}{i}", pool=KEY, state=state, ordered_at_s=ordered_at_s) for i in range(count)]


def ask(obs: Observation, memory: Memory, now_s: float, settings: HpaSettings = HPA) -> tuple[PoolDecision, Memory]:
    decision, after = reactive(settings)(obs, (), (), (POLICY,), memory, now_s=now_s)
    assert isinstance(decision, Decision)
    return decision.pools[0], after


def test_policy_starts_from_what_exists_and_grows_at_once() -> None:
    made, memory = ask(seen(20.0, 15.0, *replicas(2)), Memory(), 0.0)
    assert (made.asked_before_replicas, made.wanted_replicas, made.asked_replicas) == (2, 4, 4)
    assert (made.verdict, made.binding) == (Verdict.GROW, Reason.DEMAND_NOW)
    assert memory.sequence == 1
    assert memory.pools[0].asked_replicas == 4


def test_policy_counts_starting_replicas_and_does_not_order_twice() -> None:
    _, memory = ask(seen(40.0, 0.0, *replicas(2)), Memory(), 0.0)
    fleet = [*replicas(2), *replicas(2, ReplicaState.STARTING, ordered_at_s=0.5)]
    made, _ = ask(seen(41.0, 0.0, *fleet), memory, 15.0)
    assert (made.verdict, made.asked_replicas) == (Verdict.HOLD, 4)


def test_policy_shrinks_only_after_the_down_window_even_after_a_restart() -> None:
    memory = Memory()
    asked, bindings = [], []
    for now_s in (0.0, 150.0, 299.0, 301.0):
        made, memory = ask(seen(0.0, 0.0, *replicas(3)), memory, now_s)
        asked.append(made.asked_replicas)
        bindings.append(made.binding)
    assert asked == [3, 3, 3, 1]
    assert bindings == [*[Reason.STABILISATION] * 3, Reason.AT_MINIMUM]


def test_policy_holds_when_the_metric_is_unknown() -> None:
    for obs in (
        seen(None, 1.0, *replicas(3)),
        seen(1.0, None, *replicas(3)),
        Observation(observed_at_s=0.0, services=()),
    ):
        _, memory = ask(seen(25.0, 0.0, *replicas(3)), Memory(), 0.0)
        made, after = ask(obs, memory, 1000.0)
        assert (made.asked_replicas, made.wanted_replicas, made.binding) == (3, None, Reason.STALE_METRICS)
        assert after.pools[0].wanted_history == memory.pools[0].wanted_history


def test_policy_stays_within_bounds_and_names_the_limit() -> None:
    made, _ = ask(seen(5000.0, 0.0, *replicas(10)), Memory(), 0.0)
    assert (made.wanted_replicas, made.asked_replicas, made.binding) == (500, 12, Reason.AT_MAXIMUM)
    made, _ = ask(seen(5000.0, 0.0, *replicas(2)), Memory(), 0.0)
    assert (made.asked_replicas, made.binding) == (6, Reason.RATE_LIMIT)


@settings(deadline=None)
@given(st.floats(0.0, 1000.0), st.floats(0.0, 1000.0), st.integers(0, 12))
def test_more_load_never_means_fewer_replicas(one: float, other: float, count: int) -> None:
    low, high = sorted((one, other))
    fleet = replicas(count)
    lower, _ = ask(seen(low, 0.0, *fleet), Memory(), 0.0)
    higher, _ = ask(seen(high, 0.0, *fleet), Memory(), 0.0)
    assert lower.asked_replicas <= higher.asked_replicas
    assert 1 <= higher.asked_replicas <= 12


def result(joint: float, replica_seconds: float) -> RehearsalResult:
    return RehearsalResult(
        outcomes=(), attained_ratio=(), joint_ratio=joint, failed=0, replica_seconds=replica_seconds,
        gpu_seconds=0.0, replicas_peak=0, events=(), replicas_over_time=(), decisions=(), ended_s=0.0,
    )  # fmt: skip


def test_tuning_takes_the_cheapest_that_keeps_the_objectives_else_the_best_served() -> None:
    candidates = tuple(HpaSettings(target_per_replica=t) for t in (5.0, 10.0, 20.0))
    results = dict(zip(candidates, (result(0.99, 300.0), result(0.96, 200.0), result(0.5, 100.0)), strict=True))
    best = tuned(results.__getitem__, candidates, lambda r: r.joint_ratio >= 0.95)
    assert best == Tuned(settings=candidates[1], result=results[candidates[1]])
    assert tuned(results.__getitem__, candidates, lambda _: False).settings == candidates[0]
