"""Sums over the ready replicas of one pool, with coverage = those that reported / all."""

import numpy as np

from tidegate.sim.membership import SOURCE, PoolMembers
from tidegate.sim.metric_faults import rows_of
from tidegate.sim.sample import FleetSample
from tidegate.sim.trace import Int64Array
from tidegate.sim.window import Window
from tidegate.terms.signal import Signal, UnknownReason, unknown

_EVERY_ROW = slice(None)


class PoolSums:
    """One pool's ready replicas in the samples at both ends of a window."""

    def __init__(self, members: PoolMembers, engines: Window) -> None:
        self._engines = engines
        self._ready = members.ready
        self._last = _rows(engines.last, members.ready)

    def gauge(self, column: str) -> Signal:
        """Return the sum of a gauge."""
        engines, last = self._engines, self._engines.last
        if not len(self._ready):
            return _nobody(engines)
        if last is None:
            return engines.lost()
        rows = self._last if isinstance(self._last, slice) else self._last[self._last >= 0]
        numbers = getattr(last, column)[rows]
        if not len(numbers):
            return unknown(UnknownReason.ABSENT, "not scraped yet", now_s=engines.now_s, source=SOURCE)
        total = float(engines.copies * int(numbers.sum()))
        return engines.read(total, coverage_ratio=len(numbers) / len(self._ready))

    def rates(self, *columns: str) -> tuple[Signal, ...]:
        """Return the sum of each counter's growth per second."""
        engines, last, first = self._engines, self._engines.last, self._engines.first
        if not len(self._ready):
            return (_nobody(engines),) * len(columns)
        if last is None:
            return (engines.lost(),) * len(columns)
        now, then = self._last, _rows(first, self._ready)
        if not (isinstance(now, slice) and isinstance(then, slice)):
            now, then = _both(now, then, len(self._ready))
        known = len(last.member[now])
        if first is None or not known:
            return (engines.young(),) * len(columns)
        coverage_ratio = known / len(self._ready)
        grown = [int(getattr(last, c)[now].sum()) - int(getattr(first, c)[then].sum()) for c in columns]
        return tuple(engines.read(engines.copies * g / engines.span_s, coverage_ratio=coverage_ratio) for g in grown)


def _rows(sample: FleetSample | None, ready: Int64Array) -> slice | Int64Array:
    """Return the rows of the ready replicas, -1 where one is not there; all rows when they are exactly those."""
    if sample is None:
        return rows_of(ready[:0], ready)
    if len(sample.member) == len(ready) and (sample.member == ready).all():
        return _EVERY_ROW
    return rows_of(sample.member, ready)


def _both(now: slice | Int64Array, then: slice | Int64Array, ready: int) -> tuple[Int64Array, Int64Array]:
    """Return the rows at either end of those that are there at both."""
    ends = [np.arange(ready, dtype=np.int64) if isinstance(rows, slice) else rows for rows in (now, then)]
    known = (ends[0] >= 0) & (ends[1] >= 0)
    return ends[0][known], ends[1][known]


def _nobody(engines: Window) -> Signal:
    return unknown(UnknownReason.ABSENT, "no replica reported", now_s=engines.now_s, source=SOURCE)
