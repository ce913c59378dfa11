"""crane's period detection, estimators and law on made loads whose period is known."""

import math

import numpy as np
import pytest
from tests.baselines.scene import UNREACHABLE, Number, ask, bounded, replicas, seen, world

from tidegate.baselines.crane import RIVALS, CraneState, Outlook, outlook_of
from tidegate.baselines.crane_signal import (
    DAY,
    ESTIMATORS,
    WEEK,
    FftEstimator,
    FloatArray,
    MaxEstimator,
    foretold,
    period_of,
    prediction_error,
    regular,
)
from tidegate.baselines.law import LawMemory
from tidegate.terms.decision import PoolDecision

WIDE = bounded(1, 100)


def tide(days: int, *, period: int = DAY, noise: float = 0.3, mean: float = 20.0) -> FloatArray:
    minutes = np.arange(days * DAY)
    rng = np.random.Generator(np.random.PCG64(7))
    wave = mean + 0.8 * mean * np.sin(2.0 * math.pi * minutes / period)
    made: FloatArray = np.clip(wave + noise * rng.standard_normal(len(minutes)), 0.0, None)
    return made


def test_defaults_are_cranes() -> None:
    ffts = [e for e in ESTIMATORS if isinstance(e, FftEstimator)]
    assert [(e.least_components, e.low_amplitude) for e in ffts] == [(3, 1.0)] * 4 + [(50, 0.05)] * 4
    assert [e.margin for e in ffts] == [0.01, 0.1, 0.15, 0.2] * 2
    assert len(ESTIMATORS) == 9


@pytest.mark.parametrize("days", [2, 3, 6])
def test_period_of_a_daily_load_is_a_day(days: int) -> None:
    assert period_of(tide(days)) == DAY


def test_period_of_a_weekly_load_is_a_week() -> None:
    days = np.repeat([1.0, 1.1, 1.0, 1.1, 1.0, 0.1, 0.1], DAY)
    assert period_of(np.tile(days, 2) * 20.0 + 0.1 * tide(14, noise=1.0, mean=0.0)) == WEEK


def test_period_is_none_for_noise_and_for_a_constant() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    assert period_of(np.full(2 * DAY, 5.0)) is None
    assert period_of(rng.random(2 * DAY)) not in (DAY, WEEK)


