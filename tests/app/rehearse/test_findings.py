"""From plays to the document: medians over seeds, ranks, the gap closed, and rankings that flip."""

from typing import Any

import jsonschema
import pytest
from tests.app.rehearse.documents import document, figures

from tidegate.app.rehearse.document import Figures, KnobFacts
from tidegate.app.rehearse.document_schema import json_schema, plain
from tidegate.app.rehearse.findings import (
    AtSpeed,
    Finding,
    Match,
    Play,
    beaten_by,
    flips,
    forecast_pair,
    gap_closed,
    median_of,
    rank_of,
    results_of,
)
from tidegate.sim.faults import Fault, FaultName


def play(gpu_hours: float, *, attained: float = 0.99, seed: int = 0, **more: Any) -> Play:  # noqa: ANN401
    return Play(
        seed=seed, setting=4.0, figures=Figures(**(figures(attained, gpu_hours) | more)), attained={"ttft": attained}
    )


def found(name: str, matched: float | None, *, kind: str = "policy", **speeds: float | None) -> Finding:
    def match(hours: float | None) -> Match:
        return Match(reason="98 % is the most") if hours is None else Match(plays=(play(hours),))

    return Finding(
        name=name,
        kind=kind,
        summary="s",
        source="s",
        period_s=15.0,
        knob=KnobFacts(name="target", unit="requests", default=8.0),
        default=tuple(play(h, seed=k) for k, h in enumerate((10.0, 30.0, 20.0))),
        match=match(matched),
        at_speed={float(r[1:]) / 10: AtSpeed(default=(play(9.0),), match=match(h)) for r, h in speeds.items()},
        faulty=((Fault(name=FaultName.METRIC_RENAMED, start_s=5.0, duration_s=float("inf")), play(12.0)),),
    )


FOUND = (
    found("tidegate", 120.0, x9=150.0, x11=100.0),
    found("tidegate-reactive", 130.0, x9=140.0, x11=110.0),
    found("kpa", None, x9=None, x11=105.0),
    found("best-static", 200.0, kind="oracle", x9=220.0, x11=180.0),
    found("clairvoyant", 100.0, kind="oracle", x9=110.0, x11=90.0),
)


def test_results_fit_the_schema() -> None:
    jsonschema.validate(plain(document(policies=results_of(FOUND))), json_schema())


def test_figures_are_the_median_over_seeds_and_each_seed_is_kept() -> None:
    own = results_of(FOUND)[0]
    assert own.gpu_hours == 20.0
    assert [(s.seed, s.gpu_hours) for s in own.seeds] == [(0, 10.0), (1, 30.0), (2, 20.0)]
    assert own.attained == {"ttft": 0.99}


def test_gap_closed_is_the_share_between_best_static_and_fair_oracle() -> None:
    by_name = {r.name: r for r in results_of(FOUND)}
    assert by_name["tidegate"].gap_closed_ratio == pytest.approx(0.8)
    assert by_name["best-static"].gap_closed_ratio == 0.0
    assert by_name["clairvoyant"].gap_closed_ratio == 1.0
    assert (by_name["kpa"].gap_closed_ratio, by_name["kpa"].gap_closed_ratio_reason) == (
        None,
        "does not reach the target",
    )


@pytest.mark.parametrize(
    ("hours", "why"),
    [
        ({"x": 5.0, "clairvoyant": 4.0}, "best-static was not played"),
        ({"x": 5.0, "best-static": 4.0}, "clairvoyant was not played"),
        ({"x": 5.0, "best-static": None, "clairvoyant": 4.0}, "best-static does not reach the target"),
        ({"x": 5.0, "best-static": 4.0, "clairvoyant": None}, "clairvoyant does not reach the target"),
        ({"x": 5.0, "best-static": 4.0, "clairvoyant": 4.0}, "no gap: clairvoyant needs as many GPU hours"),
    ],
)
def test_gap_closed_says_why_it_is_not_known(hours: dict[str, float | None], why: str) -> None:
    closed, reason = gap_closed(hours, "x")
    assert closed is None
    assert reason is not None
    assert reason.startswith(why)


def test_policies_are_ranked_and_oracles_are_not() -> None:
    assert [r.rank for r in results_of(FOUND)] == [1, 2, None, None, None]
    assert rank_of("b", {"a": 5.0, "b": 5.0, "c": 4.0}) == 2


def test_ranking_that_changes_with_engine_speed_is_marked_on_both() -> None:
    by_name = {r.name: {c.capacity_ratio: c for c in r.capacity_check} for r in results_of(FOUND)}
    assert by_name["tidegate"][0.9].flips_with == ("tidegate-reactive",)
    assert by_name["tidegate-reactive"][0.9].flips_with == ("tidegate",)
    assert by_name["tidegate"][1.1].flips_with == ()
    # Out of reach before, between the two now.
    assert by_name["kpa"][1.1].flips_with == ("tidegate-reactive",)
    assert by_name["kpa"][0.9].matched_gpu_hours_reason == "98 % is the most"
    assert by_name["tidegate"][0.9].rank == 2
    assert by_name["best-static"][0.9].flips_with == ()


def test_equal_policies_do_not_flip() -> None:
    assert not flips("a", "b", {"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 2.0})
    assert not flips("a", "b", {"a": None, "b": None}, {"a": 1.0, "b": 2.0})
    assert flips("a", "b", {"a": 1.0, "b": None}, {"a": 2.0, "b": 1.0})


def test_median_of_a_figure_that_most_plays_lack_is_null() -> None:
    one, none = Figures(**figures(0.9, 1.0)), Figures(**(figures(0.9, 1.0) | {"ttft_p99_s": None}))
    assert median_of([one, none]).ttft_p99_s is None
    assert median_of([one, one, none]).ttft_p99_s == 1.4
    assert isinstance(median_of([one, one]).failed, int)


def test_fault_that_never_heals_lasts_for_null() -> None:
    (fault,) = results_of(FOUND)[0].faults
    assert (fault.fault, fault.start_s, fault.duration_s) == ("metric-renamed", 5.0, None)


def test_forecast_on_and_off_are_compared_or_it_says_why_not() -> None:
    pair, why = forecast_pair(results_of(FOUND))
    assert why is None
    assert pair is not None
    assert (pair.matched_gpu_hours_on, pair.matched_gpu_hours_off) == (120.0, 130.0)
    assert forecast_pair(results_of(FOUND[:1])) == (None, "tidegate-reactive was not played")


def test_policies_below_the_fair_oracle_are_named() -> None:
    oracle = found("clairvoyant", 10.0, kind="oracle")
    assert beaten_by([oracle, found("kpa", 10.0), found("wva-v2", None)]) is None
    assert beaten_by([found("kpa", 9.0)]) is None
    sentence = beaten_by([oracle, found("kpa", 9.0), found("hpa-queue", 12.0)])
    assert sentence is not None
    assert sentence.startswith("The fair oracle is beaten by kpa:")
