"""The HPA's arithmetic by worked examples, and as laws."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.baselines.scene import ABSENT, UNREACHABLE, ask, bounded, play, replicas, seen, world

from tidegate.baselines.hpa import (
    RIVALS,
    Behavior,
    Rules,
    Select,
    Step,
    average_value,
    kv_law,
    of_several,
    pods_metric,
    queue_law,
    rate_limited,
    stabilised,
    value,
)
from tidegate.terms.decision import PoolDecision, Reason, Verdict
from tidegate.terms.observation import Observation

PLAIN = Behavior()
QUEUE = queue_law(lambda _: 10.0, PLAIN)
KV = kv_law(lambda _: 0.5, PLAIN)
WIDE = bounded(1, 12)


@pytest.mark.parametrize(
    ("total", "count", "wanted"),
    [
        (25.0, 2, 3),  # 1.25 of the target
        (21.9, 2, 2),  # within the tolerance
        (22.1, 2, 3),
        (18.0, 2, 2),  # 0.9: on the tolerance
        (17.9, 2, 2),  # outside it, and ceil(1.79) is still 2
        (9.9, 2, 1),
        (100.0, 1, 10),  # does not depend on the present count, so it cannot run away
        (100.0, 7, 10),
        (0.0, 3, 0),
        (1.0, 0, 1),
    ],
)
def test_average_value_recommends_the_ceiling_outside_the_tolerance(total: float, count: int, wanted: int) -> None:
    assert average_value(total, count, 10.0) == wanted


def test_average_value_rounds_up_a_real_part_and_not_a_rounding_error() -> None:
    assert average_value(0.3, 9, 0.1) == 3  # 0.3 / 0.1 is 2.9999999999999996
    assert average_value(3 * 1.1, 9, 1.1) == 3  # and 3.3000000000000003 / 1.1 is over 3
    assert average_value(3.31, 9, 1.1) == 4


def test_tolerance_includes_its_border() -> None:
    # 0.25 is exact in binary, which 0.1 is not.
    assert [average_value(total, 2, 10.0, tolerance=0.25) for total in (15.0, 25.0, 25.1)] == [2, 2, 3]


@pytest.mark.parametrize(
    ("total", "count", "ready", "wanted"),
    [
        (10.5, 4, 4, 4),  # within the tolerance
        (20.0, 4, 4, 8),  # twice the target: twice the ready pods
        (20.0, 4, 2, 4),
        (20.0, 8, 8, 16),  # the same metric at a higher count: it runs away
        (5.0, 4, 4, 2),
        (25.0, 0, 0, 3),  # at zero only the ratio counts
    ],
)
def test_value_multiplies_the_ready_pods(total: float, count: int, ready: int, wanted: int) -> None:
    assert value(total, count, ready, 10.0) == wanted


@pytest.mark.parametrize(
    ("values", "count", "missing", "unready", "wanted"),
    [
        ((0.5, 0.5), 2, 0, 0, 2),
        ((0.7, 0.7), 2, 0, 0, 3),  # ceil(1.4 * 2)
        ((0.2, 0.2), 2, 0, 0, 1),
        ((0.2, 0.2), 4, 0, 2, 1),  # shrinking looks at ready pods only
        ((0.7, 0.7), 4, 0, 2, 4),  # 1.4 over 2 with two more at 0 is 0.7 over 4: the other side of 1, hold
        ((1.0, 1.0), 3, 0, 1, 4),  # 2.0 over 3 pods of 0.5 is 1.33: ceil(4.0)
        ((0.75, 0.75), 3, 0, 1, 3),  # 1.0 with the unready one: within the tolerance
        ((0.2, 0.2), 4, 2, 0, 3),  # missing ones count as on target: (0.4 + 1.0) / 0.5 = 2.8
        ((0.2,), 2, 1, 0, 2),  # (0.2 + 0.5) / 0.5 = 1.4
        ((0.7, 0.7), 4, 2, 0, 4),  # missing ones count as idle: 0.7, the other side of 1, hold
        ((1.0, 1.0), 3, 1, 0, 4),
        ((1.0, 1.0), 6, 1, 1, 6),  # 2.0 over 4 counted pods is 1.0: hold
        ((1.0, 1.0, 1.0), 9, 1, 1, 9),  # 1.2 over 5 counted: 6, but growing may not mean fewer than 9
    ],
)
def test_pods_metric_lets_pods_without_a_sample_only_shrink_a_move(
    values: tuple[float, ...], count: int, missing: int, unready: int, wanted: int
) -> None:
    assert pods_metric(values, count, 0.5, missing=missing, unready=unready) == wanted


def test_pods_metric_without_a_sample_is_an_error() -> None:
    assert pods_metric((), 3, 0.5, missing=3) is None


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8), st.integers(0, 4), st.integers(0, 4))
def test_pods_without_a_sample_never_widen_a_move(values: list[float], missing: int, unready: int) -> None:
    count = len(values) + missing + unready
    blind = pods_metric(values, count, 0.5, missing=missing, unready=unready)
    whole = pods_metric([*values, *[0.5] * (missing + unready)], count, 0.5)
    assert blind is not None
    assert whole is not None
    if blind > count:
        assert blind <= whole
    assert (blind >= count) or sum(values) < 0.5 * len(values)


def test_several_metrics_take_the_highest_and_a_lost_one_forbids_to_shrink() -> None:
    assert of_several([3, 5, 4], 4) == 5
    assert of_several([3, None], 4) is None
    assert of_several([6, None], 4) == 6
    assert of_several([4, None], 4) == 4
    assert of_several([None, None], 4) is None


def test_down_window_holds_the_highest_and_up_window_the_lowest_recommendation() -> None:
    older = ((0.0, 9), (100.0, 6), (290.0, 4))
    assert stabilised(8, 3, older, PLAIN, now_s=300.0) == 6  # the 9 is 300 s old: just out of the window
    assert stabilised(8, 3, older, PLAIN, now_s=299.9) == 8
    assert stabilised(5, 7, older, PLAIN, now_s=300.0) == 7  # up at once
    slow_up = replace(PLAIN, up=replace(PLAIN.up, window_s=60.0))
    assert stabilised(3, 7, older, slow_up, now_s=300.0) == 4
    assert stabilised(5, 7, older, slow_up, now_s=300.0) == 5  # above the lowest of the minute: it waits
    assert stabilised(5, 3, (), PLAIN, now_s=0.0) == 3


@pytest.mark.parametrize(
    ("now", "wanted", "grown", "shrunk", "limited"),
    [
        (1, 50, 0, 0, 5),  # 4 pods beat 100 %
        (3, 50, 0, 0, 7),
        (4, 50, 0, 0, 8),  # the same
        (10, 50, 0, 0, 20),  # 100 % beats 4 pods
        (20, 50, 10, 0, 20),  # the period's growth is used up
        (7, 50, 2, 0, 10),
        (10, 1, 0, 0, 1),  # down 100 %: no limit
        (5, 6, 0, 0, 6),
        (6, 6, 0, 0, 6),
    ],
)
def test_rate_policies_take_the_most_permissive(now: int, wanted: int, grown: int, shrunk: int, limited: int) -> None:
    moves = {"grown": ((90.0, grown),), "shrunk": ((90.0, shrunk),)}
    assert rate_limited(now, wanted, PLAIN, **moves, now_s=100.0) == limited


def test_rate_policies_forget_moves_a_period_old() -> None:
    assert rate_limited(20, 50, PLAIN, grown=((85.1, 10),), now_s=100.0) == 20
    assert rate_limited(20, 50, PLAIN, grown=((85.0, 10),), now_s=100.0) == 40


def test_rate_policies_down_and_the_other_selections() -> None:
    half = Rules(window_s=0.0, steps=(Step(percent=50.0), Step(pods=2)))
    down = replace(PLAIN, down=half)
    assert rate_limited(9, 1, down, now_s=0.0) == 4  # trunc(4.5) lets go further than 9 - 2
    assert rate_limited(5, 1, down, shrunk=((-1.0, 4),), now_s=0.0) == 4  # the period began at 9
    assert rate_limited(9, 1, replace(PLAIN, down=replace(half, select=Select.MIN)), now_s=0.0) == 7
    assert rate_limited(9, 1, replace(PLAIN, down=replace(half, select=Select.DISABLED)), now_s=0.0) == 9
    slow = replace(PLAIN, up=replace(PLAIN.up, select=Select.MIN))
    assert rate_limited(10, 50, slow, now_s=0.0) == 14  # 4 pods are less than 100 %


def queue(running: float, waiting: float, count: int, starting: int = 0) -> Observation:
    return seen(replicas(count, starting), running=running, waiting=waiting)


def test_law_starts_from_what_exists_and_grows_at_once() -> None:
    made, memory = ask(QUEUE, queue(20.0, 15.0, 2))
    assert (made.asked_before_replicas, made.wanted_replicas, made.asked_replicas) == (2, 4, 4)
    assert (made.verdict, made.binding) == (Verdict.GROW, Reason.DEMAND_NOW)
    assert memory.sequence == 1


def test_law_counts_starting_replicas_and_does_not_order_twice() -> None:
    _, memory = ask(QUEUE, queue(40.0, 0.0, 2))
    made, _ = ask(QUEUE, queue(41.0, 0.0, 2, starting=2), memory, now_s=15.0)
    assert (made.verdict, made.asked_replicas) == (Verdict.HOLD, 4)


def test_law_shrinks_only_after_the_down_window_even_after_a_restart() -> None:
    memory, asked, bindings = None, [], []
    for now_s in (0.0, 150.0, 299.0, 301.0):
        made, memory = ask(QUEUE, queue(0.0, 0.0, 3), memory, now_s=now_s)
        asked.append(made.asked_replicas)
        bindings.append(made.binding)
    assert asked == [3, 3, 3, 1]
    assert bindings == [*[Reason.STABILISATION] * 3, Reason.AT_MINIMUM]


def test_law_holds_and_remembers_nothing_when_the_metric_is_unknown() -> None:
    for lost in (
        seen(replicas(3), running=ABSENT, waiting=1.0),
        seen(replicas(3), running=1.0, waiting=UNREACHABLE),
        Observation(observed_at_s=0.0, services=()),
    ):
        _, memory = ask(QUEUE, queue(25.0, 0.0, 3))
        made, after = ask(QUEUE, lost, memory, now_s=1000.0)
        assert (made.asked_replicas, made.wanted_replicas, made.binding) == (3, None, Reason.STALE_METRICS)
        assert after.kept == memory.kept


def test_law_stays_within_bounds_and_names_the_limit() -> None:
    made, _ = ask(QUEUE, queue(5000.0, 0.0, 10), policy=WIDE)
    assert (made.wanted_replicas, made.asked_replicas, made.binding) == (500, 12, Reason.AT_MAXIMUM)
    made, _ = ask(QUEUE, queue(5000.0, 0.0, 2), policy=WIDE)
    assert (made.asked_replicas, made.binding) == (6, Reason.RATE_LIMIT)


def test_law_spends_its_growth_once_a_period() -> None:
    _, memory = ask(QUEUE, queue(500.0, 0.0, 2), policy=bounded(1, 100))
    made, memory = ask(QUEUE, queue(500.0, 0.0, 2, 4), memory, now_s=10.0, policy=bounded(1, 100))
    assert made.asked_replicas == 6
    made, _ = ask(QUEUE, queue(500.0, 0.0, 2, 4), memory, now_s=15.0, policy=bounded(1, 100))
    assert made.asked_replicas == 12


def test_kv_law_tells_pending_replicas_from_those_that_run_without_a_series() -> None:
    low = (0.2, 0.2)
    made, _ = ask(KV, seen(replicas(2, starting=2), kv=low))
    assert made.wanted_replicas == 3  # missing: (0.4 + 1.0) / 0.5 = 2.8
    made, _ = ask(KV, seen(replicas(2, pending=2), kv=low))
    assert made.wanted_replicas == 1  # pending ones are not looked at when shrinking
    made, _ = ask(KV, seen(replicas(2, pending=1), kv=(1.0, 1.0)))
    assert made.wanted_replicas == 4


def test_kv_law_reads_ready_replicas_and_takes_starting_ones_as_missing() -> None:
    made, _ = ask(KV, seen(replicas(2), kv=(0.7, 0.7)))
    assert made.asked_replicas == 3
    made, _ = ask(KV, seen(replicas(2, starting=1), kv=(1.0, 1.0)))
    assert made.asked_replicas == 4
    made, _ = ask(KV, seen(replicas(2, starting=2), kv=(0.7, 0.7)))
    assert (made.wanted_replicas, made.asked_replicas) == (4, 4)
    made, _ = ask(KV, seen(replicas(2, draining=3), kv=(0.7, 0.7)))
    assert made.wanted_replicas == 3


def test_kv_law_holds_without_a_sample_and_takes_an_unscraped_replica_as_missing() -> None:
    made, _ = ask(KV, seen(replicas(3), kv=(ABSENT, UNREACHABLE, ABSENT)))
    assert (made.asked_replicas, made.wanted_replicas) == (3, None)
    made, _ = ask(KV, seen(replicas(3), kv=(0.9, 0.9, ABSENT)))
    assert made.wanted_replicas == 4  # 1.8 over three pods of 0.5
    made, _ = ask(KV, seen(()))
    assert made.wanted_replicas is None


@settings(deadline=None)
@given(st.floats(0.0, 1000.0), st.floats(0.0, 1000.0), st.integers(0, 12))
def test_more_load_never_means_fewer_replicas(one: float, other: float, count: int) -> None:
    low, high = sorted((one, other))
    lower, _ = ask(QUEUE, queue(low, 0.0, count), policy=WIDE)
    higher, _ = ask(QUEUE, queue(high, 0.0, count), policy=WIDE)
    assert lower.asked_replicas <= higher.asked_replicas
    assert 1 <= higher.asked_replicas <= 12


def last(rival: int, setting: float, observations: list[Observation]) -> PoolDecision:
    wide = bounded(1, 40)
    return play(RIVALS[rival].make(world(wide), setting), observations, wide)[-1]


def test_queue_knob_spans_from_many_too_many_to_too_few() -> None:
    knob = RIVALS[0].knob(world())
    assert knob is not None
    assert (knob.name, knob.safe, knob.thrifty, knob.default) == ("averageValue", 1.25, 40.0, 8.0)
    # Four replicas at what they carry: 40 requests in flight.
    load = [queue(40.0, 0.0, 4)] * 40
    counts = [last(0, setting, load).wanted_replicas for setting in (knob.safe, knob.default, knob.thrifty)]
    assert counts == [32, 5, 1]


def test_kv_knob_spans_around_the_kv_use_at_capacity() -> None:
    knob = RIVALS[1].knob(world())
    assert knob is not None
    # 10 requests of 1100 tokens in 100 000: 0.11.
    assert (knob.safe, knob.thrifty, knob.default) == pytest.approx((0.01375, 0.5, 0.5))  # the default is in the range
    load = [seen(replicas(4), kv=[0.11] * 4)] * 40
    assert [last(1, setting, load).wanted_replicas for setting in (knob.safe, knob.thrifty)] == [32, 1]
