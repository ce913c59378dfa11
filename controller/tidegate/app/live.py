"""The live table of `tidegate run` in a terminal."""

from collections import deque

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidegate.app.loop import LoopStatus
from tidegate.app.record import TickRecord
from tidegate.app.tick import Ticked
from tidegate.core.explain import sentence
from tidegate.terms.decision import PoolDecision, Verdict
from tidegate.terms.forecast import Quantity
from tidegate.terms.observation import ServiceObservation
from tidegate.terms.signal import Signal, Unknown

_COLUMNS = ("pool", "load now", "forecast p90", "ready", "starting", "draining", "wanted", "asked", "objectives")
_MOVES_SHOWN = 6
_COLOUR = {Verdict.GROW: "green", Verdict.SHRINK: "cyan", Verdict.HOLD: "default"}


class LiveTable:
    """Redraws one screen per tick; use as a context manager."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._moves: deque[Text] = deque(maxlen=_MOVES_SHOWN)

    def show(self, ticked: Ticked, status: LoopStatus) -> None:
        """Draw the newest tick."""
        record = ticked.record
        for pool in record.decision.pools:
            if pool.verdict is not Verdict.HOLD:
                self._moves.append(Text(f"#{record.decision.sequence} {sentence(pool)}", style=_COLOUR[pool.verdict]))
        problems = [e for e in (status.journal_error, status.sweep_error, status.tick_error) if e]
        now = [Text(sentence(pool), style="bold") for pool in record.decision.pools]
        last = [Text("last moves", style="dim"), *self._moves] if self._moves else []
        self._live.update(
            Group(pools_table(record), *now, *last, *(Text(problem, style="red") for problem in problems)), refresh=True
        )


def pools_table(record: TickRecord) -> Table:
    """Return one row per pool; what is unknown says so."""
    table = Table(*_COLUMNS, title=f"Tidegate, decision {record.decision.sequence}", title_justify="left", expand=True)
    for pool in record.decision.pools:
        seen = next((s for s in record.inputs.observation.services if s.service == pool.key.service), None)
        table.add_row(*_row(pool, seen, record), style=_COLOUR[pool.verdict])
    return table


def _row(pool: PoolDecision, seen: ServiceObservation | None, record: TickRecord) -> tuple[str, ...]:
    forecast = next(
        (
            f
            for f in record.inputs.forecasts
            if f.service == pool.key.service and f.quantity is Quantity.REQUESTS_PER_S and f.values
        ),
        None,
    )
    return (
        str(pool.key),
        f"{text(seen.arrivals_per_s)} req/s" if seen else "unknown",
        f"{forecast.peak(0.9):.2f} req/s in {forecast.horizon_s:.0f} s" if forecast else "unknown",
        str(pool.ready_replicas),
        str(pool.starting_replicas),
        str(pool.draining_replicas),
        "unknown" if pool.wanted_replicas is None else str(pool.wanted_replicas),
        str(pool.asked_replicas),
        "  ".join(f"{s.slo} {text(s.attained_ratio, percent=True)}" for s in seen.slis) if seen else "unknown",
    )


def text(signal: Signal, *, percent: bool = False) -> str:
    """Return a signal for people: the number, or "unknown (reason)"."""
    if isinstance(signal, Unknown):
        return f"unknown ({signal.reason})"
    return f"{100 * signal.number:.1f} %" if percent else f"{signal.number:.2f}"
