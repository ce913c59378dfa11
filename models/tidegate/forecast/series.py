"""A load series on its step grid, with gaps kept as gaps."""

import math
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from tidegate.terms.errors import TidegateError
from tidegate.terms.history import History

FloatArray = npt.NDArray[np.float64]

# Longest past that is looked at, in steps: bounds the time of one forecast.
MOST_STEPS = 240
# No fleet sees as much; beyond it the sum of a history leaves the range of floats.
MOST_PER_S = 1e300


class HistoryTooShortError(TidegateError):
    """There is not one usable sample to forecast from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A series on an even grid: `values[i]` is at `end_at_s - (n - 1 - i) * step_s`; NaN marks a gap.

    The last value is never a gap; `lag_steps` is how many whole steps ago it was, seen from the time of the forecast.
    """

    values: FloatArray  # shape (n,), n >= 1, >= 0 or NaN
    step_s: float
    end_at_s: float
    lag_steps: int
    samples: int  # how many are not gaps


def on_grid(history: History, *, now_s: float, most_steps: int = MOST_STEPS) -> Grid:
    """Return the newest `most_steps` of the history on its grid.

    A step without a sample stays a gap (unknown, never zero load). Samples of the future, negative and non-finite ones
    and those beyond `MOST_PER_S` are dropped; of two in one step the later counts.

    Raises:
        HistoryTooShortError: No usable sample at all.
        ValueError: `step_s` is not a positive number; a bug in the caller.
    """
    step_s = history.step_s
    if not (math.isfinite(step_s) and step_s > 0.0):
        msg = f"history.step_s of {history.service}: must be a number > 0, got {step_s}"
        raise ValueError(msg)
    newest = history.samples[-most_steps:]
    pairs = np.fromiter(chain.from_iterable(newest), dtype=np.float64, count=2 * len(newest)).reshape(-1, 2)
    at_s, per_s = pairs[:, 0], pairs[:, 1]
    usable = np.isfinite(at_s) & (at_s <= now_s) & (per_s >= 0.0) & (per_s <= MOST_PER_S)
    if not usable.all():
        pairs = pairs[usable]
    if not len(pairs):
        msg = f"history of {history.service} ({history.quantity}): no usable sample, need at least 1"
        raise HistoryTooShortError(msg)
    if (pairs[1:, 0] < pairs[:-1, 0]).any():
        pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    steps = np.rint(pairs[:, 0] / step_s).astype(np.int64)
    steps -= steps[-1] - (most_steps - 1)
    inside = steps >= 0
    values = np.full(most_steps, np.nan)
    values[steps[inside]] = pairs[inside, 1]
    first = int(steps[inside][0])
    end_at_s = float(pairs[-1, 0])
    return Grid(
        values=values[first:],
        step_s=step_s,
        end_at_s=end_at_s,
        lag_steps=max(0, int((now_s - end_at_s) / step_s + 1e-6)),
        samples=int(np.isfinite(values).sum()),
    )
