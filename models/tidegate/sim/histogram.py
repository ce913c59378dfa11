"""Latency histograms of a simulated gateway: their bucket bounds, and what the growth of their counters tells."""

from collections.abc import Iterable

import numpy as np

from tidegate.perf.profile import PS_PER_S
from tidegate.sim.trace import Int64Array

_PS_PER_MS = PS_PER_S // 1000
# Thresholds that objectives commonly name, as the real gateway's histograms have them.
LATENCY_BOUNDS_PS = tuple(
    ms * _PS_PER_MS
    for ms in (
        50, 100, 200, 250, 300, 400, 500, 750, 1_000, 1_500, 2_000, 3_000, 5_000, 7_500, 10_000, 15_000, 20_000,
        30_000, 60_000, 120_000, 300_000,
    )
)  # fmt: skip
TPOT_BOUNDS_PS = tuple(
    ms * _PS_PER_MS
    for ms in (
        2, 5, 8, 10, 15, 20, 25, 30, 40, 50, 60, 75, 80, 100, 120, 150, 200, 250, 300, 400, 500, 1_000,
    )
)  # fmt: skip


def bounds_with(bounds_ps: Iterable[int], thresholds_s: Iterable[float]) -> tuple[int, ...]:
    """Return the bounds with each threshold among them, ascending, so that its share is counted exactly."""
    return tuple(sorted({*bounds_ps, *(round(t * PS_PER_S) for t in thresholds_s)}))


def share(grown: Int64Array, bounds_ps: tuple[int, ...], threshold_ps: int) -> float | None:
    """Return the share of events at or below a threshold; None of no events.

    Args:
        grown: Events per bucket, shape (len(bounds_ps) + 1,), not cumulative.
        bounds_ps: Upper bounds of the buckets, ascending; `threshold_ps` is one of them.
        threshold_ps: The threshold.

    Raises:
        ValueError: The threshold is no bound.
    """
    total = int(grown.sum())
    if not total:
        return None
    return int(grown[: bounds_ps.index(threshold_ps) + 1].sum()) / total


def quantile(grown: Int64Array, bounds_ps: tuple[int, ...], level: float) -> tuple[float, bool] | None:
    """Return (seconds, at least) for a quantile, linear inside its bucket; None of no events or no bounds.

    `at least` is True when it lies beyond the last bound, which is then returned: the truth is this or more.

    Args:
        grown: Events per bucket, shape (len(bounds_ps) + 1,), not cumulative.
        bounds_ps: Upper bounds of the buckets, ascending.
        level: In (0, 1).

    Source: Prometheus, `histogram_quantile` of a classic histogram.
    """
    upto = np.cumsum(grown)
    total = int(upto[-1])
    if not total or not bounds_ps:
        return None
    rank = level * total
    index = int(np.searchsorted(upto[:-1], rank))
    if index == len(bounds_ps):
        return bounds_ps[-1] / PS_PER_S, True
    before = int(upto[index - 1]) if index else 0
    low_ps = bounds_ps[index - 1] if index else 0
    part = (rank - before) / int(grown[index]) if grown[index] else 0.0
    return (low_ps + (bounds_ps[index] - low_ps) * part) / PS_PER_S, False
