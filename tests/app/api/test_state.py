from collections.abc import Callable
from typing import Any

from tidegate.app.state import MAX_TICKS, LiveState, LiveView
from tidegate.terms.fleet import PoolKey

T0 = 1_790_000_000.0
Make = Callable[..., Any]


def _state() -> LiveState:
    return LiveState(started_at_s=T0, stale_after_s=60.0)


def test_state_is_troubled_before_the_first_observation() -> None:
    assert _state().trouble(T0) == ("no observation yet",)


def test_state_is_well_after_a_tick(make_record: Make) -> None:
    state = _state()
    state.publish(*make_record(T0))
    assert state.trouble(T0 + 60.0) == ()


def test_state_is_troubled_when_decisions_stop(make_record: Make) -> None:
    state = _state()
    state.publish(*make_record(T0))
    assert state.trouble(T0 + 61.0) == ("the last decision is 61 s old, must be at most 60 s",)


def test_state_names_prometheus_when_it_does_not_answer(make_record: Make) -> None:
    state = _state()
    state.publish(*make_record(T0, blind=True))
    assert state.trouble(T0) == ("Prometheus gives no answer (unreachable: connection refused)",)


def test_state_names_the_journal_when_it_cannot_be_written(make_record: Make) -> None:
    state = _state()
    record, _ = make_record(T0)
    state.publish(record, LiveView(journal_error="journal: no space left"))
    assert state.trouble(T0) == ("journal: no space left",)


def test_decisions_come_newest_first_and_by_pool(make_record: Make) -> None:
    state = _state()
    memory = None
    for i in range(5):
        record, view = make_record(T0 + 15.0 * i, memory=memory)
        memory = record.memory_after
        state.publish(record, view)
    assert [d.sequence for d in state.decisions(3)] == [5, 4, 3]
    assert len(state.decisions(10, PoolKey(service="chat", pool="main"))) == 5
    assert state.decisions(10, PoolKey(service="chat", pool="other")) == ()


def test_ticks_are_bounded(make_record: Make) -> None:
    state = _state()
    record, view = make_record(T0)
    for _ in range(MAX_TICKS + 10):
        state.publish(record, view)
    assert len(state.ticks(0.0)) == MAX_TICKS


def test_unknown_load_has_no_point_in_a_tick(make_record: Make) -> None:
    state = _state()
    state.publish(*make_record(T0, blind=True))
    point = state.ticks(0.0)[0].services["chat"]
    assert point.arrivals_per_s is None
    assert point.ahead is None
    assert dict(point.attained)["ttft"] is None


def test_listener_hears_each_publication(make_record: Make) -> None:
    state, heard = _state(), []
    state.listen(lambda record, _: heard.append(record.decision.sequence))
    state.publish(*make_record(T0))
    assert heard == [1]
