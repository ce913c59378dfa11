"""How each objective fares right now: the gateway's histograms first, the engines' second, always said which. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.catalogue import gateway
from tidegate.observe.gateway_signals import GatewaySeries, Watch, freshness, outcomes_of
from tidegate.observe.histogram import Histogram, Snapped, histogram, quantile, share, snap
from tidegate.observe.result import Failure, QueryResult, Series
from tidegate.terms.observation import SliReading
from tidegate.terms.signal import Signal, Unknown, UnknownReason, reading, unknown
from tidegate.terms.slo import Indicator, Slo

GATEWAY_FAMILY: dict[Indicator, str] = {
    Indicator.TTFT: gateway.TTFT,
    Indicator.E2E: gateway.DURATION,
    Indicator.TPOT: gateway.TPOT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Bucket rates of one family for one service, and how well its sources are covered."""

    family: str
    rows: tuple[Series, ...]
    at_s: float
    coverage_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SliFacts:
    """All that one service's objectives can be read from."""

    service: str
    seen: GatewaySeries | Failure
    buckets: Mapping[str, QueryResult]  # gateway family -> bucket rates by service
    engines: Mapping[Indicator, tuple[Buckets, ...]]
    watch: Watch


def sli_of(slo: Slo, facts: SliFacts) -> SliReading:
    """Return the objective's reading."""
    if slo.indicator is Indicator.AVAILABILITY or slo.threshold_s is None:
        return _availability(slo, facts)
    reason, why = UnknownReason.ABSENT, "the gateway does not measure it"
    family = GATEWAY_FAMILY.get(slo.indicator)
    if family is not None:
        got, reason, why = _gateway_rows(family, facts)
        if got is not None:
            source = f"gateway: {family}"
            return _from_buckets(slo, slo.threshold_s, [got], from_gateway=True, source=source, facts=facts)
    found = facts.engines.get(slo.indicator, ())
    if found:
        names = ", ".join(e.family for e in found)
        return _from_buckets(
            slo, slo.threshold_s, found, from_gateway=False, source=f"engine: {names}; {why}", facts=facts
        )
    detail = f"{slo.indicator}: {why}, and no histogram of the engines answers"
    missing = unknown(reason, detail, now_s=facts.watch.now_s, source="none")
    return SliReading(slo=slo.name, attained_ratio=missing, quantile_s=missing, source=f"none: {why}", threshold_s=None)


def _gateway_rows(family: str, facts: SliFacts) -> tuple[Buckets | None, UnknownReason, str]:
    """Return the gateway's buckets for the service; or None, with the state and the words for that."""
    if isinstance(facts.seen, Failure):
        return None, facts.seen.reason, f"the gateway's series cannot be read: {facts.seen.detail}"
    result = facts.buckets.get(family)
    if isinstance(result, Failure):
        return None, result.reason, f"{family} cannot be read: {result.detail}"
    if result is not None and result.partial:
        return None, UnknownReason.PARTIAL, f"{family}: the backend's answer is incomplete"
    there = () if result is None else result.series
    rows = tuple(s for s in there if s.labels.get(gateway.SERVICE_LABEL) == facts.service)
    if not rows:
        return None, UnknownReason.ABSENT, f"{family} has no series of {facts.service}"
    at_s, coverage_ratio = freshness(facts.seen, facts.watch)
    age_s = facts.watch.now_s - at_s
    if age_s > facts.watch.settings.fresh_within_s:
        return None, UnknownReason.STALE, f"{family}: the gateway was last scraped {age_s:.0f} s ago"
    return Buckets(family=family, rows=rows, at_s=at_s, coverage_ratio=coverage_ratio), UnknownReason.ABSENT, ""


