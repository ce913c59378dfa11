"""A fast, robust forecast: level, damped trend, instant reaction to level shifts, quantiles from its past errors."""

import math
from dataclasses import dataclass

import numpy as np

from tidegate.forecast.intervals import horizon_quantiles, noise_floor, ordered
from tidegate.forecast.series import FloatArray, Grid, on_grid
from tidegate.terms.forecast import Forecast
from tidegate.terms.history import History

# Smoothing of the level: the fast one follows, the slow one is what shifts are judged against.
FAST_ALPHA = 0.5
SLOW_ALPHA = 0.1
TREND_BETA = 0.15
# Share of the trend that is left after each step (Gardner and McKenzie, "Forecasting trends in time series", 1985).
TREND_DAMPING = 0.8
# Two steps in a row beyond this many scales on the same side are a level shift and not noise.
SHIFT_SCALES = 3.0
# With fewer samples the errors say nothing yet.
LEAST_SAMPLES = 12
# The band may not leave this multiple of the highest load seen.
CAP_RATIO = 1.5


def forecast(history: History, *, horizon_s: float, levels: tuple[float, ...], now_s: float) -> Forecast:
    """Return demand quantiles for the next `horizon_s`, on the history's step.

    The centre is `level + trend * (d + d^2 + ... + d^j)`; the quantiles are those of its own errors `j` steps ahead
    over the same history, relative to the centre (additive near zero), never tighter than counting noise.

    Args:
        history: One quantity of one service; gaps are unknown.
        horizon_s: How far to look, > 0; rounded up to whole steps.
        levels: Quantiles in (0, 1), ascending.
        now_s: Unix time the forecast is made at.

    Raises:
        HistoryTooShortError: No usable sample at all.
    """
    grid = on_grid(history, now_s=now_s)
    steps = max(1, math.ceil(horizon_s / history.step_s - 1e-9))
    if grid.samples < LEAST_SAMPLES:
        values = _last_value(grid, steps, levels)
        method = "last_value"
        reason = f"history too short: have {grid.samples} samples, need {LEAST_SAMPLES}; using last_value"
    else:
        track = _track(grid.values)
        values = horizon_quantiles(
            grid,
            centres=lambda ahead: _centres(track.level, track.trend, ahead),
            centre=lambda ahead: _centres(track.level[-1:], track.trend[-1:], ahead)[:, 0],
            steps=steps,
            levels=levels,
            cap_ratio=CAP_RATIO,
        )
        method = "trend+residuals"
        reason = f"{grid.samples} samples, {track.shifts} level shifts"
    if grid.lag_steps > 1:
        reason += f"; newest sample {now_s - grid.end_at_s:.0f} s old"
    return Forecast(
        service=history.service,
        quantity=history.quantity,
        made_at_s=now_s,
        step_s=history.step_s,
        levels=levels,
        values=tuple(map(tuple, values.tolist())),
        method=method,
        reason=reason,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Track:
    """Level and trend after each step of the history, shape (n,) each."""

    level: FloatArray
    trend: FloatArray  # per step
    shifts: int


def _track(values: FloatArray) -> _Track:
    """Return the smoothed level and trend; in a gap both stand still."""
    first = float(values[np.isfinite(values)][0])
    levels, trends = [], []
    level = slow = first
    trend, scale, shifts = 0.0, math.sqrt(first) * 0.5, 0
    previous = first
    odd_before = 0.0  # error of the step before, when it was out of the ordinary, else 0
    least_bound = SHIFT_SCALES * 1e-9
    damping, fast, slowly, beta, shift = TREND_DAMPING, FAST_ALPHA, SLOW_ALPHA, TREND_BETA, SHIFT_SCALES
    # Comparisons instead of min, max and abs, and local names: this loop is a third of a forecast's time.
    for value in values.tolist():
        if value == value:  # noqa: PLR0124  (not NaN)
            error = value - slow
            size = error if error >= 0.0 else -error
            bound = 0.05 * slow
            if scale > bound:  # noqa: PLR1730
                bound = scale
            bound *= shift
            if bound < least_bound:  # noqa: PLR1730
                bound = least_bound
            odd = error if size > bound else 0.0
            if odd * odd_before > 0.0:
                # The two values since the shift are all that is known of the new level.
                level = slow = 0.5 * (value + previous)
                trend, scale, odd_before, shifts = 0.0, max(scale, abs(odd) * 0.1), 0.0, shifts + 1
            else:
                damped = damping * trend
                guess = level + damped
                smoothed = guess + fast * (value - guess)
                trend = damped + beta * (smoothed - level - damped)
                level = smoothed if smoothed > 0.0 else 0.0  # noqa: FURB136
                slow += slowly * error
                scale += slowly * ((size if size < bound else bound) - scale)  # noqa: FURB136
                odd_before = odd
            previous = value
        levels.append(level)
        trends.append(trend)
    return _Track(level=np.array(levels), trend=np.array(trends), shifts=shifts)


def _centres(level: FloatArray, trend: FloatArray, ahead: FloatArray) -> FloatArray:
    """Return what was expected `ahead` steps on, at each step of the history; shape (len(ahead), n)."""
    damped = TREND_DAMPING * (1.0 - TREND_DAMPING**ahead) / (1.0 - TREND_DAMPING)
    return np.maximum(0.0, level[None, :] + trend[None, :] * damped[:, None])


def _last_value(grid: Grid, steps: int, levels: tuple[float, ...]) -> FloatArray:
    """Return the last value with counting noise around it, the same at each step."""
    last = np.full(steps, grid.values[-1])
    rows = np.repeat(last[None, :], len(levels), axis=0)
    return ordered(noise_floor(rows, last, levels=levels, step_s=grid.step_s))
