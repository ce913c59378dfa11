"""A rehearsal: what the policy is shown, what it is charged, and that it can be repeated."""

import functools
from dataclasses import replace

import pytest

from tidegate.app.config import load_profile
from tidegate.app.sizing import pool_capacities
from tidegate.core.decide import decide
from tidegate.forecast.select import foresee
from tidegate.sim.arrivals import Arrival, steady
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.rehearse import Conditions, RehearsalResult, rehearse
from tidegate.terms.capacity import PoolCapacity
from tidegate.terms.decision import Decision, Memory, PoolDecision, Reason, Verdict
from tidegate.terms.fleet import EngineKind, PoolKey, ReplicaState, Role
from tidegate.terms.forecast import Forecast, Quantity
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
from tidegate.terms.signal import Signal, TrueZero, Unknown
from tidegate.terms.slo import Indicator, Slo

KEY = PoolKey(service="chat", pool="main")
PROFILE = load_profile("a100-llama8b-tp1")
SLOS = (
    Slo(name="ttft", indicator=Indicator.TTFT, objective_ratio=0.95, threshold_s=1.0, window_s=3600.0),
    Slo(name="tpot", indicator=Indicator.TPOT, objective_ratio=0.95, threshold_s=0.08, window_s=3600.0),
    Slo(name="available", indicator=Indicator.AVAILABILITY, objective_ratio=0.999, threshold_s=None, window_s=3600.0),
)
POLICY = ServicePolicy(
    name="chat",
    model="m",
    mode=Mode.ACT,
    priority=1,
    slos=SLOS,
    pools=(
        PoolPolicy(
            key=KEY,
            role=Role.AGGREGATED,
            engine=EngineKind.VLLM,
            accelerator="a100",
            gpus_per_replica=2,
            parallelism=Parallelism(tensor=2),
            profile=PROFILE.name,
            min_replicas=1,
            max_replicas=8,
            cold_start_prior_s=10.0,
            cost_usd_per_h=1.0,
            target=ScaleTarget(kind=TargetKind.LOCAL, name="main"),
        ),
    ),
    scaling=ScalingPolicy(
        max_grow_replicas=4,
        max_shrink_replicas=2,
        shrink_stabilisation_s=20.0,
        target_utilisation_ratio=0.85,
        forecast_quantile=0.9,
        stale_after_s=30.0,
    ),
    budget=BudgetPolicy(),
    gateway=GatewayPolicy(retries=1, idle_timeout_s=300.0, max_body_bytes=1 << 20),
    cache=CachePolicy(),
)
CONDITIONS = Conditions(
    policy=POLICY, cold_start=ColdStart(samples_s=(10.0,)), initial_replicas=1, decide_every_s=5.0, rate_window_s=10.0
)
LOAD = steady(requests_per_s=2.0, seconds=60.0, prompt_tokens=300, output_tokens=60)


class Script:
    """Asks for the counts of a list, one per call, and keeps what it was shown."""

    def __init__(self, *asked: int) -> None:
        self._asked = asked
        self.seen: list[Observation] = []
        self.forecasts: list[tuple[Forecast, ...]] = []
        self.capacity: list[tuple[PoolCapacity, ...]] = []

    def __call__(
        self,
        obs: Observation,
        forecasts: tuple[Forecast, ...],
        capacity: tuple[PoolCapacity, ...],
        policies: tuple[ServicePolicy, ...],  # noqa: ARG002
        memory: Memory,
        *,
        now_s: float,
    ) -> tuple[Decision, Memory]:
        turn = len(self.seen)
        self.seen.append(obs)
        self.forecasts.append(forecasts)
        self.capacity.append(capacity)
        asked = self._asked[min(turn, len(self._asked) - 1)]
        pool = PoolDecision(
            key=KEY, role=Role.AGGREGATED, verdict=Verdict.HOLD, ready_replicas=0, starting_replicas=0,
            draining_replicas=0, asked_before_replicas=asked, wanted_replicas=asked, asked_replicas=asked,
            binding=Reason.STEADY, notes=(),
        )  # fmt: skip
        return Decision(decided_at_s=now_s, sequence=turn, pools=(pool,)), memory


def number(signal: Signal) -> float:
    assert not isinstance(signal, Unknown), signal
    return signal.number


def test_policy_is_called_each_period_and_sees_rates_of_the_load() -> None:
    script = Script(1)
    rehearse(LOAD, PROFILE, script, conditions=CONDITIONS)
    assert [o.observed_at_s for o in script.seen[:3]] == [5.0, 10.0, 15.0]
    early = script.seen[0].services[0]
    assert isinstance(early.arrivals_per_s, Unknown)  # no full window yet, so unknown and not 0
    later = script.seen[5].services[0]
    assert number(later.arrivals_per_s) == pytest.approx(2.0)
    assert number(later.prompt_tokens_mean) == pytest.approx(300.0)
    assert number(later.output_tokens_mean) == pytest.approx(60.0)
    assert number(later.pools[0].finished_per_s) == pytest.approx(2.0, rel=0.15)
    assert isinstance(later.failed_per_s, TrueZero)
    assert number(later.slis[0].attained_ratio) == 1.0
    assert number(later.slis[0].quantile_s) < 1.0
    assert isinstance(later.slis[2].quantile_s, Unknown)  # availability is no latency


