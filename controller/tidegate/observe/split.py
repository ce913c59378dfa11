"""Range queries cut into pieces on the step grid, and put together again without a point twice."""

import math
from collections.abc import Iterable

from tidegate.observe.result import Series

# Prometheus refuses (end - start) / step > 11,000 with 400 bad_data; 11,001 points pass.
MAX_STEPS = 11_000


def chunks(
    start_s: float, end_s: float, step_s: float, *, max_steps: int = MAX_STEPS
) -> tuple[tuple[float, float], ...]:
    """Return (start, end) pairs, inclusive, all on multiples of `step_s`, that cover every grid point in the range.

    Empty when no grid point lies in it. Neighbours share no point.

    Args:
        start_s: Unix time; rounded up to the grid.
        end_s: Unix time; rounded down to the grid.
        step_s: Seconds, > 0.
        max_steps: Steps a piece may span, >= 1.

    Raises:
        ValueError: `step_s` or `max_steps` is not positive.
    """
    if step_s <= 0 or max_steps < 1:
        msg = f"chunks: step_s must be > 0 and max_steps >= 1, got {step_s} and {max_steps}"
        raise ValueError(msg)
    # 1e-9: a start that is on the grid up to float noise must not lose its own point.
    first = math.ceil(start_s / step_s - 1e-9)
    last = math.floor(end_s / step_s + 1e-9)
    pieces = []
    while first <= last:
        until = min(first + max_steps, last)
        pieces.append((first * step_s, until * step_s))
        first = until + 1
    return tuple(pieces)


def merge(parts: Iterable[Iterable[Series]]) -> tuple[Series, ...]:
    """Return one series per label set with every time once, oldest first; of equal times the earlier part wins."""
    by_labels: dict[tuple[tuple[str, str], ...], dict[float, float]] = {}
    for part in parts:
        for series in part:
            samples = by_labels.setdefault(tuple(sorted(series.labels.items())), {})
            for at_s, number in series.samples:
                samples.setdefault(at_s, number)
    return tuple(
        Series(labels=dict(labels), samples=tuple(sorted(samples.items()))) for labels, samples in by_labels.items()
    )
