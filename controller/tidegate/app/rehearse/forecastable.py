"""Whether a load can be foreseen a cold start ahead, by whichever simple forecaster does it best."""

from collections.abc import Callable

import numpy as np

from tidegate.app.rehearse.document import Forecastable
from tidegate.app.tick import HISTORY_STEPS
from tidegate.forecast.select import foresee
from tidegate.perf.profile import PS_PER_S
from tidegate.sim.trace import FloatArray, Trace
from tidegate.terms.forecast import Quantity
from tidegate.terms.history import History

# Above this error at the start-up horizon no member is worth following.
MOST_WAPE_RATIO = 0.15
# Forecasts are judged from this many moments at most, evenly spread: a day takes a second.
MOST_ORIGINS = 500
# Fewer errors than this say nothing.
LEAST_ORIGINS = 30
# Steps of the past before the first forecast: what the trend needs to begin.
WARM_STEPS = 12
# The longest step that leaves enough of them is taken; shorter ones are mostly counting noise.
STEPS_S = (60.0, 30.0, 15.0, 10.0, 5.0)
MEAN_S = 600.0

Member = Callable[[FloatArray, float, int], float]  # (past rates, their step in s, steps ahead) -> requests/s


def forecastable_of(trace: Trace, *, horizon_s: float) -> tuple[Forecastable | None, str | None]:
    """Return the least error of any member at the horizon and whether it is small enough; or None and why.

    The error is WAPE: absolute errors of requests/s in the step that lies the horizon ahead, over the load in those
    steps. Every member sees only what had arrived when it was asked.

    Args:
        trace: The load.
        horizon_s: Seconds from order to ready, > 0.
    """
    for step_s in STEPS_S:
        rates = rates_of(trace, step_s)
        ahead = max(1, int(np.ceil(horizon_s / step_s - 1e-9)))
        origins = np.arange(WARM_STEPS, len(rates) - ahead + 1)  # rates[:origin] are known, the next one is 1 ahead
        if len(origins) >= LEAST_ORIGINS:
            break
    else:
        need_s = (WARM_STEPS + LEAST_ORIGINS - 1) * STEPS_S[-1] + horizon_s
        return None, (
            f"too short: {trace.seconds:.0f} s of load, needs {need_s:.0f} s to judge forecasts {horizon_s:g} s ahead"
        )
    origins = origins[np.unique(np.linspace(0, len(origins) - 1, min(MOST_ORIGINS, len(origins))).round().astype(int))]
    actual = rates[origins + ahead - 1]
    if not actual.any():
        return None, "no request arrived in any step that was forecast"
    errors = {
        name: float(np.abs(np.array([member(rates[:o], step_s, ahead) for o in origins]) - actual).sum() / actual.sum())
        for name, member in MEMBERS.items()
    }
    best = min(errors, key=lambda name: errors[name])
    wape = errors[best]
    return Forecastable(member=best, wape_ratio=wape, horizon_s=horizon_s, forecastable=wape <= MOST_WAPE_RATIO), None


def rates_of(trace: Trace, step_s: float) -> FloatArray:
    """Return requests/s of each whole step, (n,); what is left at the end is no step."""
    steps = int(trace.seconds / step_s + 1e-9)
    index = trace.arrival_ps // round(step_s * PS_PER_S)
    rates: FloatArray = np.bincount(index, minlength=steps)[:steps] / step_s
    return rates


def _last(past: FloatArray, step_s: float, ahead: int) -> float:  # noqa: ARG001  (a member)
    return float(past[-1])


def _mean(past: FloatArray, step_s: float, ahead: int) -> float:  # noqa: ARG001  (a member)
    return float(past[-round(MEAN_S / step_s) :].mean())


def _trend(past: FloatArray, step_s: float, ahead: int) -> float:
    """Return the median of Tidegate's own forecast, which sees as much of the past as in production."""
    newest = past[-HISTORY_STEPS:]
    now_s = len(past) * step_s
    first_s = now_s - (len(newest) - 1) * step_s
    history = History(
        service="load",
        quantity=Quantity.REQUESTS_PER_S,
        step_s=step_s,
        samples=tuple((first_s + i * step_s, rate) for i, rate in enumerate(newest.tolist())),
        source="trace",
    )
    (made,) = foresee([history], horizons_s={"load": ahead * step_s}, now_s=now_s, levels=(0.5,))
    return made.values[0][ahead - 1]


MEMBERS: dict[str, Member] = {
    "last value": _last,
    "mean of 10 minutes": _mean,
    "trend with level shifts": _trend,
}
