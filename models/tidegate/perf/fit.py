"""Fitting: damped least squares for any few unknowns, and the step-time coefficients from measured steps; pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.perf.profile import PS_PER_S

FloatArray = npt.NDArray[np.float64]
POWERS = (1.0, 1.5, 2.0, 3.0, 4.0)  # of the smooth maximum that are tried
LEAST_STEPS = 10  # twice the coefficients
_LEAST_S = 1e-15  # a coefficient that small does not show: the logarithm needs a floor
_MOST_STUCK = 2  # rounds in a row without a gain: one for either side
_LEAST_GAIN = 1e-6  # of the cost plus 1
_WIDE = 1e12  # prior spread of an unknown without a prior


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A number to be found within bounds. `prior_spread` is how far from `start` it may lie for all one knew before."""

    name: str
    start: float
    low: float
    high: float
    step: float  # of the difference that stands for a slope, > 0
    prior_spread: float | None = None  # one standard deviation; None: nothing known


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The values found, in order of the unknowns.

    `spreads` are standard deviations, given residuals of standard deviation 1 and the priors; a spread near its prior's
    says that the data do not know that unknown.
    """

    values: tuple[float, ...]
    spreads: tuple[float, ...]
    cost: float  # half the sum of squares, priors included
    rounds: int


def solve(
    residuals: Callable[[Sequence[float]], FloatArray], unknowns: Sequence[Unknown], *, rounds: int = 25
) -> Solution:
    """Return the values that make the sum of squared residuals least, found from `start`; a local minimum.

    Slopes are differences of `step` to one side and the other in turn, so the residuals may come from a simulation that
    is not smooth.

    Args:
        residuals: Of values in order of the unknowns; of constant length; of standard deviation about 1.
        unknowns: At least one.
        rounds: Most slopes taken, >= 1.

    Source: Levenberg-Marquardt as in Nocedal and Wright, Numerical Optimization, 2nd ed., section 10.3.
    """
    low = np.array([u.low for u in unknowns])
    high = np.array([u.high for u in unknowns])
    start = np.array([u.start for u in unknowns])
    spread = np.array([u.prior_spread if u.prior_spread is not None else _WIDE for u in unknowns])

    def errors(at: FloatArray) -> FloatArray:
        return np.concatenate([residuals(tuple(at.tolist())), (at - start) / spread])

    at = np.clip(start, low, high)
    error = errors(at)
    cost = float(error @ error) / 2.0
    damping, taken, stuck = 1e-2, 0, 0
    slopes = np.zeros((len(error), len(unknowns)))
    # A simulation has ledges: where the difference to one side shows no way down, that to the other may.
    while taken < rounds and stuck < _MOST_STUCK:
        taken += 1
        slopes = _slopes(errors, at, error, unknowns, forward=taken % 2 == 1)
        square, down = slopes.T @ slopes, slopes.T @ error
        better = False
        damping = min(damping, 1e2)
        while damping < 1e6 and not better:  # noqa: PLR2004  (no step is too small to help by then)
            step = np.linalg.solve(square + damping * np.diag(np.diag(square) + 1e-12), -down)
            there = np.clip(at + step, low, high)
            tried = errors(there)
            now = float(tried @ tried) / 2.0
            better = now < cost
            damping = damping / 5.0 if better else damping * 5.0
            if better:
                stuck = stuck + 1 if cost - now < _LEAST_GAIN * (1.0 + cost) else 0
                at, error, cost = there, tried, now
        stuck = stuck if better else stuck + 1
    variances = np.diag(np.linalg.pinv(slopes.T @ slopes))
    return Solution(
        values=tuple(at.tolist()),
        spreads=tuple(np.sqrt(np.maximum(variances, 0.0)).tolist()),
        cost=cost,
        rounds=taken,
    )


def _slopes(
    errors: Callable[[FloatArray], FloatArray],
    at: FloatArray,
    error: FloatArray,
    unknowns: Sequence[Unknown],
    *,
    forward: bool,
) -> FloatArray:
    columns = []
    for index, unknown in enumerate(unknowns):
        step = unknown.step if forward else -unknown.step
        if not unknown.low <= at[index] + step <= unknown.high:
            step = -step
        moved = at.copy()
        moved[index] += step
        columns.append((errors(moved) - error) / step)
    return np.stack(columns, axis=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTable:
    """Measured steps as columns, one row a step; each shape (n,)."""

    tokens: FloatArray  # N: decoding sequences and prefill chunk tokens
    kv_read_tokens: FloatArray  # K: contexts of the decoding sequences, summed
    pairs: FloatArray  # A: (query, key) pairs of the prefill chunks
    seconds: FloatArray  # > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFit:
    """Step-time coefficients in the fields of `EngineProfile`, and how well they fit."""

    step_base_ps: int
    weight_read_ps: int
    compute_ps_per_token: int
    smooth_max_power: float
    kv_read_ps_per_token: int
    attention_ps_per_pair: int
    error_ratio: float  # mean relative error over the table
    worst_error_ratio: float


def fit_steps(table: StepTable) -> StepFit:
    """Return the coefficients with the least mean relative error over the table.

    Host costs are not told apart from the launch cost c0 here: tables of kernels have none.

    Raises:
        ValueError: Fewer than LEAST_STEPS rows, or a time that is not > 0.
    """
    if len(table.seconds) < LEAST_STEPS or not bool(np.all(table.seconds > 0.0)):
        msg = f"need >= {LEAST_STEPS} steps of more than 0 s, got {len(table.seconds)}"
        raise ValueError(msg)
    return min((_fit_power(table, power) for power in POWERS), key=lambda fit: fit.error_ratio)


def _fit_power(table: StepTable, power: float) -> StepFit:
    idle_s = float(np.min(table.seconds))
    slope_s = float(np.max(table.seconds) / np.max(table.tokens))
    starts = {"c0": 0.2 * idle_s, "w": 0.8 * idle_s, "c1": 0.5 * slope_s, "c2": 5e-8, "c3": 1e-9}
    unknowns = [
        Unknown(name=n, start=math.log(v), low=math.log(_LEAST_S), high=math.log(60.0), step=1e-5)
        for n, v in starts.items()
    ]

    def modelled(logs: Sequence[float]) -> FloatArray:
        c0, w, c1, c2, c3 = (math.exp(x) for x in logs)
        compute = c1 * table.tokens
        larger = np.maximum(compute, w)
        dense = larger * (1.0 + (np.minimum(compute, w) / larger) ** power) ** (1.0 / power)
        whole: FloatArray = c0 + dense + c2 * table.kv_read_tokens + c3 * table.pairs
        return whole

    def residuals(logs: Sequence[float]) -> FloatArray:
        return np.log(modelled(logs) / table.seconds)

    found = solve(residuals, unknowns, rounds=200).values
    errors = np.abs(modelled(found) / table.seconds - 1.0)
    ps = [round(math.exp(x) * PS_PER_S) for x in found]
    return StepFit(
        step_base_ps=ps[0],
        weight_read_ps=max(1, ps[1]),
        compute_ps_per_token=max(1, ps[2]),
        smooth_max_power=power,
        kv_read_ps_per_token=ps[3],
        attention_ps_per_pair=ps[4],
        error_ratio=float(np.mean(errors)),
        worst_error_ratio=float(np.max(errors)),
    )