def _from_buckets(
    slo: Slo, threshold_s: float, found: Sequence[Buckets], *, from_gateway: bool, source: str, facts: SliFacts
) -> SliReading:
    """Return the reading over one or more histograms: shares are weighed by events, the worst quantile wins."""
    scale_s, offset = (gateway.BOUND_SCALE_S, gateway.BOUND_OFFSET) if from_gateway else (1.0, 0.0)
    parts = [(f, h) for f in found if (h := histogram(f.rows, scale_s=scale_s, offset=offset)) is not None]
    busy = [(f, h) for f, h in parts if h.total_per_s > 0]
    if not busy:
        detail = "no request finished" if parts else "buckets without a usable +Inf"
        nothing = unknown(
            UnknownReason.NOT_A_NUMBER,
            detail,
            now_s=facts.watch.now_s,
            source=found[0].family,
            coverage_ratio=min(f.coverage_ratio for f in found),
        )
        return SliReading(slo=slo.name, attained_ratio=nothing, quantile_s=nothing, source=source, threshold_s=None)
    worst_s, at_least = max(quantile(h, slo.objective_ratio) for _, h in busy)
    snapped = [(h, snap(h, threshold_s)) for _, h in busy]
    frame = _Frame(
        at_s=min(f.at_s for f, _ in busy),
        coverage_ratio=min(f.coverage_ratio for f in found),
        family=busy[0][0].family,
    )
    attained, note, bound_s = _attained(threshold_s, snapped, frame)
    return SliReading(
        slo=slo.name,
        attained_ratio=attained,
        quantile_s=frame.read(worst_s, at_least=at_least),
        source=f"{source}; {note}",
        threshold_s=bound_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    at_s: float
    coverage_ratio: float
    family: str

    def read(self, number: float, *, at_least: bool = False) -> Signal:
        return reading(
            number, sampled_at_s=self.at_s, coverage_ratio=self.coverage_ratio, source=self.family, at_least=at_least
        )


def _attained(
    threshold_s: float, snapped: Iterable[tuple[Histogram, Snapped | None]], frame: _Frame
) -> tuple[Signal, str, float | None]:
    """Return (share, note on the threshold, threshold as evaluated)."""
    good = best = total = 0.0
    bounds: list[Snapped] = []
    for of, at in snapped:
        if at is None:
            lowest_s = of.buckets[0][0]
            detail = f"{threshold_s:g} s is below the lowest bucket bound, {lowest_s:g} s"
            return (
                Unknown(
                    reason=UnknownReason.NOT_OFFERED,
                    detail=detail,
                    sampled_at_s=frame.at_s,
                    coverage_ratio=frame.coverage_ratio,
                    source=frame.family,
                ),
                detail,
                None,
            )
        bounds.append(at)
        good += share(of, at.bound_s) * of.total_per_s
        best += share(of, at.next_bound_s) * of.total_per_s
        total += of.total_per_s
    ratio = good / total
    bound_s = min(b.bound_s for b in bounds)
    if all(b.exact for b in bounds):
        return frame.read(ratio), f"{threshold_s:g} s is a bucket bound", bound_s
    note = (
        f"{threshold_s:g} s is no bucket bound, counted at {bound_s:g} s: "
        f"the true share is {100 * ratio:.2f} to {100 * best / total:.2f} %"
    )
    return frame.read(ratio), note, bound_s


def _availability(slo: Slo, facts: SliFacts) -> SliReading:
    """Return the share of answered requests without a server error; clients that left first are not counted."""
    now_s = facts.watch.now_s
    outcome = (
        unknown(facts.seen.reason, facts.seen.detail, now_s=now_s, source=gateway.REQUESTS)
        if isinstance(facts.seen, Failure)
        else outcomes_of(facts.service, facts.seen, facts.watch)
    )
    none = unknown(UnknownReason.NOT_CONFIGURED, "availability has no latency", now_s=now_s, source=gateway.REQUESTS)
    attained: Signal
    if isinstance(outcome, Unknown):
        attained = outcome
    elif outcome.answered_per_s <= 0:
        attained = unknown(
            UnknownReason.NOT_A_NUMBER,
            "no request finished",
            now_s=now_s,
            source=gateway.REQUESTS,
            coverage_ratio=outcome.coverage_ratio,
        )
    else:
        good = max(0.0, outcome.answered_per_s - outcome.failed_per_s)
        attained = reading(
            good / outcome.answered_per_s,
            sampled_at_s=outcome.at_s,
            coverage_ratio=outcome.coverage_ratio,
            source=gateway.REQUESTS,
        )
    return SliReading(
        slo=slo.name, attained_ratio=attained, quantile_s=none, source=f"gateway: {gateway.REQUESTS}", threshold_s=None
    )
