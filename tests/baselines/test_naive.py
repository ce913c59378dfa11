"""The two naive rules: the load as it is, and its highest of half an hour."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.baselines.scene import ABSENT, UNREACHABLE, Number, bounded, play, replicas, seen, world
from tests.policies import service_policy

from tidegate.baselines import last_value, window_max
from tidegate.baselines.window_max import WINDOW_S, Peaks
from tidegate.sim.policies import Rival
from tidegate.terms.decision import Reason
from tidegate.terms.observation import Observation

LAST, HIGHEST = last_value.RIVALS[0], window_max.RIVALS[0]
WIDE = bounded(0, 1000)


def run(rival: Rival, loads: list[Number], setting: float | None = 1.0, count: int = 3) -> list[int]:
    made = play(rival.make(world(WIDE), setting), [seen(replicas(count), arrivals=x) for x in loads], WIDE)
    return [d.asked_replicas for d in made]


def test_last_value_divides_the_load_by_what_a_replica_may_carry() -> None:
    assert run(LAST, [0.0, 2.0, 2.01, 8.0, 4.0]) == [0, 1, 2, 4, 2]
    assert run(LAST, [8.0], setting=0.5) == [8]
    assert run(LAST, [8.0], setting=None) == [5]  # 8 / 1.6


def test_last_value_holds_when_the_load_is_unknown() -> None:
    assert run(LAST, [UNREACHABLE, 8.0, ABSENT], count=3) == [3, 4, 4]
    unseen = play(LAST.make(world(WIDE), 1.0), [Observation(observed_at_s=0.0, services=())], WIDE)[0]
    assert (unseen.asked_replicas, unseen.binding) == (0, Reason.STALE_METRICS)


def test_window_max_grows_at_once_and_shrinks_half_an_hour_after_the_peak() -> None:
    ticks = round(WINDOW_S / 15.0)
    asked = run(HIGHEST, [4.0, 20.0, 6.0, *[2.0] * (ticks + 5)])
    assert asked[:3] == [2, 10, 10]
    assert asked[ticks] == 10  # the peak is 15 s short of half an hour old
    assert asked[ticks + 1 : ticks + 4] == [3, 1, 1]


def test_window_max_lives_on_what_it_saw_when_the_load_is_unknown_and_then_holds() -> None:
    ticks = round(WINDOW_S / 15.0)
    loads: list[Number] = [8.0, *[ABSENT] * (ticks + 3)]
    made = play(HIGHEST.make(world(WIDE), 1.0), [seen(replicas(3), arrivals=x) for x in loads], WIDE)
    assert {d.asked_replicas for d in made} == {4}
    assert [made[ticks - 1].wanted_replicas, made[ticks].wanted_replicas] == [4, None]


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=60))
def test_peaks_hold_the_window_highest_and_stay_few(loads: list[float]) -> None:
    peaks = Peaks()
    for tick, load in enumerate(loads):
        peaks = peaks.with_sample(load, now_s=90.0 * tick)
        assert peaks.samples[0][1] == max(loads[max(0, tick - 19) : tick + 1])
    assert [x for _, x in peaks.samples] == sorted({x for _, x in peaks.samples}, reverse=True)


@settings(deadline=None)
@given(st.floats(0.0, 1000.0), st.floats(0.0, 1000.0))
def test_more_load_never_means_fewer_replicas(one: float, other: float) -> None:
    for rival in (LAST, HIGHEST):
        assert run(rival, [min(one, other)]) <= run(rival, [max(one, other)])


@pytest.mark.parametrize("rival", [LAST, HIGHEST])
def test_two_equal_pools_share_the_load_and_bounds_hold(rival: Rival) -> None:
    two = service_policy(pools=("one", "two"))
    contender = rival.make(world(two), 1.0)
    decision, _ = contender.law(seen(arrivals=12.0), (), (), (two,), contender.start, now_s=0.0)
    assert [p.asked_replicas for p in decision.pools] == [3, 3]
    decision, _ = contender.law(seen(arrivals=1200.0), (), (), (two,), contender.start, now_s=0.0)
    assert [(p.asked_replicas, p.binding) for p in decision.pools] == [(8, Reason.AT_MAXIMUM)] * 2
