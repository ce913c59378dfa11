"""crane's digital signal processing: is a load periodic by day or week, and what does its next period look like.

Series are one sample a minute, oldest first. A period must stand out of the spectrum (against the same samples
shuffled), be a peak of the autocorrelation, and be exactly a day or a week, with at least two of them seen. The
estimator that foretells the last period best, under-prediction weighing more, repeats the last period of what it made
of the whole.

Simplified: filtering is symmetric in frequency, and the shuffles come from a fixed seed.

Source: crane, pkg/prediction/dsp (signal, estimators, prediction).
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

STEP_S = 60.0
DAY = 1440  # samples
WEEK = 7 * DAY
_MAX_GAP = 60  # samples: what lies before a longer gap is dropped
_SHUFFLES = 100
_THRESHOLD_RANK = 98  # of the shuffles' highest powers, ascending
_PEAK_REACH = 240  # samples: four hours
_MOST_COMPONENTS = 100
_CUT_HZ = 1.0 / 3600.0
_LEAST = 0.01  # instead of a filtered value <= 0
_UNDER = math.log(1.25)
_NOUGHT = 1e-9  # an actual value under this has no relative error


@dataclass(frozen=True, slots=True, kw_only=True)
class FftEstimator:
    """Keep the strong and the slow components, then add a margin."""

    least_components: int
    low_amplitude: float
    margin: float

    def estimate(self, samples: FloatArray, period: int) -> FloatArray:
        """Return the last period of the filtered samples with the margin; values > 0."""
        spectrum = np.fft.rfft(samples)
        amplitudes = np.abs(spectrum) / len(samples)
        ranked = np.sort(amplitudes[1 : len(samples) // 2])[::-1]
        least = max(float(ranked[min(_MOST_COMPONENTS, len(ranked)) - 1]), self.low_amplitude)
        if len(ranked) >= self.least_components:
            least = min(least, float(ranked[self.least_components - 1]))
        frequencies = np.fft.rfftfreq(len(samples), d=STEP_S)
        spectrum[(amplitudes < least) & (frequencies > _CUT_HZ)] = 0.0
        filtered = np.fft.irfft(spectrum, n=len(samples))[-period:]
        return np.where(filtered <= 0.0, _LEAST, filtered) * (1.0 + self.margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxEstimator:
    """The highest of all periods at each phase."""

    margin: float

    def estimate(self, samples: FloatArray, period: int) -> FloatArray:
        """Return one period."""
        highest: FloatArray = samples.reshape(-1, period).max(axis=0)
        return highest * (1.0 + self.margin)


ESTIMATORS: tuple[FftEstimator | MaxEstimator, ...] = (
    MaxEstimator(margin=0.0),
    *(
        FftEstimator(least_components=least, low_amplitude=low, margin=margin)
        for least, low in ((3, 1.0), (50, 0.05))
        for margin in (0.01, 0.10, 0.15, 0.20)
    ),
)


def regular(minutes: npt.NDArray[np.int64], values: FloatArray) -> FloatArray:
    """Return one value a minute over whole days that end with the last sample; empty under a day.

    Gaps up to an hour are filled linearly, what lies before a longer one is dropped, and values outside the 0.1st to
    99.9th percentile are cut to it.

    Args:
        minutes: Of each sample, ascending, no two alike.
        values: One per minute.
    """
    if not len(minutes):
        return np.zeros(0)
    breaks = np.flatnonzero(np.diff(minutes) > _MAX_GAP)
    first = int(breaks[-1]) + 1 if len(breaks) else 0
    minutes, values = minutes[first:], values[first:]
    grid = np.arange(minutes[0], minutes[-1] + 1)
    filled = np.interp(grid, minutes, values)
    whole = filled[len(filled) % DAY :] if len(filled) >= DAY else filled[:0]
    if not len(whole):
        return whole
    low, high = np.percentile(whole, (0.1, 99.9))
    return np.clip(whole, low, high)


def period_of(samples: FloatArray) -> int | None:
    """Return the period in samples that stands out most, or None.

    Args:
        samples: Shape (n,), n >= 4.
    """
    count = len(samples)
    if float(np.ptp(samples)) == 0.0:
        return None
    threshold = _noise_power(samples)
    power = np.abs(np.fft.rfft(samples))[: count // 2]
    hints: list[int] = []
    for k in np.flatnonzero(power > threshold):
        if k >= 2 and (not hints or hints[-1] > count // int(k)):  # noqa: PLR2004  (a period is seen twice)
            hints.append(count // int(k))
    correlation = _autocorrelation(samples)
    best, highest = None, 0.0
    for hint in hints:
        if correlation[hint] > highest and _is_peak(correlation, hint, min(_PEAK_REACH, hint // 2)):
            best, highest = hint, float(correlation[hint])
    return best


def foretold(samples: FloatArray) -> FloatArray | None:
    """Return the next period, one value a minute from the sample after the last, or None when there is no period.

    Args:
        samples: Whole days, as `regular` makes them.
    """
    unit = WEEK if len(samples) >= 2 * WEEK else DAY
    whole = samples[len(samples) % unit :]
    if len(whole) < 2 * unit:
        return None
    period = period_of(whole)
    if period not in (DAY, WEEK) or len(whole) < 2 * period:
        return None
    whole = whole[len(whole) % period :]
    history, actual = whole[:-period], whole[-period:]
    best = min(ESTIMATORS, key=lambda e: prediction_error(actual, e.estimate(history, period)))
    return best.estimate(whole, period)


def prediction_error(actual: FloatArray, estimated: FloatArray) -> float:
    """Return the mean relative error, an under-prediction x counted as -ln(1 - x) / ln 1.25; absolute when near zero.

    Args:
        actual: Shape (n,), >= 0.
        estimated: Shape (n,), > 0 wherever `actual` is.
    """
    if np.any(actual < _NOUGHT):
        return float(np.mean(np.abs(actual - estimated)))
    short = (actual - estimated) / actual
    under = -np.log1p(-np.clip(short, 0.0, 1.0 - 1e-12)) / _UNDER
    return float(np.mean(np.where(short > 0.0, under, -short)))


def _noise_power(samples: FloatArray) -> float:
    shuffled = samples.copy()
    rng = np.random.Generator(np.random.PCG64(0))
    highest = []
    for _ in range(_SHUFFLES):
        rng.shuffle(shuffled)
        highest.append(float(np.abs(np.fft.rfft(shuffled))[1 : len(samples) // 2].max()))
    return sorted(highest)[_THRESHOLD_RANK]


def _autocorrelation(samples: FloatArray) -> FloatArray:
    centred = (samples - samples.mean()) / samples.std()
    power = np.abs(np.fft.rfft(centred)) ** 2
    return np.fft.irfft(power, n=len(samples)) / len(samples)


def _is_peak(values: FloatArray, at: int, reach: int) -> bool:
    """Return whether straight lines fitted on both sides rise to `at` and fall from it."""
    left, right = max(0, at - reach), min(len(values) - 1, at + reach)
    if at - left < 1 or right - at < 1:
        return False
    return _slope(values[left : at + 1]) > 0.0 > _slope(values[at : right + 1])


def _slope(values: FloatArray) -> float:
    x = np.arange(len(values)) - (len(values) - 1) / 2.0
    return float(x @ values) / float(x @ x)
