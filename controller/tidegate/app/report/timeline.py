"""A run's course, read from its journal."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.app.record import TickRecord
from tidegate.core.explain import sentence
from tidegate.terms.fleet import ReplicaState
from tidegate.terms.forecast import Quantity
from tidegate.terms.signal import Signal, Unknown

BAND_LEVELS = (0.5, 0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One tick of one pool. None is unknown, never zero."""

    at_s: float  # Unix time
    arrivals_per_s: float | None
    forecast_per_s: tuple[float, ...] | None  # at BAND_LEVELS, for the end of the horizon
    horizon_s: float
    ready: int
    starting: int
    draining: int
    asked: int
    wanted: int | None
    moved: bool
    reason: str
    sentence: str

    @property
    def existing(self) -> int:
        """Replicas that cost money now."""
        return self.ready + self.starting + self.draining


def timeline(records: Iterable[TickRecord], *, service: str, pool: str) -> tuple[Moment, ...]:
    """Return the moments of one pool, oldest first."""
    found: list[Moment] = []
    for record in records:
        decided = next((p for p in record.decision.pools if p.key.service == service and p.key.pool == pool), None)
        seen = next((s for s in record.inputs.observation.services if s.service == service), None)
        if decided is None:
            continue
        members = next((p.replicas for p in seen.pools if p.key == decided.key), ()) if seen else ()
        states = [m.replica.state for m in members]
        forecast = next(
            (
                f
                for f in record.inputs.forecasts
                if f.service == service and f.quantity is Quantity.REQUESTS_PER_S and f.values
            ),
            None,
        )
        found.append(
            Moment(
                at_s=record.inputs.now_s,
                arrivals_per_s=_known(seen.arrivals_per_s) if seen else None,
                forecast_per_s=tuple(forecast.peak(level) for level in BAND_LEVELS) if forecast else None,
                horizon_s=forecast.horizon_s if forecast else 0.0,
                ready=states.count(ReplicaState.READY),
                starting=states.count(ReplicaState.STARTING),
                draining=states.count(ReplicaState.DRAINING),
                asked=decided.asked_replicas,
                wanted=decided.wanted_replicas,
                moved=decided.asked_replicas != decided.asked_before_replicas,
                reason=str(decided.binding),
                sentence=sentence(decided),
            )
        )
    return tuple(found)


def replica_seconds(moments: tuple[Moment, ...], *, start_s: float, end_s: float) -> float:
    """Return the time replicas existed (order to end of drain) between two Unix times, in replica-seconds.

    Each tick's count stands until the next tick, so the error is at most one tick per move.
    """
    total = 0.0
    for i, moment in enumerate(moments):
        until_s = moments[i + 1].at_s if i + 1 < len(moments) else end_s
        total += moment.existing * max(0.0, min(until_s, end_s) - max(moment.at_s, start_s))
    return total


def _known(signal: Signal) -> float | None:
    return None if isinstance(signal, Unknown) else signal.number
