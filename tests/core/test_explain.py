"""Sentences and counterfactuals: the field's words, the right numbers."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tidegate.core.explain import HOLD_UNKNOWN, counterfactual, sentence
from tidegate.terms.decision import PoolDecision, Reason, ReasonNote, Verdict
from tidegate.terms.fleet import Role
from tidegate.terms.policy import Mode

if TYPE_CHECKING:
    from tests.core.conftest import Fleet


def test_a_growth_names_quantile_horizon_capacity_and_limit(fleet: "type[Fleet]") -> None:
    decided = fleet.Case(arrivals=4.0, forecast=7.9, capacity={"main": 2.3}).pool()
    assert sentence(decided) == (
        "chat/main: grow 2 → 4: forecast p90 of 7.9 requests/s in the next 20 s needs 4 replicas at 2.3 requests/s "
        "each (limit: tpot); nothing held it back"
    )


def test_unknown_metrics_are_said_in_the_fixed_words_with_the_signal(fleet: "type[Fleet]") -> None:
    lost = fleet.lost()
    seen = fleet.pool_seen(running=lost, waiting=lost, finished=lost, pending=lost)
    text = sentence(fleet.Case(arrivals=lost, forecast=None, seen=[seen], attained=lost).pool())
    assert text.startswith(f"chat/main: {HOLD_UNKNOWN} at 2 replicas: ")
    assert "chat arrivals_per_s" in text
    assert ": unreachable" in text


def test_unknown_metrics_name_two_signals_and_count_the_others(fleet: "type[Fleet]") -> None:
    lost = fleet.lost()
    seen = fleet.pool_seen(running=lost, waiting=lost, finished=lost, pending=lost)
    decided = fleet.Case(arrivals=lost, forecast=None, seen=[seen], attained=lost).pool()
    text = sentence(decided)
    note = next(n for n in decided.notes if n.reason is decided.binding)
    names = [n for group in note.text.split("; ") for n in group.partition(": ")[0].split(", ")]
    assert len(names) > 3
    assert all(name in text for name in names[:2])
    assert not any(name in text for name in names[2:])
    assert f"; and {len(names) - 2} more" in text


def test_a_first_look_that_fails_says_its_reasons_once(fleet: "type[Fleet]") -> None:
    words = "chat arrivals_per_s: unreachable (a, b); chat/main waiting_requests: absent; chat ttft: stale"
    notes = tuple(
        ReasonNote(reason=r, before_replicas=1, after_replicas=1, text=words)
        for r in (Reason.STALE_METRICS, Reason.NO_OBSERVATION_YET)
    )
    decided = replace(fleet.Case().pool(), notes=notes, binding=Reason.NO_OBSERVATION_YET, verdict=Verdict.HOLD)
    said = sentence(decided)
    assert said.count("arrivals_per_s") == 1
    assert "chat arrivals_per_s: unreachable (a, b); chat/main waiting_requests: absent; and 1 more" in said
    assert said.endswith("no valid observation yet")


def test_each_limit_that_spoke_is_in_the_sentence(fleet: "type[Fleet]") -> None:
    grown = sentence(fleet.Case(arrivals=0.5, forecast=40.0).pool())
    assert "needs 20 replicas" in grown
    assert grown.endswith("the maximum is 8; at most 4 more per decision, so 6")
    held = sentence(fleet.Case(arrivals=0.5, forecast=0.5, history=fleet.window(1, 1, 1, 1, 2, 1, 1)).pool())
    assert held.endswith("the most wanted within the last 60 s was 2, so 2")


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_words(fleet: "type[Fleet]", reason: Reason) -> None:
    names = (
        "demand_requests_per_s", "replica_requests_per_s", "target_utilisation_ratio", "quantile", "horizon_s",
        "backlog_requests", "work_off_s", "ready_replicas", "limit_replicas", "window_s", "highest_replicas",
        "pending_replicas", "leaving_replicas", "failed_replicas",
    )  # fmt: skip
    note = ReasonNote(
        reason=reason, before_replicas=2, after_replicas=3, facts=tuple((n, 1.0) for n in names), text="why"
    )
    decided = PoolDecision(
        key=fleet.MAIN,
        role=Role.AGGREGATED,
        verdict=Verdict.HOLD,
        ready_replicas=2,
        starting_replicas=0,
        draining_replicas=0,
        asked_before_replicas=2,
        wanted_replicas=3,
        asked_replicas=2,
        binding=reason,
        notes=(note,),
    )
    said = sentence(decided)
    assert said.startswith("chat/main: hold")
    assert "\n" not in said
    told = counterfactual(decided)
    assert told.one_more
    assert told.one_fewer


@pytest.mark.parametrize("forecast", [0.7, 1.9, 3.0, 5.5, 9.1])
def test_counterfactual_of_demand_is_exact(fleet: "type[Fleet]", forecast: float) -> None:
    def case(rate: float) -> PoolDecision:
        return fleet.Case(
            arrivals=0.1, forecast=rate, capacity={"main": 1.7}, stabilisation_s=0.0, max_shrink=8, max_grow=8
        ).pool()

    decided = case(forecast)
    assert decided.asked_replicas == math.ceil(forecast / 1.7)
    told = counterfactual(decided)
    above = 1.7 * decided.asked_replicas
    assert told.one_more == f"demand above {above:.3g} requests/s"
    assert case(above).asked_replicas == decided.asked_replicas
    assert case(above * 1.001).asked_replicas == decided.asked_replicas + 1
    if decided.asked_replicas > 1:
        at_most = 1.7 * (decided.asked_replicas - 1)
        assert told.one_fewer == f"demand of at most {at_most:.3g} requests/s"
        assert case(at_most).asked_replicas == decided.asked_replicas - 1


def test_counterfactual_names_the_limit_when_demand_would_change_nothing(fleet: "type[Fleet]") -> None:
    full = fleet.Case(arrivals=30.0, forecast=30.0, asked={"main": 8}, seen=[fleet.pool_seen(ready=8)]).pool()
    assert counterfactual(full).one_more == "maxReplicas of 9"
    idle = fleet.Case(arrivals=0.0, forecast=0.0, asked={"main": 1}, seen=[fleet.pool_seen(ready=1)]).pool()
    assert counterfactual(idle).one_fewer == "minReplicas of 0"
    lost = fleet.Case(arrivals=fleet.lost(), forecast=0.1, asked={"main": 4}, seen=[fleet.pool_seen(ready=4)]).pool()
    assert "every required signal known" in counterfactual(lost).one_fewer


def test_advice_says_that_nothing_is_written(fleet: "type[Fleet]") -> None:
    assert "advice only" in sentence(fleet.Case(mode=Mode.ADVISE).pool())
