"""The search for a knob's cheapest setting, on laws whose best setting is known."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.baselines.search import CLOSE_RATIO, MOST_PLAYS, MOST_WHOLE_PLAYS, Found, Tried, place, search, setting_at
from tidegate.sim.policies import Knob, KnobScale

TARGET = 0.99
LOAD = Knob(name="load", unit="ratio", safe=0.3, thrifty=3.0, default=0.9, scale=KnobScale.LOG)
LEVEL = Knob(name="level", unit="ratio", safe=0.2, thrifty=1.5, default=0.55)
SIZE = Knob(name="replicas", unit="replicas", safe=40, thrifty=1, default=40, scale=KnobScale.INTEGER)

Law = Callable[[float], Tried]


class Counted:
    """Plays a law and keeps what was asked of it."""

    def __init__(self, law: Law) -> None:
        self._law = law
        self.settings: list[float] = []

    def __call__(self, setting: float) -> Tried:
        self.settings.append(setting)
        return self._law(setting)


def smooth(knee: float, steepness: float) -> Law:
    """Return a law with half the requests missed at `knee`, and GPU time inverse to the setting."""

    def law(setting: float) -> Tried:
        missed = 1.0 / (1.0 + math.exp(-steepness * math.log(setting / knee)))
        return Tried(setting=setting, attainment_ratio=1.0 - missed, gpu_hours=100.0 / setting)

    return law


def best_of(knee: float, steepness: float) -> float:
    """Return the setting of `smooth` that misses exactly 1 %."""
    return knee * math.exp(-math.log(99.0) / steepness)


def sized(least: int) -> Law:
    """Return a law that reaches the target with at least so many replicas and collapses below."""

    def law(setting: float) -> Tried:
        lack = least / setting
        missed = 0.01 * math.exp(8.0 * (lack - 1.0)) if lack <= 1.0 else min(1.0, 0.02 * math.exp(8.0 * (lack - 1.0)))
        return Tried(setting=setting, attainment_ratio=1.0 - missed, gpu_hours=24.0 * setting)

    return law


def stepped(edge: float) -> Law:
    """Return a law that reaches the target up to `edge` and misses everything beyond it."""

    def law(setting: float) -> Tried:
        return Tried(setting=setting, attainment_ratio=float(setting <= edge), gpu_hours=100.0 / setting)

    return law


def found(law: Law, knob: Knob, *, start: float, most_plays: int | None = None) -> Found:
    """Return a search's result, having checked what holds for every search."""
    counted = Counted(law)
    result = search(counted, knob, target_ratio=TARGET, start=start, most_plays=most_plays)
    assert [t.setting for t in result.tried] == counted.settings  # every play counted, in order
    assert len(set(counted.settings)) == len(counted.settings) <= (most_plays or MOST_WHOLE_PLAYS)  # none twice
    low, high = sorted((knob.safe, knob.thrifty))
    assert all(low - 1e-9 <= s <= high + 1e-9 for s in counted.settings)
    reached = [t.gpu_hours for t in result.tried if t.attainment_ratio >= TARGET]
    assert (result.best is None) is (not reached)
    assert (result.reason is None) is (result.best is not None)
    if result.best is not None:
        assert result.best.gpu_hours == min(reached)
    return result


@pytest.mark.parametrize("knob", [LOAD, LEVEL, SIZE], ids=lambda k: str(k.scale))
def test_place_and_setting_are_inverse(knob: Knob) -> None:
    assert setting_at(knob, 0.0) == pytest.approx(knob.safe)
    assert setting_at(knob, 1.0) == pytest.approx(knob.thrifty)
    for at in (0.0, 0.25, 0.7, 1.0):
        setting = setting_at(knob, at)
        assert setting_at(knob, place(knob, setting)) == pytest.approx(setting)


