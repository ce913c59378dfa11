"""Knative's windows, panic and rates by worked examples, and as a law."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.baselines.scene import ABSENT, Number, ask, bounded, play, replicas, seen, world

from tidegate.baselines.kpa import RIVALS, TICK_S, KpaSettings, KpaState, scaled, started, window_mean
from tidegate.terms.decision import PoolDecision, Reason
from tidegate.terms.observation import Observation

TEN = KpaSettings(target=10.0, utilisation=1.0)
CALM = KpaState()
WIDE = bounded(0, 1000)


def test_defaults_are_knatives() -> None:
    shipped = KpaSettings(target=100.0)
    assert shipped.sized_for == pytest.approx(70.0)
    assert (shipped.stable_window_s, shipped.panic_window_s, shipped.panic_threshold) == (60.0, 6.0, 2.0)
    assert (shipped.max_up_rate, shipped.max_down_rate, shipped.grace_s, TICK_S) == (1000.0, 2.0, 30.0, 2.0)


def test_window_counts_gaps_as_zero_and_not_what_lies_before_the_first_or_after_the_last_sample() -> None:
    full = tuple((2.0 * i, 6.0) for i in range(10))  # 0, 2, ... 18
    assert window_mean(full, 6.0, first_s=0.0, now_s=18.0) == 6.0
    gap = tuple(s for s in full if s[0] != 16.0)
    assert window_mean(gap, 6.0, first_s=0.0, now_s=18.0) == 4.0  # (6 + 0 + 6) / 3
    assert window_mean(gap, 60.0, first_s=0.0, now_s=18.0) == pytest.approx(5.4)  # 9 of 10 ticks
    assert window_mean(full, 6.0, first_s=0.0, now_s=20.0) == 6.0  # the tick at 20 is not yet lost
    assert window_mean(((10.0, 6.0),), 60.0, first_s=10.0, now_s=10.0) == 6.0
    assert window_mean(full, 6.0, first_s=0.0, now_s=30.0) == 0.0
    # A window that begins in a gap: 12 samples in 30 ticks.
    late = tuple((40.0 + 2.0 * i, 10.0) for i in range(12))
    assert window_mean(late, 60.0, first_s=0.0, now_s=62.0) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("stable", "panic", "ready", "desired", "panics"),
    [
        (35.0, 35.0, 3, 4, False),
        (30.0, 30.0, 3, 3, False),  # no rounding up of what fits
        (35.0, 59.0, 3, 6, True),  # 6 / 3 pods is the threshold
        (35.0, 50.0, 3, 4, False),  # 5 / 3 is below it
        (0.0, 0.0, 9, 4, False),  # down by a half: floor(4.5)
        (0.0, 0.0, 1, 0, False),  # and to none from one
        (5.0, 5.0, 0, 1, False),  # no pod counts as one
        (15.0, 25.0, 0, 3, True),
        (60.0, 20.0, 3, 6, False),
    ],
)
def test_scaling_clamps_by_ready_pods_and_panics_on_the_threshold(
    stable: float,
    panic: float,
    ready: int,
    desired: int,
    panics: bool,  # noqa: FBT001
) -> None:
    step = scaled(stable, panic, ready, CALM, TEN, now_s=7.0)
    assert (step.desired, step.panic_since_s) == (desired, 7.0 if panics else None)


def test_up_rate_lets_one_more_pod_at_least() -> None:
    # 1.1 of 2 pods is 2.2, so 3: else a pool of 2 could never grow.
    slow = replace(TEN, max_up_rate=1.1)
    assert scaled(90.0, 0.0, 2, CALM, slow, now_s=0.0).desired == 3


def test_panic_never_shrinks_and_ends_a_stable_window_after_its_last_cause() -> None:
    step = scaled(20.0, 100.0, 2, CALM, TEN, now_s=0.0)
    assert (step.desired, step.panic_most) == (10, 10)
    state = KpaState(panic_since_s=step.panic_since_s, panic_most=step.panic_most)
    assert scaled(20.0, 20.0, 2, state, TEN, now_s=30.0).desired == 10
    extended = scaled(20.0, 40.0, 2, state, TEN, now_s=30.0)
    assert (extended.desired, extended.panic_since_s) == (10, 30.0)
    assert scaled(20.0, 20.0, 2, state, TEN, now_s=60.0).desired == 10  # on the border panic still holds
    over = scaled(20.0, 20.0, 2, state, TEN, now_s=60.1)
    assert (over.desired, over.panic_since_s, over.panic_most) == (2, None, 0)


def test_calm_takes_back_what_panic_asked_for_while_pods_still_start() -> None:
    """The known fault: the clamp and the threshold look at ready pods, and pods that start are not ready."""
    state = KpaState(panic_since_s=0.0, panic_most=20)
    assert scaled(15.0, 15.0, 2, state, TEN, now_s=61.0).desired == 2


def test_start_is_in_panic_over_one_pod_with_their_count_as_the_floor() -> None:
    assert started(5, now_s=3.0) == KpaState(panic_since_s=3.0, panic_most=5)
    assert started(1, now_s=3.0) == KpaState(panic_since_s=None, panic_most=1)
    law = RIVALS[0].make(world(), 10.0).law
    made, memory = ask(law, seen(replicas(5), in_flight=0.0), policy=WIDE)
    assert made.asked_replicas == 5
    made, _ = ask(law, seen(replicas(5), in_flight=0.0), memory, now_s=60.0, policy=WIDE)
    assert made.asked_replicas == 5
    made, _ = ask(law, seen(replicas(5), in_flight=0.0), memory, now_s=61.0, policy=WIDE)
    assert made.asked_replicas == 2


def at(in_flight: Number, ready: int, starting: int = 0) -> Observation:
    return seen(replicas(ready, starting), in_flight=in_flight)


def run(observations: list[Observation], target: float = 10.0 / 0.7) -> list[PoolDecision]:
    return play(RIVALS[0].make(world(WIDE), target), observations, WIDE)


def test_law_panics_within_the_panic_window_and_keeps_it_for_the_stable_window() -> None:
    made = run([at(10.0, 1)] * 30 + [at(60.0, 1)] * 3 + [at(10.0, 1)] * 40)
    asked = [d.asked_replicas for d in made]
    assert asked[:30] == [1] * 30
    assert asked[30:33] == [3, 5, 6]  # the mean of the last three ticks: 26.7, 43.3, 60
    assert set(asked[33:64]) == {6}
    assert asked[66:] == [1] * 7  # 31 ticks after the last cause of panic (5 requests a pod at tick 34) it is over


def test_law_holds_without_data_in_the_stable_window_and_believes_what_is_left_before() -> None:
    made = run([at(25.0, 1)] * 5 + [at(ABSENT, 3)] * 40)
    assert [d.asked_replicas for d in made] == [3] * 45
    assert made[33].wanted_replicas == 3  # the last sample is 58 s old
    assert made[34].wanted_replicas is None
    assert made[34].binding is Reason.STALE_METRICS


def test_law_counts_held_requests_and_wakes_from_zero() -> None:
    made = run([seen((), in_flight=0.0, pending=3.0)])
    assert made[0].asked_replicas == 1


def test_law_lets_the_last_replica_go_after_the_grace_period() -> None:
    made = run([at(0.0, 1)] * 20)
    assert [d.asked_replicas for d in made] == [1] * 15 + [0] * 5
    made = run([at(0.0, 1)] * 14 + [at(5.0, 1)] + [at(0.0, 1)] * 32)
    assert {d.asked_replicas for d in made} == {1}


@settings(deadline=None)
@given(st.floats(0.0, 500.0), st.floats(0.0, 500.0), st.integers(0, 20))
def test_more_load_never_means_fewer_replicas(one: float, other: float, ready: int) -> None:
    low, high = sorted((one, other))
    assert run([at(low, ready)])[0].asked_replicas <= run([at(high, ready)])[0].asked_replicas


def test_knob_is_the_concurrency_target_with_knatives_default() -> None:
    knob = RIVALS[0].knob(world())
    assert knob is not None
    assert (knob.safe, knob.thrifty, knob.default) == (1.25, 100.0, 100.0)
    load = [at(40.0, 4)] * 60
    assert run(load, knob.safe)[-1].wanted_replicas == 46  # 40 / (1.25 * 0.7)
    assert run(load, knob.thrifty)[-1].wanted_replicas == 2  # one fits, and it may only halve
