"""What the gateway's own counters say about pools and services. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidegate.catalogue import gateway
from tidegate.catalogue.quantity import Fold
from tidegate.observe import fold
from tidegate.observe.queries import UP
from tidegate.observe.result import Series
from tidegate.observe.settings import ObserveSettings
from tidegate.terms.fleet import PoolKey
from tidegate.terms.signal import Signal, Unknown, UnknownReason, reading, unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySeries:
    """The gateway's series: by (metric, cluster) for Envoy's own, by (metric, service) for the logged ones."""

    by_cluster: Mapping[tuple[str, str], tuple[Series, ...]] = field(default_factory=dict)
    by_service: Mapping[tuple[str, str], tuple[Series, ...]] = field(default_factory=dict)
    instances: frozenset[str] = frozenset()  # scraped or tried within the freshness limit
    up_instances: frozenset[str] = frozenset()  # of those, whose newest scrape succeeded
    partial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """When and how strictly to look."""

    settings: ObserveSettings
    now_s: float


def arrange(series: Iterable[Series], *, partial: bool, watch: Watch) -> GatewaySeries:
    """Return the raw series of the gateway job, arranged for look-up."""
    by_cluster: dict[tuple[str, str], list[Series]] = defaultdict(list)
    by_service: dict[tuple[str, str], list[Series]] = defaultdict(list)
    instances = set()
    up_instances = set()
    for one in series:
        if one.name == UP:
            if watch.now_s - one.newest_at_s <= watch.settings.fresh_within_s:
                instances.add(one.labels.get("instance", ""))
                if one.samples[-1][1] > 0.0:
                    up_instances.add(one.labels.get("instance", ""))
        elif one.name in gateway.CLUSTER:
            by_cluster[one.name, one.labels.get(gateway.CLUSTER_LABEL, "")].append(one)
        else:
            by_service[one.name, one.labels.get(gateway.SERVICE_LABEL, "")].append(one)
    return GatewaySeries(
        by_cluster={key: tuple(found) for key, found in by_cluster.items()},
        by_service={key: tuple(found) for key, found in by_service.items()},
        instances=frozenset(instances),
        up_instances=frozenset(up_instances),
        partial=partial,
    )


def gauge_of(name: str, key: PoolKey, seen: GatewaySeries, watch: Watch) -> Signal:
    """Return a gauge of the pool's cluster, summed over gateway instances."""
    found = _live(seen.by_cluster.get((name, str(key)), ()), name, str(key), seen, watch)
    if isinstance(found, Unknown):
        return found
    folded = fold.gauge(found, (), Fold.SUM)
    if folded is None or folded.number < 0:
        return _said(UnknownReason.OUT_OF_RANGE, f"{name} of {key}: negative", name, watch)
    return reading(folded.number, sampled_at_s=folded.at_s, coverage_ratio=_coverage(found, seen), source=name)


def arrivals_of(key: PoolKey, seen: GatewaySeries, watch: Watch) -> Signal:
    """Return requests per second that arrived for the pool: attempts, however they ended, less retries.

    Attempts that found no connection or no endpoint are not in `upstream_rq_total`, yet their retries are counted; and
    a request turned away is demand all the same.
    """
    name, cluster = gateway.ATTEMPTS_ATTACHED, str(key)
    main = _live(seen.by_cluster.get((name, cluster), ()), name, cluster, seen, watch)
    if isinstance(main, Unknown):
        return main
    since_s = watch.now_s - watch.settings.rate_window_s
    attached = fold.rate(main, (), since_s=since_s)
    if attached is None or attached.span_s < 0.5 * watch.settings.rate_window_s:
        span_s = 0.0 if attached is None else attached.span_s
        detail = f"{span_s:.0f} s of samples, a rate needs {0.5 * watch.settings.rate_window_s:g} s"
        return _said(UnknownReason.TOO_YOUNG, f"{name} of {cluster}: {detail}", name, watch)
    number = attached.number
    for other, sign in (*((a, 1.0) for a in gateway.ATTEMPTS[1:]), (gateway.RETRIES, -1.0)):
        more = fold.rate(
            fold.live(seen.by_cluster.get((other, cluster), ()), watch.settings.scrape_interval_s),
            (),
            since_s=since_s,
            family=main,
        )
        number += 0.0 if more is None else sign * more.number
    # A retry is counted when it starts and its attempt when it ends: a few may be in between.
    if -2.0 / watch.settings.rate_window_s < number < 0:
        number = 0.0
    if number < 0:
        return _said(UnknownReason.OUT_OF_RANGE, f"{name} of {cluster}: {number:g} arrivals per s", name, watch)
    return reading(number, sampled_at_s=attached.at_s, coverage_ratio=_coverage(main, seen), source=name)


