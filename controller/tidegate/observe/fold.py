"""Several raw series of one thing made one number, by the catalogue's rules. Pure."""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

from tidegate.catalogue.quantity import EngineCatalogue, Fold
from tidegate.observe.result import Series

_at_s = itemgetter(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """A number with the time of the oldest of the newest samples it was made from.

    For a rate, `span_s` is what it was taken over and `first_at_s` where that began; both are 0 for a gauge.
    """

    number: float
    at_s: float
    span_s: float = 0.0
    first_at_s: float = 0.0


def live(series: Iterable[Series], scrape_interval_s: float) -> tuple[Series, ...]:
    """Return the series that were still in the newest scrape.

    One exposition carries one time, so a series that ends a scrape before the others is no longer exposed.
    """
    found = tuple(series)
    if len(found) < 2:  # noqa: PLR2004 - nothing to compare
        return found
    oldest_allowed_s = max(s.newest_at_s for s in found) - 1.5 * scrape_interval_s
    return tuple(s for s in found if s.newest_at_s > oldest_allowed_s)


def totals(series: Sequence[Series], catalogue: EngineCatalogue) -> tuple[Series, ...]:
    """Return only the totals where totals and their parts are both exposed."""
    label = catalogue.total_label
    if not label:
        return tuple(series)
    whole = tuple(s for s in series if not s.labels.get(label))  # Prometheus drops empty labels
    return whole or tuple(series)


def _groups(series: Iterable[Series], copies: Iterable[str]) -> list[list[Series]]:
    found = list(series)
    if len(found) < 2:  # noqa: PLR2004 - nothing to tell apart
        return [found] if found else []
    ignored = frozenset(copies)
    groups: dict[tuple[tuple[str, str], ...], list[Series]] = defaultdict(list)
    for one in found:
        groups[tuple(sorted((k, v) for k, v in one.labels.items() if k not in ignored))].append(one)
    return list(groups.values())


def gauge(series: Sequence[Series], copies: Iterable[str], fold: Fold) -> Folded | None:
    """Return the newest reading: the largest of copies, then the sum or maximum of what is left; None without series.

    NaN in any of them gives NaN: what is not a number does not become one by adding.
    """
    if not series:
        return None
    readings = []
    for group in _groups(series, copies):
        numbers = [s.samples[-1][1] for s in group]
        readings.append(math.nan if any(math.isnan(n) for n in numbers) else max(numbers))
    total = sum(readings) if fold is Fold.SUM else max(readings)
    if any(math.isnan(n) for n in readings):
        total = math.nan
    return Folded(number=total, at_s=min(s.newest_at_s for s in series))


def increase(samples: Sequence[tuple[float, float]]) -> float:
    """Return by how much a counter grew; a fall is a restart from zero. NaN if any sample is."""
    total = 0.0
    for (_, before), (_, after) in pairwise(samples):
        total += after if after < before else after - before
    return math.nan if any(math.isnan(n) for _, n in samples) else total


def rate(
    series: Iterable[Series], copies: Iterable[str], *, since_s: float, family: Iterable[Series] = ()
) -> Folded | None:
    """Return growth per second since `since_s`: the largest of copies, summed over the rest.

    Without extrapolation: growth between two real samples over the time between them. None while no series has two
    samples. A series born in the window, while another of its target goes on from before, began at zero (a first 5xx,
    a first abort). NaN samples give NaN; a negative counter gives a negative rate.

    Args:
        series: Counters.
        copies: Labels that tell copies apart.
        since_s: Unix time; older samples are ignored.
        family: Further series of the same targets that prove they were scraped before; not added.
    """
    kept = _since(series, since_s)
    if not kept:
        return None
    going_on = _going_on_from_s([*kept, *_since(family, since_s)])
    numbers: list[float] = []
    span_s = 0.0
    for group in _groups(kept, copies):
        measured = [m for s in group if (m := _growth(s, going_on[_target(s)])) is not None]
        if measured:
            numbers.append(math.nan if any(math.isnan(n) for n, _ in measured) else max(n for n, _ in measured))
            span_s = max(span_s, *(span for _, span in measured))
    if not numbers:
        return None
    return Folded(
        number=sum(numbers),
        at_s=min(s.newest_at_s for s in kept),
        span_s=span_s,
        first_at_s=min(s.samples[0][0] for s in kept),
    )


def _since(series: Iterable[Series], since_s: float) -> list[Series]:
    kept = []
    for one in series:
        samples = one.samples
        if samples[0][0] >= since_s:
            kept.append(one)
        elif samples[-1][0] >= since_s:
            first = bisect_left(samples, since_s, key=_at_s)  # samples are in the order of time
            kept.append(Series(labels=one.labels, samples=samples[first:]))
    return kept


def _target(series: Series) -> tuple[str, str]:
    return series.labels.get("job", ""), series.labels.get("instance", "")


def _going_on_from_s(family: Sequence[Series]) -> dict[tuple[str, str], float | None]:
    """Return per target since when it was scraped, if a series from then is still there; else None.

    When all series end and others begin, labels or names changed, and the new ones carry old counts. Targets say
    nothing of each other: each is scraped at moments of its own, and a new one carries old counts too.
    """
    by_target: dict[tuple[str, str], list[Series]] = defaultdict(list)
    for one in family:
        by_target[_target(one)].append(one)
    return {target: _lasting_from_s(found) for target, found in by_target.items()}


def _lasting_from_s(family: Sequence[Series]) -> float | None:
    first_at_s = min(s.samples[0][0] for s in family)
    newest_at_s = max(s.newest_at_s for s in family)
    lasts = any(s.samples[0][0] == first_at_s and s.newest_at_s == newest_at_s for s in family)
    return first_at_s if lasts else None


def _growth(series: Series, born_at_s: float | None) -> tuple[float, float] | None:
    """Return (growth per second, span) of one series; `born_at_s` puts a zero before a series that began later."""
    samples = series.samples
    if any(number < 0 for _, number in samples):
        return (-1.0, samples[-1][0] - samples[0][0])
    if born_at_s is not None and samples[0][0] > born_at_s:
        samples = ((born_at_s, 0.0), *samples)
    span_s = samples[-1][0] - samples[0][0]
    return (increase(samples) / span_s, span_s) if span_s > 0 else None
