"""An ARIMA whose order is picked once, on the first points, and never again.

The search is the published stepwise one on AIC with a KPSS test for the differences. If it ends at an order without AR
and MA terms it is done once more on log(1 + x), as the planner does; later points only refine the coefficients. On five
points AIC nearly always picks (0,0,0), whose forecast is the mean of all history: that is the behaviour as shipped.

Source: Hyndman and Khandakar, Automatic Time Series Forecasting, J. Stat. Softw. 27(3), 2008, section 3.2; Kwiatkowski
et al., J. Econometrics 54, 1992, table 1; NVIDIA Dynamo planner 1.6.1 for when it is done.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

FloatArray = npt.NDArray[np.float64]

_KPSS_LEVEL = 0.463  # critical value at 5 %, level stationarity
_MAX_D = 2
_MAX_TERM = 5  # of p and of q; and at most a third of the points
_FITS = 50  # bound of the search, in models
_MAX_ITERATIONS = 50  # of the optimiser at the first fit
_MIN_REFIT = 5  # iterations of a refit, or a tenth of the points
_UNIT_ROOT = 1.01  # a root nearer to the unit circle disqualifies a model


@dataclass(frozen=True, slots=True, kw_only=True)
class Arima:
    """An order, its space and its coefficients."""

    p: int
    d: int
    q: int
    constant: bool
    log: bool  # works on log(1 + x)
    parameters: tuple[float, ...] = ()  # as statsmodels orders them; unused without AR and MA terms

    @property
    def plain(self) -> bool:
        """Whether there are no AR and MA terms: the fit is then a mean."""
        return self.p == 0 and self.q == 0


@lru_cache(maxsize=1024)
def picked(values: tuple[float, ...]) -> Arima:
    """Return the model picked on these values (>= 0, not all equal)."""
    raw = _search(values, log=False)
    return _search(values, log=True) if raw.plain else raw


def updated(model: Arima, values: tuple[float, ...]) -> Arima:
    """Return the model refitted on all values from where it was, within a few iterations."""
    if model.plain:
        return model
    return _refitted(model, values)


def next_of(model: Arima, values: tuple[float, ...]) -> float:
    """Return the forecast one step after the last value."""
    series = _space(values, log=model.log)
    step = _plain_next(model, series) if model.plain else _state_next(model, values)
    return math.expm1(min(step, 700.0)) if model.log else step  # e^700 is the largest a float can hold


def differences(series: FloatArray) -> int:
    """Return how often to difference before KPSS no longer rejects level stationarity, 0 to 2."""
    d = 0
    while d < _MAX_D and len(series) > 1 and np.ptp(series) > 0.0 and _kpss(series) > _KPSS_LEVEL:
        series, d = np.diff(series), d + 1
    return d


def _kpss(series: FloatArray) -> float:
    n = len(series)
    error = series - series.mean()
    lags = int(4.0 * (n / 100.0) ** 0.25)
    variance = float(error @ error) / n
    for lag in range(1, lags + 1):
        variance += 2.0 / n * (1.0 - lag / (lags + 1.0)) * float(error[lag:] @ error[:-lag])
    return float((np.cumsum(error) ** 2).sum()) / n**2 / variance if variance > 0.0 else 0.0


def _space(values: tuple[float, ...], *, log: bool) -> FloatArray:
    series = np.asarray(values, dtype=np.float64)
    return np.log1p(series) if log else series


def _search(values: tuple[float, ...], *, log: bool) -> Arima:
    series = _space(values, log=log)
    d = differences(series)
    constant = d <= 1
    if np.ptp(np.diff(series, d)) == 0.0:
        return Arima(p=0, d=d, q=0, constant=constant, log=log)
    scores: dict[tuple[int, int, bool], tuple[float, tuple[float, ...]]] = {}

    def score(p: int, q: int, *, with_constant: bool) -> float:
        key = (p, q, with_constant)
        if key not in scores:
            scores[key] = _fit(series, (p, d, q), constant=with_constant)
        return scores[key][0]

    best = _stepwise(score, constant=constant, most=min(_MAX_TERM, len(series) // 3))
    p, q, with_constant = best
    return Arima(p=p, d=d, q=q, constant=with_constant, log=log, parameters=scores[best][1])


def _stepwise(score: Callable[..., float], *, constant: bool, most: int) -> tuple[int, int, bool]:
    """Return (p, q, constant) of the lowest score: four starts, then neighbours until none is better."""
    few = min(2, most)
    starts = [(few, few, constant), (0, 0, constant), (1, 0, constant), (0, 1, constant)]
    if constant:
        starts.append((0, 0, False))
    best = (0, 0, constant)
    for start in starts:
        if score(start[0], start[1], with_constant=start[2]) < score(best[0], best[1], with_constant=best[2]):
            best = start
    moves = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))
    for _ in range(_FITS):
        p, q, with_constant = best
        near = [(p + i, q + j, with_constant) for i, j in moves]
        near.append((p, q, not with_constant))
        allowed = [k for k in near if 0 <= k[0] <= most and 0 <= k[1] <= most and (constant or not k[2])]
        lowest = score(p, q, with_constant=with_constant)
        better = next((k for k in allowed if score(k[0], k[1], with_constant=k[2]) < lowest), None)
        if better is None:
            return best
        best = better
    return best


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings, which every fit of five points has, and keep linear algebra on one thread.

    The matrices are 2 x 2: on two busy cores more threads made a search take 20 s instead of 0.5.
    """
    with warnings.catch_warnings(), threadpool_limits(limits=1, user_api="blas"):
        warnings.simplefilter("ignore")
        yield


