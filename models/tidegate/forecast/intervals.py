"""Quantiles around a centre: from past errors, never tighter than counting noise, finite and in order."""

from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from tidegate.forecast.series import FloatArray, Grid

# Errors are measured at this many lead times and interpolated between.
_LEADS = 5
# Below this multiple of the mean load a relative error explodes (on/off load, the foot of a ramp), so errors are taken
# against this floor. Of 0.1, 0.5, 1 and 2, the pinball loss at 0.9 fell or stayed up to 1 on all of ten series of one
# and five minutes and changed little beyond; there 89 to 95 % were covered where load was not constant (SageServe 2024,
# Azure Functions 2019, NAB Twitter; 240 steps of past, five ahead).
_FLOOR_RATIO = 1.0
# Counting noise is taken over at least this long: rates are read over windows of about this length, and an engine's
# queue absorbs what is shorter.
NOISE_WINDOW_S = 15.0
# Errors this many steps old, or one horizon if that is longer, count half: a ramp is over when it is over, its errors
# must not hold capacity for the rest of the history.
_HALF_LIFE_STEPS = 20
# Each lead time needs this many errors to have quantiles of its own.
_LEAST_ERRORS = 8


def horizon_quantiles(
    grid: Grid,
    *,
    centres: Callable[[FloatArray], FloatArray],
    steps: int,
    levels: tuple[float, ...],
    cap_ratio: float,
) -> FloatArray:
    """Return quantiles for the next steps, shape (len(levels), steps).

    Args:
        grid: The history; its last value is `lag_steps` before now.
        centres: Given lead times in steps, shape (k,), what was expected at each past step, shape (n, k).
        steps: Steps ahead, >= 1, counted from now.
        levels: Ascending, in (0, 1).
        cap_ratio: Nothing exceeds this multiple of the highest value in the history.
    """
    values = grid.values
    ahead = grid.lag_steps + np.arange(1, steps + 1, dtype=np.float64)
    floor = max(_FLOOR_RATIO * float(np.nanmean(values)), 1e-9)
    leads = np.unique(np.linspace(ahead[0], ahead[-1], min(_LEADS, steps)).round().astype(np.int64))
    expected = centres(leads.astype(np.float64))
    half_life = float(max(_HALF_LIFE_STEPS, steps))
    errors = np.stack(
        [
            _error_quantiles(values, expected[:, k], int(lead), floor=floor, levels=levels, half_life=half_life)
            for k, lead in enumerate(leads)
        ],
        axis=1,
    )
    centre = centres(ahead)[-1]
    size = np.maximum(centre, floor)
    rows = np.stack([centre + np.interp(ahead, leads, row) * size for row in errors])
    rows = noise_floor(rows, centre, levels=levels, step_s=grid.step_s)
    cap = cap_ratio * float(np.nanmax(values))
    # Counting noise is a fact of small numbers, so the cap yields to it.
    least_cap = noise_floor(np.zeros_like(rows), np.minimum(centre, cap), levels=levels, step_s=grid.step_s)
    return ordered(np.minimum(rows, np.maximum(cap, least_cap)))


def _error_quantiles(
    values: FloatArray, expected: FloatArray, lead: int, *, floor: float, levels: tuple[float, ...], half_life: float
) -> FloatArray:
    """Return quantiles of the relative error `lead` steps ahead, shape (len(levels),); the longest lead with data."""
    lead = min(lead, max(1, len(values) - _LEAST_ERRORS))
    came, guessed = values[lead:], expected[:-lead]
    errors = (came - guessed) / np.maximum(guessed, floor)
    weights = 0.5 ** (np.arange(len(errors), 0, -1) / half_life)
    known = np.isfinite(errors)
    errors, weights = errors[known], weights[known]
    if len(errors) < _LEAST_ERRORS:
        return np.zeros(len(levels))
    order = np.argsort(errors)
    errors, weights = errors[order], weights[order]
    # The middle of each error's share of the weight is its level; linear in between, the extremes beyond.
    at = (np.cumsum(weights) - weights / 2.0) / weights.sum()
    found: FloatArray = np.interp(levels, at, errors)
    return found


def noise_floor(rows: FloatArray, centre: FloatArray, *, levels: tuple[float, ...], step_s: float) -> FloatArray:
    """Return `rows` widened to at least the spread of Poisson counts, shape (len(levels), steps).

    A rate of `r` per second counted over `s` seconds has a standard deviation of `sqrt(r / s)`; `s` is the step and
    not less than `NOISE_WINDOW_S`. A rate of zero is taken as one event in it, since one may always come.
    """
    z = np.array([NormalDist().inv_cdf(level) for level in levels])[:, None]
    counted_s = max(step_s, NOISE_WINDOW_S)
    spread = np.sqrt(np.maximum(centre, 1.0 / counted_s) / counted_s)[None, :]
    bound = centre[None, :] + z * spread
    widened: FloatArray = np.where(z >= 0.0, np.maximum(rows, bound), np.minimum(rows, bound))
    return widened


def ordered(rows: FloatArray) -> FloatArray:
    """Return rows clipped at zero and made non-decreasing from level to level."""
    clipped: FloatArray = np.maximum(rows, 0.0)
    return np.maximum.accumulate(clipped, axis=0)
