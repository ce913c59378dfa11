"""What an alert may ask for, and what becomes of it when it comes twice, late or after its end."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies import service_policy

from tidegate.alerts.actions import (
    DEFAULT_FOR_S,
    MAX_FOR_S,
    MAX_INTERVENTIONS,
    Outcome,
    Standing,
    interventions,
    reconcile,
)
from tidegate.alerts.webhook import AlertNotice, AlertStatus
from tidegate.terms.fleet import PoolKey
from tidegate.terms.observation import Intervention, InterventionKind

NOW_S = 1_000_000.0
KEY = PoolKey(service="chat", pool="main")


def notice(
    *,
    status: AlertStatus = AlertStatus.FIRING,
    starts_at_s: float = NOW_S - 10,
    fingerprint: str = "f1",
    asks: dict[str, str] | None = None,
    **labels: str,
) -> AlertNotice:
    asked = {"alertname": "HighTtft", "tidegate_action": "freeze", "tidegate_pool": "chat/main"} | (asks or {}) | labels
    return AlertNotice(
        status=status,
        fingerprint=fingerprint,
        starts_at_s=starts_at_s,
        ends_at_s=NOW_S - 5 if status is AlertStatus.RESOLVED else None,
        labels=tuple(sorted((k, v) for k, v in asked.items() if v)),
        group_key="g",
        partial=False,
    )


def after(*notices: AlertNotice, standing: Standing | None = None, now_s: float = NOW_S) -> Outcome:
    return reconcile(notices, [service_policy()], standing or Standing(), now_s=now_s)


def test_reconcile_freezes_the_pool_an_alert_names() -> None:
    outcome = after(notice(tidegate_for="10m"))
    assert outcome.refusals == ()
    (found,) = outcome.standing.interventions
    assert found == Intervention(
        kind=InterventionKind.FREEZE,
        pool=KEY,
        replicas=None,
        expires_at_s=NOW_S - 10 + 600,
        origin="alertmanager:HighTtft:f1@999990.000",
    )


def test_reconcile_sets_a_floor_with_its_replicas() -> None:
    (found,) = after(notice(tidegate_action="floor", tidegate_replicas="4")).standing.interventions
    assert (found.kind, found.replicas, found.expires_at_s) == (InterventionKind.FLOOR, 4, NOW_S - 10 + DEFAULT_FOR_S)


def test_reconcile_keeps_control_characters_out_of_what_people_read() -> None:
    (frozen,) = after(notice(alertname="a\x1b[2J\nb\x07", tidegate_action="freeze")).standing.interventions
    assert frozen.origin.startswith("alertmanager:a?[2J?b?:")
    (refused,) = after(notice(alertname="a\x1b\n", tidegate_action="boom")).refusals
    assert refused.alertname == "a??"


def test_reconcile_ignores_alerts_without_an_action() -> None:
    assert after(notice(tidegate_action="")) == Outcome(standing=Standing())


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ({"tidegate_action": "scale"}, "tidegate_action: must be freeze or floor, got 'scale'"),
        ({"tidegate_pool": "chat/other"}, "tidegate_pool: must be service/pool of a policy in force, got 'chat/other'"),
        ({"tidegate_pool": ""}, "tidegate_pool"),
        ({"tidegate_action": "floor"}, "tidegate_replicas: must be a whole number within 1..8"),
        ({"tidegate_action": "floor", "tidegate_replicas": "9"}, "(max_replicas of chat/main), got '9'"),
        ({"tidegate_action": "floor", "tidegate_replicas": "0"}, "got '0'"),
        ({"tidegate_action": "floor", "tidegate_replicas": "-1"}, "got '-1'"),
        ({"tidegate_action": "floor", "tidegate_replicas": "٣"}, "got '٣'"),
        ({"tidegate_action": "floor", "tidegate_replicas": "4.0"}, "got '4.0'"),
        ({"tidegate_for": "1h1s"}, "tidegate_for: must be a duration like 90s, 10m or 1h, at most 1h, got '1h1s'"),
        ({"tidegate_for": "0s"}, "tidegate_for"),
        ({"tidegate_for": "10"}, "tidegate_for"),
        ({"tidegate_for": "5s"}, "the alert began 10 s ago, longer than 5 s"),
    ],
)
def test_reconcile_refuses_and_reports_what_it_may_not_do(labels: dict[str, str], reason: str) -> None:
    outcome = after(notice(asks=labels))
    assert outcome.standing.interventions == ()
    (refusal,) = outcome.refusals
    assert refusal.alertname == "HighTtft"
    assert reason in refusal.reason


def test_reconcile_accepts_the_border_of_an_hour_and_of_max_replicas() -> None:
    (found,) = after(notice(tidegate_action="floor", tidegate_replicas="8", tidegate_for="1h")).standing.interventions
    assert (found.replicas, found.expires_at_s) == (8, NOW_S - 10 + MAX_FOR_S)


def test_reconcile_changes_nothing_when_the_same_body_comes_again() -> None:
    first = after(notice())
    again = after(notice(), notice(), standing=first.standing, now_s=NOW_S + 300)
    assert again.standing == first.standing


def test_reconcile_ends_an_intervention_at_its_expiry_though_the_alert_still_fires() -> None:
    first = after(notice(tidegate_for="1m"))
    expires_at_s = first.standing.interventions[0].expires_at_s
    assert after(standing=first.standing, now_s=expires_at_s - 0.001).standing.interventions
    later = after(notice(tidegate_for="1m"), standing=first.standing, now_s=expires_at_s)
    assert later.standing.interventions == ()
    assert "began" in later.refusals[0].reason


def test_reconcile_does_not_prolong_an_alert_dated_in_the_future_by_repeats() -> None:
    ahead = notice(starts_at_s=NOW_S + 500, tidegate_for="10m")
    first = after(ahead)
    assert first.standing.interventions[0].expires_at_s == NOW_S + 600
    assert after(ahead, standing=first.standing, now_s=NOW_S + 300).standing == first.standing


def test_reconcile_removes_on_resolved_and_stays_removed_when_an_old_copy_comes_late() -> None:
    first = after(notice())
    ended = after(notice(status=AlertStatus.RESOLVED), standing=first.standing)
    assert ended.standing.interventions == ()
    late = after(notice(), standing=ended.standing, now_s=NOW_S + 5)
    assert late.standing.interventions == ()
    assert late.refusals == ()


def test_reconcile_takes_a_new_firing_of_a_resolved_alert() -> None:
    ended = after(notice(), notice(status=AlertStatus.RESOLVED))
    assert ended.standing.interventions == ()
    assert after(notice(starts_at_s=NOW_S - 1), standing=ended.standing).standing.interventions


def test_reconcile_forgets_an_end_once_its_firing_could_no_longer_act() -> None:
    ended = after(notice(status=AlertStatus.RESOLVED))
    assert ended.standing.ended
    assert after(standing=ended.standing, now_s=NOW_S - 5 + MAX_FOR_S).standing == Standing()


def test_reconcile_ends_a_firing_whose_start_was_moved_back_since() -> None:
    first = after(notice(starts_at_s=NOW_S - 10))
    ended = after(notice(status=AlertStatus.RESOLVED, starts_at_s=NOW_S - 40), standing=first.standing)
    assert ended.standing.interventions == ()


def test_reconcile_does_not_end_a_newer_firing_by_a_late_copy_of_an_older_end() -> None:
    newer = after(notice(starts_at_s=NOW_S - 1))
    assert after(notice(status=AlertStatus.RESOLVED), standing=newer.standing).standing.interventions


def test_reconcile_ends_only_the_alert_that_was_resolved() -> None:
    both = after(notice(), notice(fingerprint="f2"))
    left = after(notice(status=AlertStatus.RESOLVED), standing=both.standing).standing.interventions
    assert [i.origin for i in left] == ["alertmanager:HighTtft:f2@999990.000"]


def test_reconcile_keeps_interventions_of_other_origins_until_they_expire() -> None:
    own = Intervention(
        kind=InterventionKind.FREEZE, pool=KEY, replicas=None, expires_at_s=NOW_S + 60, origin="operator"
    )
    assert interventions([notice(status=AlertStatus.RESOLVED)], [service_policy()], [own], now_s=NOW_S) == (own,)
    assert interventions([], [service_policy()], [own], now_s=NOW_S + 60) == ()


def test_reconcile_drops_interventions_of_a_pool_that_left_the_policies() -> None:
    first = after(notice())
    assert reconcile([], [], first.standing, now_s=NOW_S).standing.interventions == ()


def test_reconcile_bounds_how_many_are_in_force() -> None:
    many = [notice(fingerprint=f"f{i:03}") for i in range(MAX_INTERVENTIONS + 3)]
    outcome = after(*many)
    assert len(outcome.standing.interventions) == MAX_INTERVENTIONS
    assert len(outcome.refusals) == 3
    assert "64 interventions are in force already" in outcome.refusals[0].reason


@given(order=st.permutations(range(6)), repeats=st.integers(1, 3))
def test_reconcile_gives_the_same_result_in_any_order_of_one_body(order: list[int], repeats: int) -> None:
    body = [notice(fingerprint=f"f{i}") for i in range(4)]
    body += [replace(body[0], status=AlertStatus.RESOLVED), replace(body[1], status=AlertStatus.RESOLVED)]
    expected = after(*body).standing
    assert after(*[body[i] for i in order] * repeats).standing == expected
