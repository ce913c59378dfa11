from collections.abc import Callable
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tidegate.app.alert_desk import AlertDesk
from tidegate.app.self_metrics import SelfMetrics
from tidegate.app.state import LiveState
from tidegate.catalogue.own import OWN

T0 = 1_790_000_000.0
Make = Callable[..., Any]


def _samples(metrics: SelfMetrics) -> dict[str, list[Sample]]:
    families = text_string_to_metric_families(metrics.text().decode())
    return {s.name: [x for x in f.samples if x.name == s.name] for f in families for s in f.samples}


def _metrics(*, journal: bool = True) -> tuple[LiveState, SelfMetrics]:
    state = LiveState(started_at_s=T0)
    return state, SelfMetrics(state, journal_writable=lambda: journal)


def test_every_catalogued_metric_is_exposed_with_its_type_and_no_other(make_record: Make) -> None:
    state, metrics = _metrics()
    state.publish(*make_record(T0))
    families = {f.name: f for f in text_string_to_metric_families(metrics.text().decode())}
    want = {m.name.removesuffix("_total"): str(m.kind) for m in OWN}
    assert {name: f.type for name, f in families.items()} == want
    assert all(f.documentation for f in families.values())


def test_labels_are_the_catalogues(make_record: Make) -> None:
    state, metrics = _metrics()
    state.publish(*make_record(T0, blind=True))
    state.publish(*make_record(T0 + 15.0))
    labels = {m.name: set(m.labels) for m in OWN if not m.buckets}
    seen = _samples(metrics)
    assert len(seen) > 10
    for name, samples in seen.items():
        for sample in samples:
            if name in labels:
                assert set(sample.labels) == labels[name], name


def test_unknown_signal_has_no_sample_but_a_named_flag(make_record: Make) -> None:
    state, metrics = _metrics()
    state.publish(*make_record(T0, blind=True))
    seen = _samples(metrics)
    assert "tidegate_arrivals_per_s" not in seen
    assert "tidegate_pool_wanted_replicas" not in seen
    assert "tidegate_slo_attained_ratio" not in seen
    flags = {
        (s.labels["pool"], s.labels["signal"], s.labels["reason"]): s.value for s in seen["tidegate_signal_unknown"]
    }
    assert flags["", "arrivals_per_s", "unreachable"] == 1.0
    assert flags["main", "running_requests", "unreachable"] == 1.0


def test_decisions_are_counted_by_verdict_and_reason(make_record: Make) -> None:
    state, metrics = _metrics()
    memory = None
    for i in range(3):
        record, view = make_record(T0 + 15.0 * i, memory=memory)
        memory = record.memory_after
        state.publish(record, view)
    assert sum(s.value for s in _samples(metrics)["tidegate_decisions_total"]) == 3.0


def test_counts_forecast_and_tick_time_are_those_of_the_record(make_record: Make) -> None:
    state, metrics = _metrics()
    record, view = make_record(T0, ready=2, starting=1, load=4.0)
    state.publish(record, view)
    seen = _samples(metrics)
    replicas = {s.labels["state"]: s.value for s in seen["tidegate_pool_replicas"]}
    assert (replicas["ready"], replicas["starting"], replicas["failed"]) == (2.0, 1.0, 0.0)
    assert seen["tidegate_pool_asked_replicas"][0].value == record.decision.pools[0].asked_replicas
    forecast = {s.labels["quantile"]: s.value for s in seen["tidegate_forecast_requests_per_s"]}
    assert forecast["0.9"] == record.inputs.forecasts[0].peak(0.9)
    assert seen["tidegate_tick_duration_seconds_count"][0].value == 1.0
    assert seen["tidegate_tick_duration_seconds_sum"][0].value == 0.035
    buckets = {s.labels["le"]: s.value for s in seen["tidegate_tick_duration_seconds_bucket"]}
    assert (buckets["0.025"], buckets["0.05"], buckets["+Inf"]) == (0.0, 1.0, 1.0)


def test_unwritable_journal_is_zero() -> None:
    assert _samples(_metrics(journal=False)[1])["tidegate_journal_writable"][0].value == 0.0
    assert _samples(_metrics()[1])["tidegate_journal_writable"][0].value == 1.0


def test_violations_are_counted_and_zero_when_there_are_none(make_record: Make) -> None:
    state, metrics = _metrics()
    state.publish(*make_record(T0))
    assert _samples(metrics)["tidegate_contract_violations"][0].value == 0.0
    state.publish(*make_record(T0 + 15.0, violations=("kv_used_ratio: no series",)))
    assert _samples(metrics)["tidegate_contract_violations"][0].value == 1.0


def test_alert_outcomes_are_counted(make_record: Make) -> None:
    state = LiveState(started_at_s=T0)
    desk = AlertDesk(make_record(T0)[0].inputs.policies, token=lambda: "x" * 16)
    desk.counts["floor", "in_force"] += 2
    metrics = SelfMetrics(state, journal_writable=lambda: True, desk=desk)
    (sample,) = _samples(metrics)["tidegate_alert_actions_total"]
    assert (sample.labels, sample.value) == ({"kind": "floor", "outcome": "in_force"}, 2.0)
