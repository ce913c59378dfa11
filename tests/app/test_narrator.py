"""The log of a controller: a line for each change, and none while nothing changes."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.actuate.xds import AdsStatus, GatewayStatus
from tidegate.app.journal_read import read
from tidegate.app.narrator import NO_GATEWAY_AFTER_S, Narrator
from tidegate.app.record import TickRecord
from tidegate.core.explain import sentence
from tidegate.terms.signal import Signal, UnknownReason, unknown

RECORDS = list(read(Path(__file__).parents[1] / "golden" / "scripted.journal.jsonl"))
FIRST = RECORDS[0]
T0 = FIRST.inputs.now_s

Told = list[tuple[str, str]]


def told_of(caplog: pytest.LogCaptureFixture) -> Told:
    found = [(r.levelname, r.getMessage()) for r in caplog.records if r.name == "tidegate.controller"]
    caplog.clear()
    return found


@pytest.fixture(autouse=True)
def _every_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tidegate.controller")


def at(record: TickRecord, now_s: float, **signals: Signal) -> TickRecord:
    """Return the record with other signals of its one service; `running_requests` goes into its pools."""
    seen = record.inputs.observation
    of_pools = {"running_requests": signals.pop("running_requests")} if "running_requests" in signals else {}
    services = tuple(
        replace(s, pools=tuple(replace(p, **of_pools) for p in s.pools), **signals)  # type: ignore[arg-type]
        for s in seen.services
    )
    return replace(record, inputs=replace(record.inputs, now_s=now_s, observation=replace(seen, services=services)))


def lost(reason: UnknownReason, detail: str = "") -> Signal:
    return unknown(reason, detail, now_s=T0, source="x")


def with_ready_replicas() -> TickRecord:
    return next(r for r in RECORDS if r.decision.pools[0].ready_replicas and not has_unknowns(r))


def has_unknowns(record: TickRecord) -> bool:
    return any(
        not hasattr(signal, "number")
        for s in record.inputs.observation.services
        for signal in (s.arrivals_per_s, *(p.running_requests for p in s.pools))
    )


def test_each_move_is_told_once_with_its_reasons(caplog: pytest.LogCaptureFixture) -> None:
    narrator = Narrator(None, started_at_s=T0)
    for record in RECORDS:
        narrator.tick(record)
    lines = [text for level, text in told_of(caplog) if level == "INFO" and text.startswith("decision=")]
    for record in RECORDS:
        pool = record.decision.pools[0]
        if pool.asked_replicas != pool.asked_before_replicas:
            assert lines.count(f"decision={record.decision.sequence} {sentence(pool)}") == 1
    assert len(lines) < len(RECORDS)


def test_nothing_is_told_of_a_tick_like_the_one_before(caplog: pytest.LogCaptureFixture) -> None:
    narrator = Narrator(None, started_at_s=T0)
    narrator.tick(FIRST)
    assert told_of(caplog)
    narrator.tick(FIRST)
    assert told_of(caplog) == []


def test_prometheus_that_is_gone_is_warned_of_once_and_told_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    record = with_ready_replicas()
    narrator = Narrator(None, started_at_s=T0)
    narrator.tick(record)
    told_of(caplog)
    gone = {
        "arrivals_per_s": lost(UnknownReason.UNREACHABLE, "connection refused"),
        "running_requests": lost(UnknownReason.ABSENT),
    }
    narrator.tick(at(record, T0, **gone))
    assert told_of(caplog) == [("WARNING", "Prometheus unknown: unreachable (connection refused)")]
    narrator.tick(at(record, T0, arrivals_per_s=lost(UnknownReason.BREAKER_OPEN)))
    assert told_of(caplog) == []
    narrator.tick(record)
    assert told_of(caplog) == [("INFO", "Prometheus known again")]


def test_engines_without_metrics_are_warned_of_by_pool(caplog: pytest.LogCaptureFixture) -> None:
    record = with_ready_replicas()
    key = record.decision.pools[0].key
    narrator = Narrator(None, started_at_s=T0)
    narrator.tick(record)
    told_of(caplog)
    narrator.tick(at(record, T0, running_requests=lost(UnknownReason.TOO_YOUNG)))
    assert told_of(caplog) == []
    narrator.tick(at(record, T0, running_requests=lost(UnknownReason.STALE, "40 s old")))
    assert told_of(caplog) == [("WARNING", f"engine metrics of {key} unknown: stale (40 s old)")]
    narrator.tick(record)
    assert told_of(caplog) == [("INFO", f"engine metrics of {key} known again")]


def test_a_controller_without_a_gateway_says_so_once_until_one_comes(caplog: pytest.LogCaptureFixture) -> None:
    gateways: list[GatewayStatus] = []
    narrator = Narrator(lambda: AdsStatus(version="1", gateways=tuple(gateways)), started_at_s=T0)
    one = GatewayStatus(
        node_id="g", connected=True, seen_ago_s=0.0, has_version=None, resources={}, waiting_for=(), refused=()
    )

    def tick(after_s: float) -> Told:
        narrator.tick(at(FIRST, T0 + after_s))
        return [line for line in told_of(caplog) if "gateway is" in line[1] or "gateway has" in line[1]]

    assert tick(NO_GATEWAY_AFTER_S - 1.0) == []
    warning = ("WARNING", "no gateway has been connected for 30 s: nobody is sent to")
    assert tick(NO_GATEWAY_AFTER_S) == [warning]
    assert tick(90.0) == []
    gateways[:] = [one]
    assert tick(100.0) == [("INFO", "a gateway is connected again")]
    gateways[:] = [replace(one, connected=False)]
    assert tick(100.0 + NO_GATEWAY_AFTER_S) == [warning]