def _model(series: FloatArray, order: tuple[int, int, int], *, constant: bool) -> Any:  # noqa: ANN401  (untyped)
    with _quiet():
        # Here, because it takes a second to import, and warns and sets warning filters while it does.
        from statsmodels.tsa.statespace.sarimax import SARIMAX  # noqa: PLC0415

        return SARIMAX(series, order=order, trend="c" if constant else None)


def _fit(series: FloatArray, order: tuple[int, int, int], *, constant: bool) -> tuple[float, tuple[float, ...]]:
    """Return AIC and coefficients; an infinite AIC for a model that cannot be fitted or is next to a unit root."""
    model = _model(series, order, constant=constant)
    with _quiet():
        try:
            fitted = model.fit(disp=0, maxiter=_MAX_ITERATIONS)
            aic = float(fitted.aic)
            roots = np.abs(np.concatenate((fitted.arroots, fitted.maroots)))
        except (ValueError, IndexError, np.linalg.LinAlgError):
            return math.inf, ()
    unstable = bool(len(roots)) and float(roots.min()) < _UNIT_ROOT
    usable = math.isfinite(aic) and not unstable
    return (aic if usable else math.inf), tuple(float(v) for v in fitted.params)


@lru_cache(maxsize=8192)
def _refitted(model: Arima, values: tuple[float, ...]) -> Arima:
    series = _space(values, log=model.log)
    state_space = _model(series, (model.p, model.d, model.q), constant=model.constant)
    with _quiet():
        try:
            fitted = state_space.fit(
                start_params=np.asarray(model.parameters), disp=0, maxiter=max(_MIN_REFIT, len(series) // 10)
            )
        except (ValueError, IndexError, np.linalg.LinAlgError):
            return model  # the coefficients stay as they were
    return Arima(
        p=model.p,
        d=model.d,
        q=model.q,
        constant=model.constant,
        log=model.log,
        parameters=tuple(float(v) for v in fitted.params),
    )


def _plain_next(model: Arima, series: FloatArray) -> float:
    """Return the forecast of (0,d,0): the mean, or the last value plus the mean step, as often as differenced."""
    mean = float(np.diff(series, model.d).mean()) if model.constant and len(series) > model.d else 0.0
    for k in reversed(range(model.d)):
        mean += float(np.diff(series, k)[-1])
    return mean


@lru_cache(maxsize=8192)
def _state_next(model: Arima, values: tuple[float, ...]) -> float:
    series = _space(values, log=model.log)
    state_space = _model(series, (model.p, model.d, model.q), constant=model.constant)
    with _quiet():
        return float(state_space.filter(np.asarray(model.parameters)).forecast(1)[0])
