"""One quantity of one replica as a signal: which alias speaks, how old it is, whether it can be believed. Pure."""

from dataclasses import dataclass
from functools import cache

from tidegate.catalogue.quantity import Alias, EngineCatalogue, Kind, Quantity
from tidegate.observe import fold
from tidegate.observe.join import ReplicaSeries
from tidegate.observe.result import Series
from tidegate.observe.settings import ObserveSettings
from tidegate.terms.fleet import Replica, ReplicaState
from tidegate.terms.signal import Signal, Unknown, UnknownReason, reading, unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What reading one replica depends on besides its series."""

    catalogue: EngineCatalogue
    model: str
    settings: ObserveSettings
    now_s: float
    partial: bool = False

    @property
    def copies(self) -> tuple[str, ...]:
        """Labels that tell copies apart; two jobs or addresses that scrape one replica are copies of each other."""
        return (*self.catalogue.copies, "job", "instance")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    name: str
    alias: Alias
    series: tuple[Series, ...]

    @property
    def newest_at_s(self) -> float:
        return max(s.newest_at_s for s in self.series)


def signal_of(quantity: Quantity, replica: Replica, series: ReplicaSeries, look: Look, part: str = "") -> Signal:
    """Return the quantity's signal: a reading for gauges, growth per second for counters.

    Args:
        quantity: What to read.
        replica: Whose.
        series: All that Prometheus has of it.
        look: Model, engine, settings and time.
        part: "_sum" or "_count", to read a histogram's counter.
    """
    if (young := _too_young(quantity, replica, look)) is not None:
        return young
    found = candidates(quantity, series, look, part)
    if not found:
        return _absent(quantity, replica, series, look, part)
    best = found[0]
    age_s = look.now_s - best.newest_at_s
    if age_s > look.settings.fresh_within_s or _gone(best, series, look):
        return _said(UnknownReason.STALE, f"{best.name}: newest sample is {age_s:.0f} s old", best.name, look)
    series_here = _of_model(best.series, look)
    if not series_here:
        there = ", ".join(sorted({s.labels[look.catalogue.model_label] for s in best.series}))
        return _said(
            UnknownReason.CONTRACT_VIOLATION, f"{best.name}: serves {there}, policy says {look.model}", best.name, look
        )
    if quantity.kind is Kind.GAUGE:
        return _gauge(quantity, best, series_here, series, look)
    return _rate(found, look)


def candidates(quantity: Quantity, series: ReplicaSeries, look: Look, part: str = "") -> list[_Candidate]:
    """Return the spellings that have series, the freshest first; equally fresh ones in the catalogue's order."""
    settings = look.settings
    found = []
    for full, alias in _spelled(look.catalogue, quantity.name, part):
        if full in series.by_name:
            here = fold.totals(fold.live(series.by_name[full], settings.scrape_interval_s), look.catalogue)
            found.append(_Candidate(name=full, alias=alias, series=here))
    if len(found) < 2:  # noqa: PLR2004 - nothing to choose
        return found
    newest = max(c.newest_at_s for c in found)
    # Sorting is stable, so the catalogue's order decides among what stems from the same scrape.
    return sorted(found, key=lambda c: c.newest_at_s < newest - 1.5 * settings.scrape_interval_s)


@cache
def _spelled(catalogue: EngineCatalogue, quantity: str, part: str) -> tuple[tuple[str, Alias], ...]:
    # Kept: every replica is looked up by every spelling at every look.
    return tuple((f"{name}{part}", alias) for name, alias in catalogue.spellings(quantity))


def _gone(best: _Candidate, series: ReplicaSeries, look: Look) -> bool:
    """Whether the target is still scraped well and no longer exposes the family."""
    up = series.up
    return up is not None and up[1] and up[0] > best.newest_at_s + 2.5 * look.settings.scrape_interval_s


def _of_model(series: tuple[Series, ...], look: Look) -> tuple[Series, ...]:
    label = look.catalogue.model_label
    return tuple(s for s in series if s.labels.get(label, look.model) == look.model)


