"""One-step forecasts as NVIDIA's planner makes them: last value, local linear trend, or an ARIMA picked once.

Three series are forecast apart, each a window ahead: requests in the window, mean prompt and mean answer. A planner has
no prior: leading zeros are skipped, and until five points were seen every forecaster repeats the last one.

Source: NVIDIA Dynamo planner 1.6.1, load predictors (Apache-2.0), re-implemented; Harvey, Forecasting, Structural Time
Series Models and the Kalman Filter, section 2.3, for the local linear trend.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from tidegate.baselines.dynamo_arima import Arima, next_of, picked, updated

MIN_POINTS = 5

# Of the local linear trend: variances of level, trend and reading, and of the first state.
_Q_LEVEL, _Q_TREND, _R, _P0 = 1.0, 0.1, 10.0, 1000.0


class Forecasting(StrEnum):
    """Which forecaster runs."""

    CONSTANT = "constant"  # last value
    KALMAN = "kalman"
    ARIMA = "arima"  # as shipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """State of the local linear trend after its last reading: mean and covariance of (level, trend)."""

    level: float
    trend: float
    p00: float = _P0
    p01: float = 0.0
    p11: float = _P0


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What one forecaster has seen; its forecast is a function of this alone."""

    kind: Forecasting
    values: tuple[float, ...] = ()  # from the first that is not 0; all of them for ARIMA, else the last few
    count: int = 0
    trend: Trend | None = None
    arima: Arima | None = None


def seen(series: Series, value: float) -> Series:
    """Return the series with one more window; NaN counts as 0, and zeros before the first load are skipped."""
    value = 0.0 if math.isnan(value) else value
    if value == 0.0 and not series.count:
        return series
    count = series.count + 1
    if series.kind is Forecasting.ARIMA:
        return _with_arima(replace(series, values=(*series.values, max(0.0, value)), count=count))
    trend = _filtered(series.trend, value) if series.kind is Forecasting.KALMAN else None
    return replace(series, values=(value,), count=count, trend=trend)


def forecast(series: Series) -> float:
    """Return the next window's value, >= 0; 0 of an empty series."""
    if not series.values:
        return 0.0
    last = series.values[-1]
    if series.count < MIN_POINTS:
        return last
    if series.trend is not None:
        return max(0.0, series.trend.level + series.trend.trend)
    if series.arima is not None:
        return max(0.0, next_of(series.arima, series.values))
    return last


def _filtered(state: Trend | None, value: float) -> Trend:
    """Return the state one step on, corrected by the reading; the first reading is taken as the level."""
    if state is None:
        return Trend(level=value, trend=0.0)
    level = state.level + state.trend
    p00 = state.p00 + 2.0 * state.p01 + state.p11 + _Q_LEVEL
    p01 = state.p01 + state.p11
    p11 = state.p11 + _Q_TREND
    gain_level, gain_trend = p00 / (p00 + _R), p01 / (p00 + _R)
    surprise = value - level
    return Trend(
        level=level + gain_level * surprise,
        trend=state.trend + gain_trend * surprise,
        p00=(1.0 - gain_level) * p00,
        p01=(1.0 - gain_level) * p01,
        p11=p11 - gain_trend * p01,
    )


def _with_arima(series: Series) -> Series:
    if series.count < MIN_POINTS:
        return series
    if series.arima is not None:
        return replace(series, arima=updated(series.arima, series.values))
    if len(set(series.values)) == 1:
        return series  # a constant is forecast as itself; the order is picked at the first change
    return replace(series, arima=picked(series.values))
