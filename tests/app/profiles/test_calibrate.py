"""A calibration finds the numbers a log was made with, and says which it cannot find."""

import dataclasses

import pytest
from tests.app.profiles.logs import PRIOR, TRUTH, made_cases, made_load

from tidegate.app.profiles.calibrate import calibrated, row_of
from tidegate.app.profiles.cases import Metric, cases_of
from tidegate.app.profiles.report import refusals, shortages, summaries
from tidegate.app.profiles.reuse import Reuse
from tidegate.sim.fleet import FleetSim


def test_calibration_finds_the_numbers_the_log_was_made_with() -> None:
    found = calibrated(made_cases(), PRIOR, reuse="none", make_fleet=FleetSim)

    assert found.profile.front_end_ps == pytest.approx(TRUTH.front_end_ps, rel=0.15)
    assert found.profile.step_base_ps == pytest.approx(TRUTH.step_base_ps, rel=0.2)
    assert found.profile.compute_factor_ratio == pytest.approx(TRUTH.compute_factor_ratio, rel=0.05)
    assert refusals(found, PRIOR) == ()
    held_out = {s.figure: s.mean_error_ratio for s in summaries(r for r in found.rows if r.case.held_out)}
    assert held_out["TTFT p50"] < 0.03
    assert held_out["TPOT p50"] < 0.02
    assert held_out["E2E mean"] < 0.02


def test_calibration_finds_the_prefix_reuse_of_conversations() -> None:
    truth = Reuse(turn_tokens=600.0, miss_ratio=0.3)
    cases = cases_of([made_load(10.0, truth=PRIOR, reuse=truth, count=60)], train=["chat 10"])

    found = calibrated(cases, PRIOR, settings=(), reuse="auto", make_fleet=FleetSim)

    [reuse] = found.reuse.values()
    assert reuse.turn_tokens == pytest.approx(600.0, rel=0.3)
    assert reuse.miss_ratio == pytest.approx(0.3, abs=0.12)


def test_calibration_keeps_the_prior_of_what_the_log_does_not_tell() -> None:
    # Short answers one by one: nobody is ever in flight beside another, so nothing shows what each costs.
    idle = [dataclasses.replace(c, arrival_s=c.arrival_s * 1000.0) for c in made_cases(truth=PRIOR)]

    found = calibrated(idle, PRIOR, settings=("front-end", "front-end-per-live"), reuse="none", make_fleet=FleetSim)

    per_live = next(f for f in found.found if f.name == "front-end-per-live")
    assert not per_live.told
    assert per_live.value == pytest.approx(0.0, abs=0.05)
    assert next(f for f in found.found if f.name == "front-end").told


def test_calibration_is_refused_when_the_loads_held_out_are_missed() -> None:
    slow = dataclasses.replace(PRIOR, kv_read_ps_per_token=PRIOR.kv_read_ps_per_token * 40)

    found = calibrated(made_cases(truth=slow), PRIOR, settings=("front-end",), reuse="none", make_fleet=FleetSim)

    assert any("TPOT p50 is off by" in reason for reason in refusals(found, PRIOR))


def test_calibration_is_refused_when_the_prior_is_of_something_else() -> None:
    twice = dataclasses.replace(
        PRIOR,
        step_base_ps=PRIOR.step_base_ps + 8_000_000_000,
        compute_factor_ratio=2.4,
    )

    found = calibrated(
        made_cases(truth=twice), PRIOR, settings=("step-base", "compute-factor"), reuse="none", make_fleet=FleetSim
    )

    said = " ".join(refusals(found, PRIOR))
    assert "an idle step takes" in said
    assert "computing a token takes" in said


def test_calibration_is_refused_when_requests_do_not_fit_the_engine() -> None:
    small = dataclasses.replace(PRIOR, max_context_tokens=1000)

    found = calibrated(made_cases(truth=PRIOR), small, settings=("front-end",), reuse="none", make_fleet=FleetSim)

    assert any("do not fit the modelled engine (longest 1000 tokens)" in reason for reason in refusals(found, PRIOR))


def test_row_says_how_far_off_a_profile_is() -> None:
    case = made_cases(truth=PRIOR)[0]

    exact = row_of(case, PRIOR, Reuse(), make_fleet=FleetSim)
    late = row_of(
        case,
        dataclasses.replace(PRIOR, front_end_ps=PRIOR.front_end_ps + 30_000_000_000),
        Reuse(),
        make_fleet=FleetSim,
    )

    assert exact.error_ratio(Metric.TTFT, 0.5) == pytest.approx(0.0, abs=1e-6)
    assert (late.error_ratio(Metric.TTFT, 0.5) or 0.0) > 0.2
    assert exact.error_ratio(Metric.ITL, None) is None


def test_few_requests_are_not_enough() -> None:
    few = [dataclasses.replace(c, until=20) for c in made_cases()]

    assert shortages(few) == ("40 requests to fit to, need 100", "40 requests to hold out, need 100")
    assert shortages(made_cases()) == ()


def test_only_load_is_split_in_time_and_named_loads_are_fitted_to() -> None:
    alone = cases_of([made_load(4.0)])
    assert [(c.first, c.until, c.held_out) for c in alone] == [(0, 48, False), (48, 80, True)]

    named = cases_of([made_load(q) for q in (2.0, 4.0, 8.0)], train=["chat 8"])
    assert [c.held_out for c in named] == [True, True, False]
