"""The newest tick and a bounded past, written by the loop and read by the page, the API and our own metrics."""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidegate.app.record import TickRecord
from tidegate.app.signals import server_trouble
from tidegate.terms.decision import PoolDecision
from tidegate.terms.fleet import Membership, PoolKey
from tidegate.terms.forecast import Forecast, Quantity
from tidegate.terms.history import History
from tidegate.terms.observation import ServiceObservation
from tidegate.terms.signal import Signal, Unknown

MAX_DECISIONS = 2_000  # pool decisions kept for the page; the journal keeps them all
MAX_TICKS = 1_440  # six hours at 15 s
MAX_POOL_POINTS = 200_000  # about 30 MB over all pools; with many pools the past kept is shorter
_LEAST_TICKS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveView:
    """What the page shows beside the record; no part of a decision."""

    membership: Membership | None = None
    histories: tuple[History, ...] = ()
    tick_duration_s: float | None = None
    gateway_acked: bool = False
    journal_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePoint:
    """One service at one tick; None is unknown."""

    arrivals_per_s: float | None
    # (Unix time, values by level) of the forecast's last step: what was expected one start-up time ahead
    ahead: tuple[float, tuple[float, ...]] | None
    levels: tuple[float, ...]
    attained: tuple[tuple[str, float | None], ...]  # (slo, ratio)
    quantiles_s: tuple[tuple[str, float | None], ...]  # (slo, seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPoint:
    """One pool at one tick."""

    ready: int
    starting: int
    draining: int
    asked: int
    wanted: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TickPoint:
    """One tick, reduced to what a chart draws."""

    at_s: float
    services: Mapping[str, ServicePoint]
    pools: Mapping[PoolKey, PoolPoint]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatedDecision:
    """One pool's decision with its moment."""

    decided_at_s: float
    sequence: int
    pool: PoolDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The newest tick."""

    record: TickRecord
    view: LiveView


class LiveState:
    """Holds what one controller process knows; safe to read from another thread than the writer's."""

    def __init__(self, *, started_at_s: float, stale_after_s: float = 60.0, rate_window_s: float | None = None) -> None:
        """Start empty.

        Args:
            started_at_s: Unix time of the process start.
            stale_after_s: A newest decision older than this makes the controller not ready; a few tick periods.
            rate_window_s: Seconds over which rates and attained shares are taken; None: not told.
        """
        self.started_at_s = started_at_s
        self.stale_after_s = stale_after_s
        self.rate_window_s = rate_window_s
        self._lock = threading.Lock()
        self._newest: Newest | None = None
        self._decisions: deque[DatedDecision] = deque(maxlen=MAX_DECISIONS)
        self._ticks: deque[TickPoint] = deque(maxlen=MAX_TICKS)
        self._listeners: list[Callable[[TickRecord, LiveView], None]] = []

    def listen(self, listener: Callable[[TickRecord, LiveView], None]) -> None:
        """Call `listener` with every publication from now on, in the publishing thread."""
        self._listeners.append(listener)

    def publish(self, record: TickRecord, view: LiveView) -> None:
        """Make `record` the newest; the loop calls this once a tick."""
        point = _tick_point(record)
        decision = record.decision
        dated = [
            DatedDecision(decided_at_s=decision.decided_at_s, sequence=decision.sequence, pool=p)
            for p in decision.pools
        ]
        keep = max(_LEAST_TICKS, min(MAX_TICKS, MAX_POOL_POINTS // max(1, len(decision.pools))))
        with self._lock:
            self._newest = Newest(record=record, view=view)
            self._decisions.extend(dated)
            self._ticks.append(point)
            while len(self._ticks) > keep:
                self._ticks.popleft()
        for listener in self._listeners:
            listener(record, view)

    def newest(self) -> Newest | None:
        """Return the newest tick, or None before the first."""
        with self._lock:
            return self._newest

    def decisions(self, limit: int, pool: PoolKey | None = None) -> tuple[DatedDecision, ...]:
        """Return at most `limit` decisions, newest first; of one pool when given."""
        with self._lock:
            kept = list(self._decisions)
        return tuple(d for d in reversed(kept) if pool is None or d.pool.key == pool)[:limit]

    def ticks(self, since_s: float) -> tuple[TickPoint, ...]:
        """Return the ticks at or after `since_s`, oldest first."""
        with self._lock:
            return tuple(t for t in self._ticks if t.at_s >= since_s)

    def trouble(self, now_s: float) -> tuple[str, ...]:
        """Return what keeps the controller from being ready as far as its ticks show; empty when nothing does."""
        newest = self.newest()
        if newest is None:
            return ("no observation yet",)
        found: list[str] = []
        age_s = now_s - newest.record.decision.decided_at_s
        if age_s > self.stale_after_s:
            found.append(f"the last decision is {age_s:.0f} s old, must be at most {self.stale_after_s:.0f} s")
        lost = server_trouble(newest.record.inputs.observation)
        if lost:
            found.append(f"Prometheus gives no answer ({lost})")
        if newest.view.journal_error:
            found.append(newest.view.journal_error)
        return tuple(found)


def number(signal: Signal) -> float | None:
    """Return the signal's number, or None when it is unknown; for charts, which draw a gap."""
    return None if isinstance(signal, Unknown) else signal.number


def request_forecast(record: TickRecord, service: str) -> Forecast | None:
    """Return the record's forecast of a service's requests/s, or None when there is none."""
    found = [
        f
        for f in record.inputs.forecasts
        if f.service == service and f.quantity is Quantity.REQUESTS_PER_S and f.values and f.values[0]
    ]
    return found[-1] if found else None


def _tick_point(record: TickRecord) -> TickPoint:
    return TickPoint(
        at_s=record.decision.decided_at_s,
        services={s.service: _service_point(s, record) for s in record.inputs.observation.services},
        pools={
            p.key: PoolPoint(
                ready=p.ready_replicas,
                starting=p.starting_replicas,
                draining=p.draining_replicas,
                asked=p.asked_replicas,
                wanted=p.wanted_replicas,
            )
            for p in record.decision.pools
        },
    )


def _service_point(service: ServiceObservation, record: TickRecord) -> ServicePoint:
    forecast = request_forecast(record, service.service)
    ahead = None
    if forecast is not None:
        ahead = (forecast.made_at_s + forecast.horizon_s, tuple(row[-1] for row in forecast.values))
    return ServicePoint(
        arrivals_per_s=number(service.arrivals_per_s),
        ahead=ahead,
        levels=forecast.levels if forecast is not None else (),
        attained=tuple((s.slo, number(s.attained_ratio)) for s in service.slis),
        quantiles_s=tuple((s.slo, number(s.quantile_s)) for s in service.slis),
    )
