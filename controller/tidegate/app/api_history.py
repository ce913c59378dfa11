"""Series for the page's charts: load, forecast band, objectives, replicas. What is unknown has no point."""

from collections.abc import Sequence

from tidegate.app import api_models as out
from tidegate.app.state import Newest, ServicePoint, TickPoint, request_forecast
from tidegate.terms.fleet import PoolKey
from tidegate.terms.forecast import Quantity
from tidegate.terms.policy import ServicePolicy

MAX_POINTS = 400  # per series; a chart is no wider
_COUNTS = ("ready", "starting", "draining", "asked", "wanted")


def history_out(
    newest: Newest | None, ticks: Sequence[TickPoint], *, service: str | None, since_s: float, now_s: float
) -> out.HistoryOut:
    """Return the series of all services, or of one.

    Args:
        newest: The newest tick; its pulled load series is finer than the ticks.
        ticks: Oldest first.
        service: Only this one; all when None.
        since_s: Unix time where the charts begin.
        now_s: Unix time of the answer.
    """
    policies = newest.record.inputs.policies if newest is not None else ()
    thin = _thinned(ticks)
    services = [_service(p, newest, thin, since_s) for p in policies if newest and service in (None, p.name)]
    return out.HistoryOut(now_s=now_s, since_s=since_s, services=services)


def _thinned(ticks: Sequence[TickPoint]) -> Sequence[TickPoint]:
    """Return every n-th tick, the newest always among them."""
    stride = -(-len(ticks) // MAX_POINTS) if ticks else 1
    return ticks[(len(ticks) - 1) % stride :: stride] if ticks else ticks


def _service(
    policy: ServicePolicy, newest: Newest, ticks: Sequence[TickPoint], since_s: float
) -> out.ServiceHistoryOut:
    points = [(t.at_s, t.services[policy.name]) for t in ticks if policy.name in t.services]
    return out.ServiceHistoryOut(
        service=policy.name,
        load=_load(policy.name, newest, points, since_s),
        band=_band(policy.name, newest, points, since_s),
        attained=[_series(s.name, [(at_s, dict(p.attained).get(s.name)) for at_s, p in points]) for s in policy.slos],
        quantiles_s=[
            _series(s.name, [(at_s, dict(p.quantiles_s).get(s.name)) for at_s, p in points]) for s in policy.slos
        ],
        pools={p.key.pool: _pool(p.key, ticks) for p in policy.pools},
    )


def _series(name: str, points: Sequence[tuple[float, float | None]]) -> out.SeriesOut:
    return out.SeriesOut(name=name, points=[(at_s, value) for at_s, value in points if value is not None])


def _load(service: str, newest: Newest, points: Sequence[tuple[float, ServicePoint]], since_s: float) -> out.SeriesOut:
    """Return the arrivals as observed at each tick; before the first of them, as pulled from Prometheus."""
    seen = [(at_s, p.arrivals_per_s) for at_s, p in points]
    first_s = seen[0][0] if seen else newest.record.inputs.now_s
    pulled: list[tuple[float, float | None]] = [
        (at_s, value)
        for h in newest.view.histories
        if h.service == service and h.quantity is Quantity.REQUESTS_PER_S
        for at_s, value in h.samples
        if since_s <= at_s < first_s
    ]
    return _series("arrivals_per_s", [*pulled, *seen])


def _band(service: str, newest: Newest, points: Sequence[tuple[float, ServicePoint]], since_s: float) -> out.BandOut:
    forecast = request_forecast(newest.record, service)
    told = [p for _, p in points if p.ahead is not None]
    if forecast is None and not told:
        return out.BandOut(levels=[], points=[])
    levels = forecast.levels if forecast is not None else told[-1].levels
    until_s = forecast.made_at_s if forecast is not None else newest.record.inputs.now_s
    past = [
        [p.ahead[0], *p.ahead[1]]
        for p in told
        if p.ahead is not None and p.levels == levels and since_s <= p.ahead[0] <= until_s
    ]
    coming: list[list[float]] = []
    if forecast is not None:
        coming = [
            [forecast.made_at_s + forecast.step_s * (j + 1), *(row[j] for row in forecast.values)]
            for j in range(len(forecast.values[0]))
        ]
    # A horizon that shrank brings later forecasts to earlier moments: order by the moment foretold.
    return out.BandOut(levels=list(levels), points=[*sorted(past), *coming])


def _pool(key: PoolKey, ticks: Sequence[TickPoint]) -> list[out.SeriesOut]:
    points = [(t.at_s, t.pools[key]) for t in ticks if key in t.pools]
    return [_series(name, [(at_s, getattr(p, name)) for at_s, p in points]) for name in _COUNTS]
