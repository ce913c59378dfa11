"""Which method forecasts which series; today there is one method and its fallback."""

from collections.abc import Mapping, Sequence

from tidegate.forecast.baseline import forecast
from tidegate.forecast.series import HistoryTooShortError
from tidegate.terms.forecast import Forecast
from tidegate.terms.history import History

# The lower ones draw the band, the upper ones are what is sized for.
LEVELS = (0.1, 0.5, 0.8, 0.9, 0.95, 0.99)


def foresee(
    histories: Sequence[History],
    *,
    horizons_s: Mapping[str, float],
    now_s: float,
    levels: tuple[float, ...] = LEVELS,
    default_horizon_s: float = 60.0,
) -> tuple[Forecast, ...]:
    """Return a forecast of each history that has at least one usable sample, in their order.

    Args:
        histories: Any services and quantities.
        horizons_s: Seconds to look ahead per service: the cold start p95 of its slowest pool.
        now_s: Unix time the forecasts are made at.
        levels: Quantiles in (0, 1), ascending.
        default_horizon_s: For services not named in `horizons_s`.

    A history without a usable sample has no forecast: nothing is known, and the decision says so.
    """
    made: list[Forecast] = []
    for history in histories:
        horizon_s = max(history.step_s, horizons_s.get(history.service, default_horizon_s))
        try:
            made.append(forecast(history, horizon_s=horizon_s, levels=levels, now_s=now_s))
        except HistoryTooShortError:
            continue
    return tuple(made)