def _gauge(quantity: Quantity, best: _Candidate, here: tuple[Series, ...], series: ReplicaSeries, look: Look) -> Signal:
    catalogue = look.catalogue
    folded = fold.gauge(here, look.copies, quantity.fold)
    if folded is None:  # `here` is never empty; keeps the types honest
        return _said(UnknownReason.ABSENT, f"{best.name}: no series", best.name, look)
    number = folded.number
    if number in best.alias.sentinels:
        return _said(UnknownReason.NOT_OFFERED, f"{best.name}: {number:g} means not measured", best.name, look)
    for name in catalogue.additions(best.name, best.alias):
        more = fold.gauge(
            fold.totals(_of_model(fold.live(series.of(name), look.settings.scrape_interval_s), look), catalogue),
            look.copies,
            quantity.fold,
        )
        number += 0.0 if more is None else more.number
    number *= best.alias.scale
    if number < 0 or (quantity.highest is not None and number > quantity.highest):
        limit = "" if quantity.highest is None else f"..{quantity.highest:g}"
        hint = "; a percent?" if quantity.highest is not None and number > quantity.highest else ""
        return _said(
            UnknownReason.OUT_OF_RANGE, f"{best.name}: reads {number:g}, must be within 0{limit}{hint}", best.name, look
        )
    return reading(number, sampled_at_s=folded.at_s, coverage_ratio=1.0, source=best.name)


def _rate(found: list[_Candidate], look: Look) -> Signal:
    since_s = look.now_s - look.settings.rate_window_s
    best, measured = found[0], None
    parts: list[fold.Folded] = []
    for one in found:
        got = fold.rate(_of_model(one.series, look), look.copies, since_s=since_s)
        if got is None:
            continue
        # A spelling that ended before this one began tells of the earlier part of the window; one that overlaps tells
        # the same again.
        if not parts or got.at_s <= min(p.first_at_s for p in parts):
            parts.append(got)
    span_s = sum(p.span_s for p in parts)
    if span_s > 0:
        measured = sum(p.number * p.span_s for p in parts) / span_s * best.alias.scale
    if measured is None or span_s < 0.5 * look.settings.rate_window_s:
        return _said(
            UnknownReason.TOO_YOUNG,
            f"{best.name}: {span_s:.0f} s of samples, a rate needs {0.5 * look.settings.rate_window_s:g} s",
            best.name,
            look,
        )
    if measured < 0:
        return _said(UnknownReason.OUT_OF_RANGE, f"{best.name}: the counter is negative", best.name, look)
    at_s = min(s.newest_at_s for s in best.series)
    return reading(measured, sampled_at_s=at_s, coverage_ratio=1.0, source=best.name)


def _too_young(quantity: Quantity, replica: Replica, look: Look) -> Unknown | None:
    if quantity.kind is Kind.GAUGE or replica.state is not ReplicaState.READY or replica.ready_at_s is None:
        return None
    age_s = look.now_s - replica.ready_at_s
    if age_s >= look.settings.rate_window_s:
        return None
    detail = f"{replica.name}: ready for {age_s:.0f} s, a rate needs {look.settings.rate_window_s:g} s"
    return _said(UnknownReason.TOO_YOUNG, detail, "", look)


def _absent(quantity: Quantity, replica: Replica, series: ReplicaSeries, look: Look, part: str) -> Unknown:
    spellings = look.catalogue.spellings(quantity.name)
    wanted = ", ".join(f"{name}{part}" for name, _ in spellings[:2])
    if look.partial:
        return _said(UnknownReason.PARTIAL, f"{wanted}: the backend's answer is incomplete", "", look)
    age_s = None if replica.ready_at_s is None else look.now_s - replica.ready_at_s
    if series.up is None and (age_s is None or age_s < look.settings.settle_s):
        return _said(UnknownReason.TOO_YOUNG, f"{replica.name}: not scraped yet", "", look)
    firsts = [alias.first for _, alias in spellings]
    if not quantity.required and series.up is not None and all(firsts):
        return _said(
            UnknownReason.NOT_OFFERED, f"{wanted}: offered from {look.catalogue.engine} {firsts[-1]}", "", look
        )
    return _said(UnknownReason.ABSENT, f"{wanted}: no series of {replica.name} ({target(series)})", "", look)


def target(series: ReplicaSeries) -> str:
    """Return how the replica's scrape target fares, in words."""
    up = series.up
    if up is None:
        return "no such target"
    return "target is up" if up[1] else "target is down"


def _said(reason: UnknownReason, detail: str, source: str, look: Look) -> Unknown:
    return unknown(reason, detail, now_s=look.now_s, source=source or look.catalogue.engine)
