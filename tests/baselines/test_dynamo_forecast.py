"""NVIDIA's planner: its forecasters, the ones that follow and the one that forgets nothing."""

import math

import numpy as np
import pytest

from tidegate.baselines.dynamo_arima import differences, picked
from tidegate.baselines.dynamo_forecast import Forecasting, Series, forecast, seen


def _fed(kind: Forecasting, values: list[float]) -> Series:
    series = Series(kind=kind)
    for value in values:
        series = seen(series, value)
    return series


@pytest.mark.parametrize("kind", list(Forecasting))
def test_forecast_repeats_the_last_value_until_five_points(kind: Forecasting) -> None:
    assert forecast(_fed(kind, [])) == 0.0
    assert forecast(_fed(kind, [0.0, 0.0, 7.0, 9.0, 4.0, 6.0])) == 6.0


@pytest.mark.parametrize("kind", list(Forecasting))
def test_series_takes_nan_for_zero_once_load_was_seen(kind: Forecasting) -> None:
    assert _fed(kind, [math.nan, 5.0]).count == 1
    assert forecast(_fed(kind, [5.0, math.nan])) == 0.0


def test_kalman_follows_a_ramp() -> None:
    assert forecast(_fed(Forecasting.KALMAN, [100.0, 110.0, 120.0, 130.0, 140.0])) == pytest.approx(
        149.94782255450252
    )  # by the planner
    assert forecast(_fed(Forecasting.KALMAN, [100.0, 80.0, 40.0, 10.0, 1.0, 0.0, 0.0])) == 0.0


def test_arima_picks_a_mean_on_five_noisy_points_and_keeps_it_on_a_ramp() -> None:
    noise = [307.0, 256.0, 305.0, 302.0, 318.0]
    model = picked(tuple(noise))
    assert (model.p, model.d, model.q, model.log) == (0, 0, 0, True)
    ramp = [320.0 + 20.0 * k for k in range(60)]
    expected = math.expm1(float(np.log1p([*noise, *ramp]).mean()))
    assert forecast(_fed(Forecasting.ARIMA, [*noise, *ramp])) == pytest.approx(expected)
    assert ramp[-1] > 1.7 * expected


def test_arima_forecasts_a_constant_as_itself_and_picks_at_the_first_change() -> None:
    constant = _fed(Forecasting.ARIMA, [5.0] * 8)
    assert constant.arima is None
    assert forecast(constant) == 5.0
    assert seen(constant, 6.0).arima is not None


def test_arima_with_terms_is_refitted_and_forecasts_near_the_last_values() -> None:
    # pmdarima picks (1,0,0) on these five as well.
    series = _fed(Forecasting.ARIMA, [809.0, 714.0, 614.0, 472.0, 401.0])
    assert series.arima is not None
    assert (series.arima.p, series.arima.d, series.arima.q, series.arima.log) == (1, 0, 0, False)
    longer = _fed(Forecasting.ARIMA, [809.0, 714.0, 614.0, 472.0, 401.0, 380.0, 390.0, 400.0])
    assert longer.arima is not None
    assert longer.arima.parameters != series.arima.parameters
    assert 350.0 < forecast(longer) < 500.0


def test_differences_counts_until_level_stationary() -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(size=200)
    assert differences(noise) == 0
    assert differences(np.cumsum(noise)) == 1
    assert differences(np.full(10, 4.0)) == 0
