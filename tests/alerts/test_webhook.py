"""Reading Alertmanager bodies, recorded and broken."""

import json
from pathlib import Path

import pytest

from tidegate.alerts.webhook import MAX_ALERTS, MAX_BODY_BYTES, AlertStatus, WebhookBodyError, authorised, parse
from tidegate.terms.errors import BadInputError

DATA = Path(__file__).parent.parent / "data" / "alertmanager"
STARTED_AT_S = 1796057640.742434


def body(**changes: object) -> bytes:
    document = json.loads((DATA / "firing.json").read_text())
    return json.dumps(document | changes).encode()


def with_alert(**changes: object) -> bytes:
    document = json.loads((DATA / "firing.json").read_text())
    document["alerts"][0] |= changes
    return json.dumps(document).encode()


def test_parse_reads_every_alert_of_a_recorded_firing_body() -> None:
    first, second = parse((DATA / "firing.json").read_bytes())
    assert first.status is AlertStatus.FIRING
    assert first.fingerprint == "3eb2660dd4440647"
    assert first.starts_at_s == pytest.approx(STARTED_AT_S, abs=1e-5)
    assert first.label("pod") == "a"
    assert first.label("nothing") is None
    assert second.label("pod") == "b"
    assert first.key != second.key
    assert not first.partial


def test_parse_reads_year_1_as_no_end_while_firing() -> None:
    assert [notice.ends_at_s for notice in parse((DATA / "firing.json").read_bytes())] == [None, None]


def test_parse_tells_resolved_members_of_a_firing_body_apart() -> None:
    resolved, firing = parse((DATA / "firing_with_resolved.json").read_bytes())
    assert resolved.status is AlertStatus.RESOLVED
    assert resolved.ends_at_s == pytest.approx(STARTED_AT_S + 19.26, abs=0.01)
    assert firing.status is AlertStatus.FIRING


def test_parse_ignores_keys_it_does_not_know() -> None:
    assert len(parse(body(notificationReason="repeat", routeLabels={"a": 1}))) == 2
    assert len(parse(with_alert(silencedBy=["x"]))) == 2


def test_parse_marks_notices_partial_when_alerts_were_truncated() -> None:
    assert all(notice.partial for notice in parse(body(truncatedAlerts=3)))


@pytest.mark.parametrize(
    ("bad", "names"),
    [
        (b"", "must be JSON"),
        (b"<html>", "must be JSON"),
        (b"\xff\xfe\x00", "must be JSON"),
        (b"[" * 100_000, "must be JSON"),
        (b"[]", "top level: must be an object"),
        (body(version="3"), "version: must be \"4\", got '3'"),
        (body(version=4), "version"),
        (body(alerts={}), "alerts: must be a list"),
        (body(alerts=[7]), "alerts[0]: must be an object, got 7"),
        (body(alerts=[{}] * (MAX_ALERTS + 1)), "alerts: must be at most 1000 entries, got 1001"),
        (body(truncatedAlerts="1"), "truncatedAlerts: must be a whole number"),
        (body(groupKey=1), "groupKey: must be a text"),
        (with_alert(status="maybe"), "alerts[0].status: must be firing or resolved, got 'maybe'"),
        (with_alert(status=["firing"]), "alerts[0].status"),
        (with_alert(fingerprint=""), "alerts[0].fingerprint: must be 1 to 64 letters and digits"),
        (with_alert(fingerprint="a:b@c"), "alerts[0].fingerprint"),
        (with_alert(startsAt="yesterday"), "alerts[0].startsAt: must be an RFC 3339 time, got 'yesterday'"),
        (with_alert(startsAt="2026-11-30T16:54:00"), "alerts[0].startsAt: must be an RFC 3339 time with a zone"),
        (with_alert(startsAt="0001-01-01T00:00:00Z"), "alerts[0].startsAt: must be a time later than year 1"),
        (with_alert(labels={"a": 1}), "alerts[0].labels.a: must be a text, got 1"),
        (with_alert(labels={"a": "x" * 5000}), "alerts[0].labels.a: must be at most 1024 characters, got 5000"),
        (with_alert(labels={"a": "\ud800"}), "alerts[0].labels.a: must be text that UTF-8 can carry, got '\\ud800'"),
        (with_alert(labels={"\udc00": "a"}), "alerts[0].labels: must be text that UTF-8 can carry"),
        (body(groupKey="\ud83d"), "groupKey: must be text that UTF-8 can carry"),
        (with_alert(labels={f"l{i}": "" for i in range(200)}), "alerts[0].labels: must be at most 128 labels"),
    ],
)
def test_parse_names_the_field_that_is_wrong(bad: bytes, names: str) -> None:
    with pytest.raises(WebhookBodyError) as caught:
        parse(bad)
    assert isinstance(caught.value, BadInputError)
    assert names in str(caught.value)
    assert len(str(caught.value)) < 300


def test_parse_refuses_a_body_over_the_limit_before_reading_it() -> None:
    with pytest.raises(WebhookBodyError, match="size: must be at most"):
        parse(b" " * (MAX_BODY_BYTES + 1))


@pytest.mark.parametrize("header", ["Bearer s3cret", "bearer s3cret", "Bearer  s3cret "])
def test_authorised_admits_the_right_token(header: str) -> None:
    assert authorised(header, "s3cret")


@pytest.mark.parametrize(
    "header",
    [None, "", "s3cret", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3cret2", "Basic s3cret", "Bearer é\udcff"],
)
def test_authorised_refuses_anything_else(header: str | None) -> None:
    assert not authorised(header, "s3cret")


@pytest.mark.parametrize("header", ["Bearer ", "Bearer", "Bearer x", None])
def test_authorised_admits_nobody_when_no_token_is_set(header: str | None) -> None:
    assert not authorised(header, "")