@pytest.mark.parametrize("knob", [LOAD, LEVEL], ids=["log", "linear"])
@pytest.mark.parametrize("steepness", [6.0, 10.0, 20.0])
@pytest.mark.parametrize("knee", [0.75, 0.9, 1.2])
@pytest.mark.parametrize("start", [0.0, 0.3, 0.6])
def test_search_comes_within_two_per_cent_of_the_best(knob: Knob, steepness: float, knee: float, start: float) -> None:
    result = found(smooth(knee, steepness), knob, start=start)
    assert result.best is not None
    assert result.best.gpu_hours <= 100.0 / best_of(knee, steepness) * 1.02


@pytest.mark.parametrize("least", range(1, 41))
def test_search_finds_the_least_whole_number_exactly(least: int) -> None:
    for start in (0.0, 0.4, 1.0):
        best = found(sized(least), SIZE, start=start).best
        assert best is not None
        assert best.setting == least


@pytest.mark.parametrize("edge", [0.31, 0.5, 0.99, 1.7, 2.9])
def test_search_halves_where_misses_set_in_at_once(edge: float) -> None:
    best = found(stepped(edge), LOAD, start=0.5, most_plays=16).best
    assert best is not None
    assert best.gpu_hours <= 100.0 / edge * (1.0 + 2.0 * CLOSE_RATIO)


def test_search_takes_the_thrifty_end_when_even_that_reaches_the_target() -> None:
    result = found(smooth(50.0, 6.0), LOAD, start=0.2)
    assert result.best is not None
    assert result.best.setting == pytest.approx(LOAD.thrifty)
    assert len(result.tried) < MOST_PLAYS


def test_search_says_why_when_even_the_safe_end_misses() -> None:
    result = found(smooth(0.2, 6.0), LOAD, start=0.8)
    assert min(t.setting for t in result.tried) == pytest.approx(LOAD.safe)
    assert result.reason is not None
    assert "load 0.3 " in result.reason
    assert "%" in result.reason
    assert len(result.tried) < MOST_PLAYS


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_search_works_from_a_default_at_either_end(start: float) -> None:
    best = found(smooth(1.0, 8.0), LOAD, start=start).best
    assert best is not None
    assert best.gpu_hours <= 100.0 / best_of(1.0, 8.0) * 1.02


@pytest.mark.parametrize("start", [-3.0, 7.0])
def test_search_begins_inside_the_range_when_the_default_lies_outside(start: float) -> None:
    assert found(smooth(1.0, 8.0), LOAD, start=start).best is not None


def test_search_stops_when_two_settings_cost_the_same() -> None:
    def flat(setting: float) -> Tried:
        return Tried(setting=setting, attainment_ratio=0.995 if setting < 1.0 else 0.9, gpu_hours=50.0 - setting / 1e3)

    assert len(found(flat, LOAD, start=0.4).tried) <= 3


def test_search_survives_a_law_that_is_not_monotonic() -> None:
    def waves(setting: float) -> Tried:
        missed = 0.01 * setting**2 * (1.0 + 0.8 * math.sin(9.0 * setting))
        return Tried(setting=setting, attainment_ratio=1.0 - min(1.0, missed), gpu_hours=100.0 / setting)

    for start in (0.0, 0.3, 0.6, 0.9):
        assert found(waves, LOAD, start=start).best is not None


@given(
    table=st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.1, 1e4)), min_size=12, max_size=12),
    start=st.floats(0.0, 1.0),
    most_plays=st.integers(2, 12),
    knob=st.sampled_from([LOAD, LEVEL, SIZE]),
)
def test_search_of_any_law_ends_within_its_plays(
    table: list[tuple[float, float]], start: float, most_plays: int, knob: Knob
) -> None:
    def law(setting: float) -> Tried:
        attained, hours = table[min(11, int(12.0 * place(knob, setting)))]
        return Tried(setting=setting, attainment_ratio=attained, gpu_hours=hours)

    found(law, knob, start=start, most_plays=most_plays)


def test_search_is_deterministic() -> None:
    assert found(smooth(0.9, 7.0), LOAD, start=0.5) == found(smooth(0.9, 7.0), LOAD, start=0.5)
