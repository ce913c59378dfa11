"""Harms that other autoscalers did in the field; each must not happen here."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tidegate.core.decide import decide
from tidegate.terms.decision import Memory, PoolMemory, Reason, Verdict
from tidegate.terms.policy import Mode
from tidegate.terms.signal import UnknownReason, reading

if TYPE_CHECKING:
    from tests.core.conftest import Fleet


def test_missing_metric_is_not_idle(fleet: "type[Fleet]") -> None:
    lost = fleet.lost()
    seen = fleet.pool_seen(ready=6, running=lost, waiting=lost, finished=lost, pending=lost)
    decided = fleet.Case(
        arrivals=lost, forecast=0.0, seen=[seen], asked={"main": 6}, attained=lost, history=fleet.watched(0)
    ).pool()
    assert (decided.verdict, decided.asked_replicas, decided.binding) == (Verdict.HOLD, 6, Reason.STALE_METRICS)


@pytest.mark.parametrize("signal", ["arrivals", "running", "waiting", "finished", "pending"])
def test_one_missing_metric_of_many_stops_a_shrink(fleet: "type[Fleet]", signal: str) -> None:
    calm = fleet.Case(arrivals=0.5, forecast=0.5, seen=[fleet.pool_seen(ready=4)], asked={"main": 4})
    assert calm.pool().verdict is Verdict.SHRINK
    if signal == "arrivals":
        calm.arrivals = fleet.lost()
    else:
        calm.seen = [fleet.pool_seen(ready=4, **{signal: fleet.lost()})]  # type: ignore[arg-type]
    assert (calm.pool().verdict, calm.pool().asked_replicas) == (Verdict.HOLD, 4)
    assert signal in calm.pool().notes[-1].text


def test_half_coverage_does_not_shrink_and_may_grow(fleet: "type[Fleet]") -> None:
    half = fleet.signal(0.0, coverage_ratio=0.5)
    calm = fleet.Case(arrivals=0.5, forecast=0.5, seen=[fleet.pool_seen(ready=4, waiting=half)], asked={"main": 4})
    assert (calm.pool().verdict, calm.pool().binding) == (Verdict.HOLD, Reason.PARTIAL_COVERAGE)
    queued = fleet.signal(60.0, coverage_ratio=0.5)
    busy = fleet.Case(arrivals=3.0, forecast=3.0, seen=[fleet.pool_seen(waiting=queued)])
    assert (busy.pool().verdict, busy.pool().binding) == (Verdict.GROW, Reason.BACKLOG)


def test_a_renamed_metric_holds_and_is_named(fleet: "type[Fleet]") -> None:
    gone = fleet.lost(UnknownReason.CONTRACT_VIOLATION)
    seen = fleet.pool_seen(ready=4, waiting=gone, running=gone, violations=("vllm:num_requests_waiting: no series",))
    decided = fleet.Case(arrivals=0.5, forecast=0.5, seen=[seen], asked={"main": 4}).pool()
    assert (decided.verdict, decided.binding) == (Verdict.HOLD, Reason.CONTRACT_VIOLATION)
    assert "vllm:num_requests_waiting" in decided.notes[-1].text


def test_a_sample_older_than_allowed_does_not_lower(fleet: "type[Fleet]") -> None:
    old = reading(0.5, sampled_at_s=fleet.NOW_S - 31.0, coverage_ratio=1.0, source="gateway")
    at_the_border = replace(old, sampled_at_s=fleet.NOW_S - 30.0)
    seen = [fleet.pool_seen(ready=4)]
    assert fleet.Case(arrivals=old, forecast=0.5, seen=seen, asked={"main": 4}).pool().verdict is Verdict.HOLD
    shrunk = fleet.Case(arrivals=at_the_border, forecast=0.5, seen=seen, asked={"main": 4}).pool()
    assert shrunk.verdict is Verdict.SHRINK


def test_unknown_arrivals_with_a_known_queue_grow(fleet: "type[Fleet]") -> None:
    seen = fleet.pool_seen(waiting=90.0, finished=3.0)
    decided = fleet.Case(arrivals=fleet.lost(), forecast=None, seen=[seen]).pool()
    assert (decided.verdict, decided.binding, decided.asked_replicas) == (Verdict.GROW, Reason.BACKLOG, 3)


def test_what_is_ordered_is_not_ordered_again(fleet: "type[Fleet]") -> None:
    # Replicas start for as long as this runs; the need stays 5.
    case = fleet.Case(arrivals=10.0, forecast=10.0, seen=[fleet.pool_seen(ready=1)], asked={"main": 1})
    memory = case.memory()
    asked = []
    for tick in range(10):
        case.now_s = fleet.NOW_S + 5.0 * tick
        decision, memory = decide(
            case.observation(), case.forecasts(), case.capacities(), (case.policy(),), memory, now_s=case.now_s
        )
        asked.append(decision.pools[0].asked_replicas)
        case.seen = [fleet.pool_seen(ready=1, starting=asked[-1] - 1)]
    assert asked == [5] * 10


def test_a_missed_objective_asks_for_one_more_only_once_while_it_starts(fleet: "type[Fleet]") -> None:
    case = fleet.Case(attained=0.5)
    assert (case.pool().asked_replicas, case.pool().binding) == (3, Reason.SLO_MISSED)
    starting = fleet.Case(attained=0.5, asked={"main": 3}, seen=[fleet.pool_seen(ready=2, starting=1)])
    assert starting.pool().asked_replicas == 3
    settling = fleet.Case(attained=0.5, asked={"main": 3}, seen=[fleet.pool_seen(ready=3, ready_at_s=fleet.NOW_S - 9)])
    assert settling.pool().verdict is not Verdict.GROW
    settled = fleet.Case(attained=0.5, asked={"main": 3}, seen=[fleet.pool_seen(ready=3, ready_at_s=fleet.NOW_S - 99)])
    assert settled.pool().asked_replicas == 4


def test_a_missed_objective_that_replicas_do_not_mend_stops_growing(fleet: "type[Fleet]") -> None:
    # Need is 2; with max_grow 2 no more than 4 are ever asked for, however long the objective is missed.
    case = fleet.Case(attained=0.1, asked={"main": 4}, seen=[fleet.pool_seen(ready=4)], arrivals=4.0, forecast=4.0)
    case.max_grow = 2
    assert case.pool().asked_replicas == 4


def test_latency_alone_does_not_grow_an_idle_pool(fleet: "type[Fleet]") -> None:
    decided = fleet.Case(arrivals=0.0, forecast=0.1, attained=0.0, asked={"main": 1}, seen=[fleet.pool_seen(ready=1)])
    assert decided.pool().verdict is Verdict.HOLD


def test_nan_latency_of_an_idle_pool_does_not_stop_the_shrink(fleet: "type[Fleet]") -> None:
    idle = fleet.Case(
        arrivals=0.0,
        forecast=0.1,
        attained=fleet.signal(math.nan),
        asked={"main": 4},
        seen=[fleet.pool_seen(ready=4, running=0.0)],
    )
    assert idle.pool().verdict is Verdict.SHRINK


def test_nan_latency_under_load_does_stop_the_shrink(fleet: "type[Fleet]") -> None:
    busy = fleet.Case(
        arrivals=5.0,
        forecast=5.0,
        attained=fleet.signal(math.nan),
        asked={"main": 4},
        seen=[fleet.pool_seen(ready=4)],
    )
    assert (busy.pool().verdict, busy.pool().asked_replicas) == (Verdict.HOLD, 4)


def test_a_growing_queue_asks_for_one_more_though_need_says_enough(fleet: "type[Fleet]") -> None:
    grows = fleet.Case(waiting_before=3.0, seen=[fleet.pool_seen(waiting=4.0)])
    assert (grows.pool().asked_replicas, grows.pool().binding) == (3, Reason.SLO_MISSED)
    stands = fleet.Case(waiting_before=4.0, seen=[fleet.pool_seen(waiting=4.0)])
    assert stands.pool().asked_replicas == 2


def test_failed_replicas_are_replaced_not_forgotten(fleet: "type[Fleet]") -> None:
    seen = fleet.pool_seen(ready=1, failed=3)
    decided = fleet.Case(arrivals=0.5, forecast=0.5, seen=[seen], asked={"main": 4}).pool()
    # One ready meets the need, so of three failed ones two are replaced this time: the order is what shrinks.
    assert decided.asked_replicas == 4
    assert Reason.REPLACE_FAILED in {n.reason for n in decided.notes}


def test_nothing_known_at_first_asks_for_what_exists(fleet: "type[Fleet]") -> None:
    lost = fleet.lost()
    seen = fleet.pool_seen(ready=3, starting=1, running=lost, waiting=lost, finished=lost, pending=lost)
    decided = fleet.Case(arrivals=lost, forecast=30.0, seen=[seen], asked=None).pool()
    assert (decided.asked_replicas, decided.binding) == (4, Reason.NO_OBSERVATION_YET)


def test_nothing_known_and_nothing_there_asks_for_the_minimum(fleet: "type[Fleet]") -> None:
    lost = fleet.lost()
    seen = fleet.pool_seen(ready=0, running=lost, waiting=lost, finished=lost, pending=lost)
    case = fleet.Case(arrivals=lost, forecast=None, seen=[seen], asked=None)
    case.pools = [fleet.pool_policy(min_replicas=2)]
    assert (case.pool().asked_replicas, case.pool().binding) == (2, Reason.NO_OBSERVATION_YET)


def test_a_restart_without_memory_does_not_flap(fleet: "type[Fleet]") -> None:
    case = fleet.Case(arrivals=0.5, forecast=0.5, seen=[fleet.pool_seen(ready=5)], asked=None)
    memory = Memory()
    asked = []
    for tick in range(9):
        case.now_s = fleet.NOW_S + 10.0 * tick
        decision, memory = decide(
            case.observation(), case.forecasts(), case.capacities(), (case.policy(),), memory, now_s=case.now_s
        )
        asked.append(decision.pools[0].asked_replicas)
        case.seen = [fleet.pool_seen(ready=asked[-1])]
    # The window (60 s) must be watched once before anything shrinks, then one at a time.
    assert asked == [5, 5, 5, 5, 5, 5, 4, 3, 2]


def test_a_restart_with_memory_goes_on_where_it_was(fleet: "type[Fleet]") -> None:
    seen = [fleet.pool_seen(ready=4, starting=2)]
    decided = fleet.Case(arrivals=11.0, forecast=12.0, seen=seen, asked={"main": 6}, history=fleet.watched(6)).pool()
    assert (decided.verdict, decided.asked_replicas) == (Verdict.HOLD, 6)


def test_an_outage_of_the_metrics_starts_the_window_again(fleet: "type[Fleet]") -> None:
    # Watched until 70 s ago, blind since: what was wanted in between nobody knows.
    past = tuple((fleet.NOW_S - 130.0 + 10.0 * i, 1) for i in range(7))
    seen = [fleet.pool_seen(ready=4)]
    decided = fleet.Case(arrivals=0.5, forecast=0.5, seen=seen, asked={"main": 4}, history=past).pool()
    assert (decided.verdict, decided.binding) == (Verdict.HOLD, Reason.STABILISATION)


def test_a_clock_set_back_does_not_keep_the_future(fleet: "type[Fleet]") -> None:
    future = ((fleet.NOW_S + 500.0, 8),)
    _, memory = fleet.Case(history=future).decide()
    assert memory.pools[0].wanted_history == ((fleet.NOW_S, 2),)


def test_the_emptiest_ready_replica_leaves_first_and_an_unknown_one_last(fleet: "type[Fleet]") -> None:
    seen = fleet.pool_seen(ready=4, loads=(7.0, 2.0, fleet.lost(), 3.0))
    case = fleet.Case(arrivals=0.5, forecast=0.5, seen=[seen], asked={"main": 4}, max_shrink=3)
    assert case.pool().drain_first == ("main-1", "main-3", "main-0")


def test_a_forced_cut_takes_the_starting_replicas_before_the_serving_ones(fleet: "type[Fleet]") -> None:
    case = fleet.Case(arrivals=9.0, forecast=9.0, seen=[fleet.pool_seen(ready=3, starting=2)], asked={"main": 5})
    case.pools = [fleet.pool_policy(max_replicas=3)]
    assert (case.pool().asked_replicas, case.pool().drain_first) == (3, ("main-3", "main-4"))


def test_a_pool_without_a_capacity_is_held(fleet: "type[Fleet]") -> None:
    decided = fleet.Case(capacity={}, arrivals=30.0, forecast=30.0).pool()
    assert (decided.verdict, decided.wanted_replicas, decided.binding) == (Verdict.HOLD, None, Reason.STALE_METRICS)
    assert "chat/main capacity: none known" in decided.notes[-1].text


def test_a_service_that_was_not_observed_is_held(fleet: "type[Fleet]") -> None:
    case = fleet.Case(asked={"main": 5})
    decision, memory = decide(
        replace(case.observation(), services=()),
        (),
        case.capacities(),
        (case.policy(),),
        case.memory(),
        now_s=case.now_s,
    )
    assert decision.pools[0].asked_replicas == memory.pools[0].asked_replicas == 5
    assert decision.pools[0].binding is Reason.STALE_METRICS


def test_advice_is_given_against_what_exists_and_not_written(fleet: "type[Fleet]") -> None:
    case = fleet.Case(arrivals=9.0, forecast=9.0, mode=Mode.ADVISE, asked={"main": 5})
    decided = case.pool()
    assert (decided.writes, decided.asked_before_replicas, decided.asked_replicas) == (False, 2, 5)
    assert Reason.ADVISE_ONLY in {n.reason for n in decided.notes}


def test_memory_counts_decisions_and_dates_moves(fleet: "type[Fleet]") -> None:
    _, memory = fleet.Case(arrivals=9.0, forecast=9.0).decide()
    assert memory.sequence == 8
    grown: PoolMemory = memory.pools[0]
    assert (grown.asked_replicas, grown.last_grow_at_s, grown.last_shrink_at_s) == (5, fleet.NOW_S, None)


def test_a_stale_sample_does_not_raise_either(fleet: "type[Fleet]") -> None:
    old = reading(30.0, sampled_at_s=fleet.NOW_S - 31.0, coverage_ratio=1.0, source="gateway")
    assert fleet.Case(arrivals=old).pool().verdict is Verdict.HOLD
    fresh = replace(old, sampled_at_s=fleet.NOW_S - 30.0)
    assert fleet.Case(arrivals=fresh).pool().verdict is Verdict.GROW


def test_a_restart_without_memory_counts_failed_replicas_as_asked_for(fleet: "type[Fleet]") -> None:
    lost = fleet.lost()
    seen = fleet.pool_seen(ready=2, failed=2, running=lost, waiting=lost, finished=lost, pending=lost)
    assert fleet.Case(arrivals=lost, forecast=None, seen=[seen], asked=None).pool().asked_replicas == 4
