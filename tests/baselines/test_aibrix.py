"""AIBrix' APA by worked examples, and its two variants where they part."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.baselines.scene import ABSENT, UNREACHABLE, Number, bounded, play, replicas, seen, world

from tidegate.baselines.aibrix import RIVALS, ApaSettings, apa, cooled, guarded
from tidegate.terms.observation import Observation

HALF = ApaSettings(target=0.5)
FOUND = ApaSettings(target=0.5, as_found=True)
WIDE = bounded(1, 40)


def test_defaults_are_aibrix() -> None:
    assert (HALF.up_tolerance, HALF.down_tolerance, HALF.max_up_rate, HALF.max_down_rate) == (0.1, 0.1, 2.0, 2.0)
    assert (HALF.window_s, HALF.up_cooldown_s, HALF.down_cooldown_s) == (180.0, 0.0, 300.0)


@pytest.mark.parametrize(
    ("use", "count", "wanted"),
    [
        (0.75, 4, 6),  # 1.5 of the target
        (0.6, 3, 4),  # ceil(3.6)
        (1.5, 4, 8),  # three times, but at most doubled
        (0.55, 4, 4),  # on the tolerance
        (0.56, 4, 5),
        (0.45, 4, 4),  # on the tolerance
        (0.4, 5, 4),
        (0.4, 4, 4),  # ceil(3.2): no shrink after all
        (0.0, 9, 4),  # at most halved: floor(4.5)
        (0.0, 1, 0),
        (0.1, 10, 5),
        (0.9, 0, 0),  # from zero it never leaves
    ],
)
def test_apa_multiplies_the_count_within_its_rates(use: float, count: int, wanted: int) -> None:
    assert apa(use, count, HALF) == wanted


@pytest.mark.parametrize(
    ("recommended", "use", "count", "ready", "wanted"),
    [
        (8, 1.0, 4, 4, 8),  # all ready: no guard
        (8, 1.0, 4, 3, 6),  # the one that starts counts as idle: ceil(3 * 2)
        (8, 1.0, 4, 2, 4),
        (8, 1.0, 4, 1, 4),  # never turns a growth into a shrink
        (2, 0.1, 4, 2, 3),  # the two that start count as on target: ceil(0.4 + 2)
        (2, 0.1, 4, 4, 2),
        (5, 0.9, 5, 2, 5),
        (2, 0.0, 4, 9, 2),  # more ready than asked for: those leave already
    ],
)
def test_guard_counts_pods_that_are_not_ready_as_missing(
    recommended: int, use: float, count: int, ready: int, wanted: int
) -> None:
    assert guarded(recommended, use, count, ready=ready, settings=HALF) == wanted


def test_cooldown_takes_the_highest_as_intended_and_the_lowest_as_found() -> None:
    older = ((0.0, 9), (10.0, 2), (290.0, 7))
    assert cooled(4, 8, older, HALF, now_s=300.0) == 7  # the 9 is 300 s old: just out
    assert cooled(4, 8, older, FOUND, now_s=300.0) == 2
    assert cooled(4, 8, older, HALF, now_s=299.0) == 8
    assert cooled(4, 8, older, FOUND, now_s=310.0) == 4  # the 2 is out
    for settings in (HALF, FOUND):
        assert cooled(12, 8, older, settings, now_s=300.0) == 12  # no cooldown before growing
        assert cooled(8, 8, older, settings, now_s=300.0) == 8


def run(name: str, observations: list[Observation], target: float = 0.5) -> list[int]:
    rival = next(r for r in RIVALS if r.name == name)
    return [d.asked_replicas for d in play(rival.make(world(WIDE), target), observations, WIDE)]


def fleet(kv: Number, ready: int, starting: int = 0) -> Observation:
    return seen(replicas(ready, starting), kv=[kv] * ready)


@pytest.mark.parametrize("name", ["aibrix-apa-intended", "aibrix-apa-found"])
def test_law_grows_on_the_window_mean_and_counts_what_starts(name: str) -> None:
    assert run(name, [fleet(0.5, 4), fleet(0.7, 4)]) == [4, 5]  # the mean of both is 0.6
    assert run(name, [fleet(1.0, 4), fleet(1.0, 4, 4), fleet(1.0, 4, 4)]) == [8, 8, 8]


def test_laws_part_when_shrinking() -> None:
    """One low spell, then load near the target: intended waits for the window, found halves at its first sign."""
    loads = [fleet(0.5, 8)] * 18 + [fleet(0.3, 8)] * 10
    intended, found = run("aibrix-apa-intended", loads), run("aibrix-apa-found", loads)
    assert set(intended) == {8}
    assert found[17] == 8
    assert found[-1] < 8


def test_outage_halves_the_fleet_as_found_and_holds_as_intended() -> None:
    loads = [fleet(0.5, 8)] * 18 + [fleet(UNREACHABLE, 8)] * 30
    assert set(run("aibrix-apa-intended", loads)) == {8}
    assert run("aibrix-apa-found", loads)[-1] == 1


def test_one_unread_replica_counts_as_idle_as_found_and_is_left_out_as_intended() -> None:
    one_lost = seen(replicas(2), kv=(1.0, ABSENT))
    assert run("aibrix-apa-intended", [one_lost]) == [4]
    assert run("aibrix-apa-found", [one_lost]) == [2]  # a mean of 0.5 is on target


def test_law_without_a_ready_replica_keeps_what_starts() -> None:
    for name in ("aibrix-apa-intended", "aibrix-apa-found"):
        assert run(name, [fleet(0.5, 0, 4)]) == [4]


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(0, 20), st.integers(0, 20))
def test_more_load_never_means_fewer_replicas(one: float, other: float, count: int, ready: int) -> None:
    low, high = (guarded(apa(use, count, HALF), use, count, ready=ready, settings=HALF) for use in sorted((one, other)))
    assert low <= high


def test_knob_spans_around_the_kv_use_at_capacity() -> None:
    for rival in RIVALS:
        knob = rival.knob(world())
        assert knob is not None
        assert (knob.safe, knob.thrifty, knob.default) == pytest.approx((0.01375, 0.5, 0.5))
        assert run(rival.name, [fleet(0.11, 4)] * 40, knob.safe)[-1] == 32
        assert run(rival.name, [fleet(0.11, 4)] * 40, knob.thrifty)[-1] < 4
