"""A rehearsal: what the law is shown, what it is charged, and that it can be repeated."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from tests.policies import pool_policy
from tests.sim.stage import KEY, LOAD, POLICY, PROFILE, WANTS, Script, conditions, contender, number, play, pool_setup

from tidegate.app.sizing import pool_capacities
from tidegate.core.decide import decide
from tidegate.forecast.select import foresee
from tidegate.sim.arrivals import Arrival, steady
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.fleet import FleetSim
from tidegate.sim.outcome import joint_ratio, outcomes_of
from tidegate.sim.policies import Wants
from tidegate.sim.rehearse import RehearsalResult, rehearse
from tidegate.sim.setup import FleetSetup
from tidegate.sim.trace import trace_of
from tidegate.terms.fleet import PoolKey, ReplicaState
from tidegate.terms.forecast import Quantity
from tidegate.terms.signal import TrueZero, Unknown


def at_s(result: RehearsalResult, kind: str) -> list[float]:
    return [e.at_ps / 1e12 for e in result.events if e.kind == kind]


def test_law_is_called_each_period_and_sees_rates_of_the_load() -> None:
    script = Script(1)
    result = play(script)
    assert [o.observed_at_s for o in script.seen[:3]] == [5.0, 10.0, 15.0]
    assert result.decide_calls == len(script.seen) == len(result.decisions)
    early = script.service(0)
    assert isinstance(early.arrivals_per_s, Unknown)  # no full window yet, so unknown and not 0
    later = script.service(5)
    assert number(later.arrivals_per_s) == pytest.approx(2.0)
    assert number(later.prompt_tokens_mean) == pytest.approx(300.0)
    assert number(later.output_tokens_mean) == pytest.approx(60.0)
    assert number(later.pools[0].finished_per_s) == pytest.approx(2.0, rel=0.15)
    assert isinstance(later.failed_per_s, TrueZero)
    assert number(later.slis[0].attained_ratio) == 1.0


@pytest.mark.parametrize(("period_s", "calls"), [(2.0, 149), (180.0, 1)])
def test_law_decides_at_its_own_period(period_s: float, calls: int) -> None:
    script = Script(1)
    wants = Wants(period_s=period_s, scrape_interval_s=1.0, rate_window_s=30.0)
    play(contender(script, wants=wants), window_s=300.0)
    assert [o.observed_at_s for o in script.seen] == [period_s * (k + 1) for k in range(calls)]


def test_law_sees_the_last_scrape_and_not_the_truth() -> None:
    burst = trace_of([Arrival(at_s=4.5, prompt_tokens=100, output_tokens=2000) for _ in range(7)])
    script = Script(1)
    wants = replace(WANTS, scrape_interval_s=4.0)
    play(contender(script, wants=wants), burst, window_s=10.0)
    at_5_s, at_10_s = (script.pool(call).running_requests for call in (0, 1))
    assert isinstance(at_5_s, TrueZero)
    assert (at_5_s.sampled_at_s, at_5_s.coverage_ratio) == (4.0, 1.0)
    assert (number(at_10_s), at_10_s.sampled_at_s) == (7.0, 8.0)


def test_a_replica_ready_since_the_last_scrape_lowers_coverage() -> None:
    script = Script(2)
    wants = replace(WANTS, scrape_interval_s=4.0)
    rehearse(
        LOAD,
        contender(script, wants=wants),
        conditions=conditions(pool_setup(cold_start=ColdStart(samples_s=(9.0,)))),
        make_fleet=FleetSim,
    )
    # Ordered at 5, ready at 14: the decision at 15 knows it from the actuator, the scrape of 12 does not.
    pool = script.pool(2)
    assert [r.replica.state for r in pool.replicas] == [ReplicaState.READY] * 2
    assert pool.running_requests.coverage_ratio == 0.5


def test_result_accounts_replica_time_cost_peak_and_counts() -> None:
    result = play(Script(1, 3, 1), window_s=60.0)
    # Two ordered at 10, ready at 20. At 15 one is asked for: nothing moves until 20, when two of three ready go.
    assert at_s(result, "ordered") == [0.0, 10.0, 10.0]
    assert at_s(result, "draining") == [20.0, 20.0]
    assert result.replicas_peak == 3
    seconds = 60.0 + sum(s - 10.0 for s in at_s(result, "ended"))
    assert result.replica_seconds == {KEY: pytest.approx(seconds)}
    assert result.gpu_seconds == pytest.approx(2.0 * seconds)
    assert result.cost_usd == pytest.approx(seconds * 3.6 / 3600.0)
    counts = result.replicas_over_time
    assert (counts.seconds[12], counts.ready[12], counts.starting[12], counts.draining[12]) == (12.0, 1, 2, 0)
    assert len(counts.seconds) == len(counts.ready) == 61
    assert result.asked_changes == 2
    assert (result.outcomes.ended_ps > 0).all()


def test_without_a_window_time_counts_until_the_last_answer() -> None:
    result = play(Script(1))
    assert result.ended_s == result.outcomes.ended_ps.max() / 1e12 > LOAD.seconds
    assert result.replica_seconds[KEY] == pytest.approx(result.ended_s)


def test_decisions_are_kept_only_when_asked_for() -> None:
    script = Script(1)
    assert play(script, keep_decisions=False).decisions == ()
    assert len(script.seen) > 5


def test_requests_without_a_ready_replica_fail() -> None:
    script = Script(0)
    result = play(script)
    failed = result.outcomes.ended_ps < 0
    assert failed.sum() == (LOAD.arrival_ps > 5 * 10**12).sum()
    assert number(script.service(5).failed_per_s) == pytest.approx(2.0)
    assert number(script.service(2).slis[2].attained_ratio) < 1.0
    assert joint_ratio(outcomes_of(result.outcomes), POLICY.slos) == pytest.approx(1.0 - failed.mean())


def test_a_law_that_does_not_write_moves_nothing() -> None:
    result = play(Script(4, writes=False))
    assert result.replicas_peak == 1
    assert result.asked_changes == 0


def test_replicas_named_by_the_law_are_drained_first() -> None:
    result = play(contender(Script(3, 2, drain_first=("r0",)), initial_replicas=3))
    assert [e.member for e in result.events if e.kind == "draining"] == [0]


def test_contender_may_bring_its_own_initial_size() -> None:
    assert at_s(play(contender(Script(3), initial_replicas=3)), "ready") == [0.0] * 3


def own_law() -> RehearsalResult:
    heavy = [
        replace(a, at_s=a.at_s + 40.0)
        for a in steady(requests_per_s=14.0, seconds=60.0, prompt_tokens=1200, output_tokens=200)
    ]
    light = steady(requests_per_s=2.0, seconds=60.0, prompt_tokens=300, output_tokens=60)
    profiles = {POLICY.pools[0].profile: PROFILE}
    ours = contender(
        decide,
        wants=replace(WANTS, histories=(Quantity.REQUESTS_PER_S,)),
        forecaster=foresee,
        sizer=functools.partial(pool_capacities, profiles=profiles, elapsed_s=WANTS.period_s),
    )
    return play(ours, trace_of((*light, *heavy)), window_s=260.0)


def test_own_law_can_be_rehearsed_grows_and_shrinks_and_repeats_exactly() -> None:
    result, again = own_law(), own_law()
    asked = [d.pools[0].asked_replicas for d in result.decisions]
    assert max(asked) > 1
    assert asked[-1] == 1
    assert (result.outcomes.ended_ps > 0).all()
    assert result.decisions == again.decisions
    assert result.events == again.events
    assert result.replica_seconds == again.replica_seconds
    assert np.array_equal(result.outcomes.ended_ps, again.outcomes.ended_ps)


def test_forecaster_gets_history_of_the_load_and_the_horizon_of_the_cold_start() -> None:
    asked: list[dict[str, float]] = []

    def forecaster(histories, *, horizons_s, now_s):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        asked.append(dict(horizons_s))
        assert [h.quantity for h in histories] == list(Quantity)
        requests = histories[0]
        assert all(at_s <= now_s and at_s % requests.step_s == 0.0 for at_s, _ in requests.samples)
        assert all(rate == pytest.approx(2.0, abs=0.11) for _, rate in requests.samples)
        assert len(requests.samples) == max(0, int((now_s - WANTS.rate_window_s) // 2.0) + 1)
        return ()

    play(contender(Script(1), forecaster=forecaster))
    assert asked[0] == {"chat": 10.0}


def test_two_pools_are_scaled_and_charged_apart() -> None:
    small, large = KEY, PoolKey(service="chat", pool="large")
    two = replace(POLICY, pools=(pool_policy(small), pool_policy(large, gpus_per_replica=4, cost_usd_per_h=10.0)))
    script = Script(1, 2)
    setup = FleetSetup(pools=(pool_setup(small, initial=2), pool_setup(large)))
    result = rehearse(
        LOAD, contender(script), conditions=conditions(policy=two, setup=setup, window_s=40.0), make_fleet=FleetSim
    )
    first, second = script.service(0).pools
    assert [r.replica.name for r in first.replicas] == ["r0", "r1"]
    assert [r.replica.name for r in second.replicas] == ["r2"]
    in_flight = [number(p.gateway_in_flight_requests) for p in (first, second)]
    assert sum(in_flight) == 2.0  # those of 4.5 and of 5.0, the latter still in the front end
    assert all(n >= number(p.running_requests) for n, p in zip(in_flight, (first, second), strict=True))
    assert result.replica_seconds[large] == pytest.approx(40.0 + 30.0)  # a second one, ordered at 10
    assert result.gpu_seconds == pytest.approx(result.replica_seconds[small] + 4.0 * result.replica_seconds[large])


def test_rehearsal_refuses_a_setup_of_other_pools() -> None:
    two = replace(POLICY, pools=(*POLICY.pools, pool_policy(PoolKey(service="chat", pool="other"))))
    with pytest.raises(ValueError, match="pools must be those of the policy"):
        play(Script(1), policy=two)


def test_rehearsal_refuses_a_rate_window_shorter_than_a_scrape() -> None:
    with pytest.raises(ValueError, match=r"script: .* rate window"):
        play(contender(Script(1), wants=Wants(period_s=1.0, scrape_interval_s=15.0, rate_window_s=5.0)))