def test_policy_sees_the_last_scrape_and_not_the_truth() -> None:
    burst = tuple(Arrival(at_s=4.5, prompt_tokens=100, output_tokens=2000) for _ in range(7))
    script = Script(1)
    rehearse(burst, PROFILE, script, conditions=replace(CONDITIONS, scrape_interval_s=4.0, window_s=10.0))
    at_5_s, at_10_s = (o.services[0].pools[0].running_requests for o in script.seen[:2])
    assert isinstance(at_5_s, TrueZero)
    assert (at_5_s.sampled_at_s, at_5_s.coverage_ratio) == (4.0, 1.0)
    assert (number(at_10_s), at_10_s.sampled_at_s) == (7.0, 8.0)


def test_a_replica_ready_since_the_last_scrape_lowers_coverage() -> None:
    script = Script(2)
    conditions = replace(CONDITIONS, scrape_interval_s=4.0, cold_start=ColdStart(samples_s=(9.0,)))
    rehearse(LOAD, PROFILE, script, conditions=conditions)
    # Ordered at 5, ready at 14: the decision at 15 knows it from the actuator, the scrape of 12 does not.
    pool = script.seen[2].services[0].pools[0]
    assert [r.replica.state for r in pool.replicas] == [ReplicaState.READY] * 2
    assert pool.running_requests.coverage_ratio == 0.5


def test_result_accounts_replica_time_peak_and_counts() -> None:
    result = rehearse(LOAD, PROFILE, Script(1, 3, 1), conditions=replace(CONDITIONS, window_s=60.0))
    # Two ordered at 10, ready at 20. At 15 one is asked for: nothing moves until 20, when two of three ready go.
    assert [(e.at_s, e.kind) for e in result.events if e.kind in {"ordered", "draining"}] == [
        (0.0, "ordered"), (10.0, "ordered"), (10.0, "ordered"), (20.0, "draining"), (20.0, "draining"),
    ]  # fmt: skip
    assert result.replicas_peak == 3
    ended = [e.at_s for e in result.events if e.kind == "ended"]
    assert result.replica_seconds == pytest.approx(60.0 + sum(at_s - 10.0 for at_s in ended))
    assert result.gpu_seconds == 2.0 * result.replica_seconds
    assert (12.0, 1, 2, 0) in result.replicas_over_time
    assert result.failed == 0
    assert dict(result.attained_ratio)["available"] == 1.0


def test_joint_attainment_counts_requests_that_met_every_objective() -> None:
    overload = steady(requests_per_s=25.0, seconds=20.0, prompt_tokens=1000, output_tokens=200)
    result = rehearse(overload, PROFILE, Script(1), conditions=CONDITIONS)
    ratios = dict(result.attained_ratio)
    assert ratios["ttft"] < 0.9
    assert ratios["available"] == 1.0
    assert result.joint_ratio <= min(ratios.values())
    by_hand = sum((o.ttft_s or 99.0) <= 1.0 and (o.tpot_s or 99.0) <= 0.08 for o in result.outcomes)
    assert result.joint_ratio == by_hand / len(overload)


def test_requests_without_a_ready_replica_fail_and_miss_every_objective() -> None:
    result = rehearse(LOAD, PROFILE, Script(0), conditions=CONDITIONS)
    assert result.failed == sum(o.arrival.at_s > 5.0 for o in result.outcomes)
    share = 1.0 - result.failed / len(LOAD)
    assert all(ratio == pytest.approx(share) for _, ratio in result.attained_ratio)


def test_more_replicas_never_serve_the_same_load_worse() -> None:
    heavy = steady(requests_per_s=12.0, seconds=30.0, prompt_tokens=1200, output_tokens=150)
    joint = [
        rehearse(heavy, PROFILE, Script(n), conditions=replace(CONDITIONS, initial_replicas=n)).joint_ratio
        for n in (1, 2, 4)
    ]
    assert joint == sorted(joint)
    assert joint[0] < joint[-1]


def own_policy() -> RehearsalResult:
    heavy = [
        replace(a, at_s=a.at_s + 40.0)
        for a in steady(requests_per_s=14.0, seconds=60.0, prompt_tokens=1200, output_tokens=200)
    ]
    return rehearse(
        (*LOAD, *heavy),
        PROFILE,
        decide,
        conditions=replace(CONDITIONS, window_s=200.0),
        forecaster=foresee,
        sizer=functools.partial(pool_capacities, profiles={PROFILE.name: PROFILE}, elapsed_s=CONDITIONS.decide_every_s),
    )


def test_own_policy_can_be_rehearsed_grows_and_shrinks_and_repeats_exactly() -> None:
    result = own_policy()
    asked = [d.pools[0].asked_replicas for d in result.decisions]
    assert max(asked) > 1
    assert asked[-1] == 1
    assert result.failed == 0
    assert own_policy() == result


def test_forecaster_gets_history_of_the_load_and_the_horizon_of_the_cold_start() -> None:
    asked: list[dict[str, float]] = []

    def forecaster(histories, *, horizons_s, now_s):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        asked.append(dict(horizons_s))
        requests = next(h for h in histories if h.quantity is Quantity.REQUESTS_PER_S)
        assert all(at_s <= now_s and at_s % requests.step_s == 0.0 for at_s, _ in requests.samples)
        assert all(rate == pytest.approx(2.0, abs=0.11) for _, rate in requests.samples)
        assert bool(requests.samples) == (now_s >= CONDITIONS.rate_window_s)
        return ()

    rehearse(LOAD, PROFILE, Script(1), conditions=CONDITIONS, forecaster=forecaster)
    assert asked[0] == {"chat": 10.0}


def test_rehearsal_refuses_a_policy_of_two_pools() -> None:
    two = replace(POLICY, pools=POLICY.pools * 2)
    with pytest.raises(ValueError, match="exactly one pool, got 2"):
        rehearse(LOAD, PROFILE, Script(1), conditions=replace(CONDITIONS, policy=two))
