"""Shares and quantiles of classic histograms, with the doubt their buckets leave. Pure."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.observe.result import Series


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Cumulative bucket rates: (upper bound in seconds, events per s at or below it), ascending; the last is +Inf."""

    buckets: tuple[tuple[float, float], ...]

    @property
    def total_per_s(self) -> float:
        """Events per second."""
        return self.buckets[-1][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapped:
    """A threshold as a histogram can count it.

    The share at `bound_s` (<= the threshold, the stricter side) is a lower bound of the true share; the share at
    `next_bound_s` is an upper bound.
    """

    bound_s: float
    next_bound_s: float
    exact: bool


def histogram(rows: Iterable[Series], *, scale_s: float = 1.0, offset: float = 0.0) -> Histogram | None:
    """Return the histogram of bucket rows, or None when they are none (no rows, no +Inf bucket, no number).

    Rows with the same bound are added: `le="1"` and `le="1.0"` are one bound. A later bucket is never below an earlier
    one; the small inversions that separate rates of buckets show are ironed out.

    Args:
        rows: One per bucket, with `le`.
        scale_s: Seconds per unit of the bounds.
        offset: Added to each bound before scaling.
    """
    rates: dict[float, float] = {}
    for row in rows:
        try:
            bound = float(row.labels.get("le", ""))
        except ValueError:
            return None
        rates[bound] = rates.get(bound, 0.0) + row.samples[-1][1]
    if math.inf not in rates or not all(math.isfinite(r) for r in rates.values()):
        return None
    highest = 0.0
    buckets = []
    for bound in sorted(rates):
        highest = max(highest, rates[bound])
        buckets.append(((bound + offset) * scale_s, highest))
    return Histogram(buckets=tuple(buckets))


def snap(of: Histogram, threshold_s: float) -> Snapped | None:
    """Return the bounds around the threshold, or None when it lies below all of them."""
    # 1e-9 relative: 80 ms and 0.08 s must be the same bound after scaling.
    at_or_below = [b for b, _ in of.buckets if b <= threshold_s * (1 + 1e-9) and math.isfinite(b)]
    if not at_or_below:
        return None
    bound_s = at_or_below[-1]
    exact = math.isclose(bound_s, threshold_s, rel_tol=1e-9)
    above = next(b for b, _ in of.buckets if b > bound_s)
    return Snapped(bound_s=bound_s, next_bound_s=bound_s if exact else above, exact=exact)


def share(of: Histogram, bound_s: float) -> float:
    """Return the share of events at or below a bucket bound; `total_per_s` must be > 0."""
    return next(rate for bound, rate in of.buckets if bound >= bound_s) / of.total_per_s


def quantile(of: Histogram, level: float) -> tuple[float, bool]:
    """Return (seconds, at least) for the quantile, linear inside its bucket; `total_per_s` must be > 0.

    `at least` is True when the quantile lies beyond the last finite bound: then that bound is what is returned.
    """
    target = level * of.total_per_s
    below_s, below = 0.0, 0.0
    for bound_s, rate in of.buckets:
        if math.isinf(bound_s):
            break
        if rate >= target and rate > below:
            return below_s + (bound_s - below_s) * (target - below) / (rate - below), False
        below_s, below = bound_s, rate
    return below_s, True