def test_only_a_day_or_a_week_is_foretold_and_only_from_two_of_them() -> None:
    assert foretold(tide(1)) is None
    assert foretold(tide(4, period=DAY // 2)) is None
    ahead = foretold(tide(3))
    assert ahead is not None
    assert len(ahead) == DAY
    truth = tide(4, noise=0.0)[-DAY:]
    assert float(np.mean(np.abs(ahead - truth) / truth)) < 0.12  # at most the margin that was chosen


def test_regular_fills_short_gaps_drops_what_precedes_a_long_one_and_keeps_whole_days() -> None:
    minutes = np.arange(3 * DAY)
    values = minutes.astype(np.float64)
    assert len(regular(minutes[:10], values[:10])) == 0
    assert len(regular(minutes[:0], values[:0])) == 0
    gap = np.delete(minutes, slice(2000, 2059))
    filled = regular(gap, values[gap])
    assert len(filled) == 3 * DAY
    assert filled[2030] == pytest.approx(2030.0)
    long = np.delete(minutes, slice(1000, 1060))  # 61 minutes from sample to sample
    kept = regular(long, values[long])
    assert len(kept) == 2 * DAY
    assert kept[-2] == pytest.approx(3 * DAY - 3, abs=4.0)  # the outermost thousandth is cut


def test_regular_cuts_outliers() -> None:
    values = np.full(2 * DAY, 5.0)
    values[100], values[200] = 1000.0, 0.0
    cut = regular(np.arange(2 * DAY), values)
    assert (float(cut.min()), float(cut.max())) == (5.0, 5.0)


def test_prediction_error_weighs_what_is_under_predicted() -> None:
    actual = np.full(4, 10.0)
    assert prediction_error(actual, np.full(4, 12.0)) == pytest.approx(0.2)
    assert prediction_error(actual, np.full(4, 8.0)) == pytest.approx(1.0)  # -ln(0.8) / ln(1.25)
    assert prediction_error(actual, np.full(4, 5.0)) == pytest.approx(math.log(2.0) / math.log(1.25))
    assert prediction_error(actual, actual) == 0.0
    assert prediction_error(np.array([0.0, 10.0]), np.array([1.0, 8.0])) == 1.5  # absolute


def test_estimators_by_hand() -> None:
    two = np.array([1.0, 5.0, 2.0, 3.0, 4.0, 6.0])
    assert MaxEstimator(margin=0.5).estimate(two, 3).tolist() == [4.5, 7.5, 9.0]
    clean = tide(2, noise=0.0)
    strong = FftEstimator(least_components=3, low_amplitude=1.0, margin=0.1)
    assert strong.estimate(clean, DAY) == pytest.approx(1.1 * clean[-DAY:])
    # A ripple of five minutes is fast and weak, so it goes; one of two hours is slow and stays.
    minutes = np.arange(2 * DAY)
    fast, slow = 0.2 * np.sin(2 * math.pi * minutes / 5), 0.2 * np.sin(2 * math.pi * minutes / 120)
    one = FftEstimator(least_components=1, low_amplitude=1.0, margin=0.0)
    assert one.estimate(clean + fast + slow, DAY) == pytest.approx((clean + slow)[-DAY:])


def test_outlook_is_the_highest_of_the_hour_that_begins_now() -> None:
    values = tide(3)
    outlook = outlook_of(tuple((i + 100, float(v)) for i, v in enumerate(values)))
    assert outlook is not None
    ahead = foretold(regular(np.arange(len(values)), values))
    assert ahead is not None
    assert outlook.first_minute == 3 * DAY + 100
    assert outlook.at(outlook.first_minute) == pytest.approx(float(ahead[:61].max()))
    assert outlook.at(outlook.first_minute + DAY - 1) == pytest.approx(float(ahead[-1]))
    assert outlook.at(outlook.first_minute + DAY) is None
    assert outlook.at(outlook.first_minute - 1) is None
    assert outlook_of(()) is None
    assert outlook_of(((1, 5.0),)) is None


CONTENDER = RIVALS[0].make(world(WIDE), 2.0)


def told(highest: float, load: Number, count: int = 3) -> PoolDecision:
    """Return the decision at 0 with an outlook of `highest` for the coming hour."""
    outlook = Outlook(first_minute=0, highest=np.full(60, highest))
    memory = LawMemory(
        asked=((WIDE.pools[0].key, count),), kept=((WIDE.pools[0].key, CraneState(fitted_at_s=0.0, outlook=outlook)),)
    )
    return ask(CONTENDER.law, seen(replicas(count), arrivals=load), memory, policy=WIDE)[0]


def test_law_takes_the_higher_of_now_and_ahead_and_cuts_the_forecast_to_an_integer() -> None:
    assert told(10.0, 6.0).wanted_replicas == 5
    assert told(10.9, 6.0).wanted_replicas == 5  # ten
    assert told(5.0, 14.0).wanted_replicas == 7
    assert told(6.9, 6.0).wanted_replicas == 3


def test_law_may_grow_and_not_shrink_on_the_forecast_alone() -> None:
    assert told(10.0, UNREACHABLE).asked_replicas == 5
    shrink = told(2.0, UNREACHABLE)
    assert (shrink.asked_replicas, shrink.wanted_replicas) == (3, None)


def test_law_is_reactive_until_two_days_and_then_an_hour_early() -> None:
    values = tide(3, noise=0.0, mean=80.0)
    memory: LawMemory[CraneState] = CONTENDER.start
    wanted: dict[int, int] = {}
    for minute in range(3 * DAY):
        obs = seen(replicas(3), arrivals=float(values[minute]))
        made, memory = ask(CONTENDER.law, obs, memory, now_s=60.0 * minute, policy=WIDE)
        wanted[minute] = made.wanted_replicas or 0
    rising = 60
    reactive = math.ceil(values[rising] / 2.0)
    assert wanted[rising] == wanted[DAY + rising] == reactive
    assert wanted[2 * DAY + rising] >= math.ceil(values[rising + 59] / 2.0) - 1 > reactive


def test_knob_is_requests_per_second_of_a_replica() -> None:
    knob = RIVALS[0].knob(world())
    assert knob is not None
    assert (knob.name, knob.safe, knob.thrifty, knob.default) == ("averageValue", 0.25, 8.0, 1.6)