def failed_of(service: str, seen: GatewaySeries, watch: Watch) -> Signal:
    """Return answers with a 5xx and streams cut, per second; zero needs finished requests to be counted at all."""
    outcome = outcomes_of(service, seen, watch)
    if isinstance(outcome, Unknown):
        return outcome
    return reading(
        outcome.failed_per_s,
        sampled_at_s=outcome.at_s,
        coverage_ratio=outcome.coverage_ratio,
        source=gateway.REQUESTS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """How requests ended, per second. Clients that left before an answer (class "0") are in neither."""

    answered_per_s: float
    failed_per_s: float  # 5xx, and streams cut after a 2xx began
    at_s: float
    coverage_ratio: float


def outcomes_of(service: str, seen: GatewaySeries, watch: Watch) -> Outcomes | Unknown:
    """Return the service's outcomes over the window."""
    name = gateway.REQUESTS
    requests = _live(seen.by_service.get((name, service), ()), name, service, seen, watch)
    if isinstance(requests, Unknown):
        return requests
    since_s = watch.now_s - watch.settings.rate_window_s
    whole = fold.rate(requests, (), since_s=since_s)
    if whole is None or whole.span_s < 0.5 * watch.settings.rate_window_s:
        return _said(UnknownReason.TOO_YOUNG, f"{name} of {service}: too few samples for a rate", name, watch)
    cut = fold.live(seen.by_service.get((gateway.STREAMS_CUT, service), ()), watch.settings.scrape_interval_s)

    def per_s(series: Iterable[Series]) -> float:
        got = fold.rate(series, (), since_s=since_s, family=requests)
        return 0.0 if got is None else got.number

    by_class = {
        c: per_s([s for s in requests if s.labels.get(gateway.CODE_CLASS_LABEL) == c]) for c in ("2xx", "4xx", "5xx")
    }
    return Outcomes(
        answered_per_s=sum(by_class.values()),
        failed_per_s=by_class["5xx"] + per_s(cut),
        at_s=whole.at_s,
        coverage_ratio=_coverage(requests, seen),
    )


def freshness(seen: GatewaySeries, watch: Watch) -> tuple[float, float]:
    """Return (Unix time of the newest sample, share of the instances that reported lately); (0, 0) without series."""
    all_ = [s for found in (*seen.by_cluster.values(), *seen.by_service.values()) for s in found]
    newest_at_s = max((s.newest_at_s for s in all_), default=0.0)
    lately = [s for s in all_ if watch.now_s - s.newest_at_s <= watch.settings.fresh_within_s]
    return newest_at_s, _coverage(lately, seen)


def _live(
    series: tuple[Series, ...], name: str, of: str, seen: GatewaySeries, watch: Watch
) -> tuple[Series, ...] | Unknown:
    if seen.partial:
        return _said(UnknownReason.PARTIAL, f"{name} of {of}: the backend's answer is incomplete", name, watch)
    if not series:
        return _said(UnknownReason.ABSENT, f"{name} of {of}: no series ({_scraped(seen, watch)})", name, watch)
    found = fold.live(series, watch.settings.scrape_interval_s)
    age_s = watch.now_s - max(s.newest_at_s for s in found)
    if age_s > watch.settings.fresh_within_s:
        return _said(UnknownReason.STALE, f"{name} of {of}: newest sample is {age_s:.0f} s old", name, watch)
    return found


def _scraped(seen: GatewaySeries, watch: Watch) -> str:
    """Return how the gateway's scrapes fare: tells a counter not yet born from an Envoy that is down."""
    job = watch.settings.gateway_job
    if not seen.instances:
        return f"no target of job {job}"
    up = len(seen.up_instances)
    if up == 0:
        return f"every target of job {job} fails its scrape"
    if up < len(seen.instances):
        return f"{up} of {len(seen.instances)} targets of job {job} are scraped"
    return f"job {job} is scraped"


def _coverage(found: Iterable[Series], seen: GatewaySeries) -> float:
    """Return the share of the gateway's instances that reported; one that fails its scrape hides part of the load."""
    reported = {s.labels.get("instance", "") for s in found}
    return len(reported) / max(1, len(reported | seen.instances))


def _said(reason: UnknownReason, detail: str, source: str, watch: Watch) -> Unknown:
    return unknown(reason, detail, now_s=watch.now_s, source=source)
