"""What must be carried: the forecast's quantile, never below what comes now, and the backlog."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.core.trust import Doubt, believed, doubt_in
from tidegate.terms.decision import Reason
from tidegate.terms.fleet import ReplicaState
from tidegate.terms.forecast import Forecast, Quantity
from tidegate.terms.observation import PoolObservation, ServiceObservation
from tidegate.terms.policy import ServicePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Demand on one service. None: not known; a known part of a sum is a lower bound."""

    service: str
    forecast_per_s: float | None  # requests/s: highest of the policy's quantile over the horizon
    now_per_s: float | None  # requests/s arriving at the gateway
    backlog_requests: float | None  # waiting in engines and held at the gateway
    horizon_s: float  # of the forecast; 0 without one
    method: str  # of the forecast
    doubts: tuple[Doubt, ...]  # what forbids lowering


def demand_on(
    policy: ServicePolicy, observed: ServiceObservation | None, forecasts: Sequence[Forecast], *, now_s: float
) -> Demand:
    """Return what `policy`'s service must carry.

    Completions are no demand: while a burst is worked off they are twice what arrives, and sized for they would order
    a second fleet for work that is nearly done. They must still be known before anything is lowered. When arrivals are
    lost, the backlog and the latencies raise.
    """
    stale_after_s = policy.scaling.stale_after_s
    forecast, doubts = _forecast_of(policy, forecasts, now_s=now_s)
    if observed is None:
        lost = Doubt(signal=f"{policy.name} observation", reason=Reason.STALE_METRICS, detail="absent")
        return _demand(policy, forecast, now_per_s=None, backlog=(), doubts=(*doubts, lost))
    arrivals = observed.arrivals_per_s
    doubts += _present(doubt_in(f"{policy.name} arrivals_per_s", arrivals, now_s=now_s, stale_after_s=stale_after_s))
    backlog: list[float] = []
    wanted_pools = {p.key for p in policy.pools}
    for pool in observed.pools:
        if pool.key not in wanted_pools:
            continue
        doubts += pool_doubts(pool, now_s=now_s, stale_after_s=stale_after_s)
        for signal in (pool.waiting_requests, pool.gateway_pending_requests):
            backlog += _numbers(believed(signal, now_s=now_s, stale_after_s=stale_after_s))
    now_per_s = believed(arrivals, now_s=now_s, stale_after_s=stale_after_s)
    return _demand(policy, forecast, now_per_s=now_per_s, backlog=backlog, doubts=doubts)


def pool_doubts(pool: PoolObservation, *, now_s: float, stale_after_s: float) -> tuple[Doubt, ...]:
    """Return why this pool's own signals forbid lowering; engines are asked only when one is ready to answer."""
    doubts = tuple(Doubt(signal=f"{pool.key} {v}", reason=Reason.CONTRACT_VIOLATION) for v in pool.violations)
    signals = [("gateway_pending_requests", pool.gateway_pending_requests, True)]
    if any(r.replica.state is ReplicaState.READY for r in pool.replicas):
        signals += [
            ("waiting_requests", pool.waiting_requests, False),
            ("running_requests", pool.running_requests, False),
            ("finished_per_s", pool.finished_per_s, True),
        ]
    for name, signal, optional in signals:
        doubts += _present(
            doubt_in(f"{pool.key} {name}", signal, now_s=now_s, stale_after_s=stale_after_s, optional=optional)
        )
    return doubts


def _demand(
    policy: ServicePolicy,
    forecast: Forecast | None,
    *,
    now_per_s: float | None,
    backlog: Sequence[float],
    doubts: tuple[Doubt, ...],
) -> Demand:
    return Demand(
        service=policy.name,
        forecast_per_s=forecast.peak(policy.scaling.forecast_quantile) if forecast else None,
        now_per_s=now_per_s,
        backlog_requests=sum(backlog) if backlog else None,
        horizon_s=forecast.horizon_s if forecast else 0.0,
        method=forecast.method if forecast else "",
        doubts=doubts,
    )


def _forecast_of(
    policy: ServicePolicy, forecasts: Sequence[Forecast], *, now_s: float
) -> tuple[Forecast | None, tuple[Doubt, ...]]:
    mine = [f for f in forecasts if f.service == policy.name and f.quantity is Quantity.REQUESTS_PER_S]
    name = f"{policy.name} forecast"
    if not mine:
        return None, (Doubt(signal=name, reason=Reason.STALE_METRICS, detail="none was made"),)
    newest = max(mine, key=lambda f: f.made_at_s)
    flat = [v for row in newest.values for v in row]
    shaped = bool(flat) and len(newest.values) == len(newest.levels) and all(newest.values)
    if not shaped or not all([0.0 <= v < math.inf for v in flat]):  # noqa: C419  (a list is faster)
        return None, (Doubt(signal=name, reason=Reason.STALE_METRICS, detail="not finite numbers >= 0"),)
    age_s = max(0.0, now_s - newest.made_at_s)
    if age_s > policy.scaling.stale_after_s:
        return None, (Doubt(signal=name, reason=Reason.STALE_METRICS, detail=f"made {age_s:.0f} s ago"),)
    return newest, ()


def _present(doubt: Doubt | None) -> tuple[Doubt, ...]:
    return () if doubt is None else (doubt,)


def _numbers(number: float | None) -> list[float]:
    return [] if number is None else [number]
