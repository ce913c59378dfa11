"""Scores of outcomes written down by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sim.stage import KEY, SLOS, conditions, contender, play, pool_setup

from tidegate.baselines.law import LawMemory
from tidegate.baselines.schedule import Schedule, scheduled
from tidegate.perf.profile import PS_PER_S
from tidegate.sim.arrivals import Arrival, steady
from tidegate.sim.counts import ReplicaCounts
from tidegate.sim.fast.fleet import FastFleet
from tidegate.sim.outcome import joint_ratio, outcomes_of
from tidegate.sim.policies import Wants
from tidegate.sim.rehearse import RehearsalResult, rehearse
from tidegate.sim.sample import Outcomes
from tidegate.sim.score import joint, met, score
from tidegate.sim.trace import Trace, trace_of
from tidegate.terms.slo import Indicator, Slo

MS = PS_PER_S // 1000
TTFT = Slo(name="ttft", indicator=Indicator.TTFT, objective_ratio=0.95, threshold_s=0.5, window_s=3600.0)
TPOT = Slo(name="tpot", indicator=Indicator.TPOT, objective_ratio=0.95, threshold_s=0.05, window_s=3600.0)
E2E = Slo(name="e2e", indicator=Indicator.E2E, objective_ratio=0.95, threshold_s=2.0, window_s=3600.0)
UP = Slo(name="up", indicator=Indicator.AVAILABILITY, objective_ratio=0.999, threshold_s=None, window_s=3600.0)


def outcomes(*rows: tuple[int, int, int, int]) -> Outcomes:
    """Return requests as (arrival, first token, end, output tokens), times in ps."""
    arrival, first, ended, output = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    trace = Trace(name="hand", arrival_ps=arrival, prompt_tokens=np.full_like(arrival, 100), output_tokens=output)
    return Outcomes(trace=trace, first_ps=first, ended_ps=ended, member=np.zeros_like(arrival))


def nothing() -> Outcomes:
    none = np.zeros(0, dtype=np.int64)
    trace = Trace(name="none", arrival_ps=none, prompt_tokens=none, output_tokens=none)
    return Outcomes(trace=trace, first_ps=none, ended_ps=none, member=none)


def result(what: Outcomes, *, ended_s: float = 10.0) -> RehearsalResult:
    none = np.zeros(0, dtype=np.int64)
    return RehearsalResult(
        outcomes=what,
        replica_seconds={KEY: 3600.0},
        gpu_seconds=7200.0,
        cost_usd=3.6,
        replicas_peak=4,
        events=(),
        replicas_over_time=ReplicaCounts(seconds=np.zeros(0), ready=none, starting=none, draining=none),
        decisions=(),
        ended_s=ended_s,
        decide_calls=9,
        asked_changes=3,
    )


def test_met_counts_a_request_that_keeps_both_latencies() -> None:
    one = outcomes((0, 400 * MS, 400 * MS + 10 * 40 * MS, 11))
    assert {name: ok.tolist() for name, ok in met(one, (TTFT, TPOT)).items()} == {"ttft": [True], "tpot": [True]}
    assert joint(one, (TTFT, TPOT)).tolist() == [True]


@pytest.mark.parametrize(
    ("late_ps", "kept"), [(0, True), (1, False), (-1, True)], ids=["at it", "a picosecond over", "a picosecond under"]
)
def test_met_compares_each_latency_exactly_at_the_threshold(late_ps: int, *, kept: bool) -> None:
    arrival = 7 * PS_PER_S + 1
    first = arrival + 500 * MS
    tpot = outcomes((arrival, first, first + 30 * 50 * MS + late_ps, 31))
    ttft = outcomes((arrival, first + late_ps, first + late_ps, 1))
    e2e = outcomes((arrival, first, arrival + 2000 * MS + late_ps, 400))
    assert met(ttft, (TTFT,))["ttft"].tolist() == [kept]
    assert met(tpot, (TPOT,))["tpot"].tolist() == [kept]
    assert met(e2e, (E2E,))["e2e"].tolist() == [kept]


@given(threshold_ps=st.integers(1, 10**14), gaps=st.integers(1, 10_000_000), over_ps=st.integers(-(10**6), 10**6))
def test_met_equals_the_comparison_in_whole_numbers_of_any_size(threshold_ps: int, gaps: int, over_ps: int) -> None:
    took_ps = min(threshold_ps * gaps + over_ps, 2**62)
    if took_ps < 0:
        return
    slo = replace(TPOT, threshold_s=threshold_ps / PS_PER_S)
    threshold = round((slo.threshold_s or 0.0) * PS_PER_S)
    assert bool(met(outcomes((0, 0, took_ps, gaps + 1)), (slo,))["tpot"][0]) is (took_ps <= threshold * gaps)


def test_met_lets_one_token_answers_meet_tpot_but_not_ttft() -> None:
    late = outcomes((0, 9 * PS_PER_S, 9 * PS_PER_S, 1))
    assert {name: bool(ok[0]) for name, ok in met(late, (TTFT, TPOT)).items()} == {"ttft": False, "tpot": True}


@pytest.mark.parametrize(
    ("first_ps", "what"), [(-1, "refused"), (100 * MS, "cut after its first token"), (-1, "not answered in time")]
)
def test_met_misses_everything_when_the_answer_never_came(first_ps: int, what: str) -> None:
    failed = outcomes((0, first_ps, -1, 1), (0, first_ps, -1, 50))
    for name, ok in met(failed, (TTFT, TPOT, E2E, UP)).items():
        assert not ok.any(), (what, name)
    assert not joint(failed, ()).any()


def test_met_judges_itl_by_the_mean_between_tokens() -> None:
    one = outcomes((0, 0, 30 * 50 * MS + 1, 31))
    assert met(one, (replace(TPOT, indicator=Indicator.ITL),)) == met(one, (TPOT,))


def test_score_takes_objectives_jointly_and_not_by_the_worst_of_them() -> None:
    late_first = (0, 900 * MS, 900 * MS + 10 * 40 * MS, 11)
    slow_after = (0, 400 * MS, 400 * MS + 10 * 60 * MS, 11)
    good = (0, 400 * MS, 400 * MS + 10 * 40 * MS, 11)
    refused = (0, -1, -1, 11)
    scored = score(result(outcomes(late_first, slow_after, good, refused)), (TTFT, TPOT, UP))
    assert scored.attained == {"ttft": 0.5, "tpot": 0.5, "up": 0.75}
    assert scored.attainment_ratio == 0.25
    assert scored.failed == 1
    assert scored.requests == 4


def test_score_takes_goodput_over_the_whole_time_and_passes_costs_on() -> None:
    good = (0, 400 * MS, 400 * MS + 10 * 40 * MS, 11)
    scored = score(result(outcomes(good, good, (0, -1, -1, 3)), ended_s=8.0), (TTFT, TPOT))
    assert scored.goodput_per_s == pytest.approx(0.25)
    assert (scored.gpu_hours, scored.cost_usd, scored.scale_events, scored.replicas_peak) == (2.0, 3.6, 3, 4)


def test_score_takes_percentiles_of_answers_alone() -> None:
    rows = [(0, k * MS, k * MS + 10 * k * MS, 11) for k in range(1, 101)]
    lost = (0, 90_000 * MS, -1, 11)
    single = (0, 50 * MS, 50 * MS, 1)
    scored = score(result(outcomes(*rows, lost, single)), (TTFT, TPOT))
    seen = np.array([*range(1, 101), 50]) / 1000.0
    assert scored.ttft_s == pytest.approx(tuple(np.quantile(seen, [0.5, 0.95, 0.99])))
    assert scored.tpot_s == pytest.approx(tuple(np.quantile(seen[:100], [0.5, 0.95, 0.99])))


def test_score_has_no_percentiles_when_nothing_was_answered() -> None:
    scored = score(result(outcomes((0, -1, -1, 5))), (TTFT, TPOT))
    assert (scored.ttft_s, scored.tpot_s) == ((None, None, None), (None, None, None))
    assert (scored.attainment_ratio, scored.goodput_per_s) == (0.0, 0.0)


def test_score_has_no_tpot_when_all_answers_have_one_token() -> None:
    scored = score(result(outcomes((0, 50 * MS, 50 * MS, 1))), (TTFT, TPOT))
    assert scored.tpot_s == (None, None, None)
    assert scored.attainment_ratio == 1.0


def test_score_of_no_request_attains_all() -> None:
    scored = score(result(nothing(), ended_s=0.0), (TTFT, TPOT))
    assert (scored.attainment_ratio, scored.attained, scored.failed) == (1.0, {"ttft": 1.0, "tpot": 1.0}, 0)


def test_score_of_a_rehearsal_agrees_with_its_outcomes_one_by_one() -> None:
    rng = np.random.default_rng(5)
    load = trace_of(
        [
            Arrival(at_s=float(at), prompt_tokens=int(rng.integers(1, 4000)), output_tokens=int(rng.integers(1, 90)))
            for at in np.cumsum(rng.exponential(0.22, 300))
        ]
    )
    plan = Schedule(step_s=5.0, counts={KEY: (1, 1, 2, 1)})
    law = contender(scheduled(plan), start=LawMemory(), wants=Wants(period_s=5.0, scrape_interval_s=5.0))
    played = play(law, load)
    scored = score(played, SLOS)
    assert 0.05 < scored.attainment_ratio < 0.999  # else it says nothing
    assert scored.attainment_ratio == joint_ratio(outcomes_of(played.outcomes), SLOS)
    assert scored.gpu_hours == pytest.approx(sum(played.replica_seconds.values()) * 2 / 3600.0)


def test_gpu_time_runs_from_the_order_to_the_end_of_drain() -> None:
    # One replica until 30 s, a second ordered at 5 s (ready at 15 s), asked to go at 20 s while it still answers.
    load = trace_of(steady(requests_per_s=4.0, seconds=30.0, prompt_tokens=200, output_tokens=100))
    plan = Schedule(step_s=5.0, counts={KEY: (1, 2, 2, 2, 1)})
    law = contender(scheduled(plan), start=LawMemory(), wants=Wants(period_s=5.0, scrape_interval_s=5.0))
    played = rehearse(load, law, conditions=conditions(pool_setup()), make_fleet=FastFleet)
    ended = {e.member: e.at_ps / PS_PER_S for e in played.events if e.kind == "ended"}
    assert ended[min(ended)] > 20.0  # it drained first
    kinds = {(e.member, e.kind): e.at_ps / PS_PER_S for e in played.events}
    gone = min(ended)
    lived = {m: ended.get(m, played.ended_s) - max(0.0, kinds.get((m, "ordered"), 0.0)) for m in (0, 1)}
    assert gone in lived
    assert played.replica_seconds[KEY] == pytest.approx(sum(lived.values()))
    assert score(played, SLOS).gpu_hours == pytest.approx(2 * sum(lived.values()) / 3600.0)
