"""One look at the fleet: a handful of queries, joined with the live membership."""

import time
from collections.abc import Mapping, Sequence

from tidegate.catalogue import gateway
from tidegate.catalogue.canonical import BY_NAME
from tidegate.catalogue.engines import ENGINES
from tidegate.observe import queries
from tidegate.observe.gateway_signals import GatewaySeries, Watch, arrange
from tidegate.observe.histories import read_histories
from tidegate.observe.join import ReplicaKey, ReplicaSeries, join
from tidegate.observe.matchers import Matcher, any_of
from tidegate.observe.prometheus import PrometheusReader
from tidegate.observe.result import Answer, Failure, QueryResult
from tidegate.observe.settings import ObserveSettings
from tidegate.observe.sli import GATEWAY_FAMILY
from tidegate.observe.translate import Sighting, translate
from tidegate.terms.fleet import Membership, ReplicaState
from tidegate.terms.history import History
from tidegate.terms.observation import Observation
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.signal import UnknownReason

__all__ = ["ObserveSettings", "Observer"]

# After one of these the server will not answer the next query of the same look either.
_HOPELESS = frozenset({UnknownReason.UNREACHABLE, UnknownReason.BREAKER_OPEN})


class Observer:
    """Reads the fleet through one Prometheus.

    Args:
        reader: The backend.
        settings: Windows and join labels.
    """

    def __init__(self, reader: PrometheusReader, *, settings: ObserveSettings) -> None:
        self._reader = reader
        self._settings = settings

    def observe(self, policies: Sequence[ServicePolicy], membership: Membership, now_s: float) -> Observation:
        """Return the fleet as Prometheus shows it at `now_s`.

        Blocks for at most a few calls' deadlines; raises nothing for server trouble.
        """
        seen = sight(self._reader, policies, membership, settings=self._settings, now_s=now_s)
        return translate(seen, policies, membership, settings=self._settings, now_s=now_s)

    def histories(
        self, policies: Sequence[ServicePolicy], now_s: float, span_s: float, step_s: float
    ) -> tuple[History, ...]:
        """Return past load per service: arrivals, prompt tokens and output tokens per second, on the step grid.

        A quantity without any valid sample is left out.
        """
        return read_histories(
            self._reader, policies, settings=self._settings, now_s=now_s, span_s=span_s, step_s=step_s
        )


def sight(
    reader: PrometheusReader,
    policies: Sequence[ServicePolicy],
    membership: Membership,
    *,
    settings: ObserveSettings,
    now_s: float,
) -> Sighting:
    """Return the answers to all queries of one look; after the first sign that the server is away, no more are sent."""
    ask = _Asker(reader, now_s, clock_ahead_s=settings.fresh_within_s)
    engines, partial = _engines(ask, policies, membership, settings)
    seen = _gateway(ask, settings, now_s)
    buckets = _gateway_buckets(ask, policies, settings)
    if not isinstance(engines, Failure):
        buckets |= _engine_buckets(ask, policies, engines, buckets, settings)
    return Sighting(engines=engines, engines_partial=partial, gateway=seen, buckets=buckets)


class _Asker:
    """Sends the queries of one look, until one shows that the server is away or lives in another time.

    A server whose clock runs ahead stamps samples late: what it holds for our now is as old as its clock is ahead, and
    looks fresh. (One that runs behind has nothing for our now, which shows as stale.)
    """

    def __init__(self, reader: PrometheusReader, now_s: float, *, clock_ahead_s: float) -> None:
        self._reader = reader
        self._now_s = now_s
        self._most_ahead_s = clock_ahead_s
        self._began_s = time.monotonic()
        self._away: Failure | None = None

    def __call__(self, query: str) -> QueryResult:
        if self._away is not None:
            return self._away
        result = self._reader.instant(query, self._now_s)
        if isinstance(result, Failure) and result.reason in _HOPELESS:
            self._away = result
        if isinstance(result, Answer) and result.answered_at_s is not None:
            ahead_s = result.answered_at_s - self._now_s - (time.monotonic() - self._began_s)
            if ahead_s > self._most_ahead_s:
                detail = f"the server's clock is {ahead_s:.0f} s ahead of ours: its samples for our now are as old"
                self._away = Failure(reason=UnknownReason.STALE, detail=detail)
                return self._away
        return result


def _engines(
    ask: _Asker, policies: Sequence[ServicePolicy], membership: Membership, settings: ObserveSettings
) -> tuple[Mapping[ReplicaKey, ReplicaSeries] | Failure, bool]:
    if not policies:
        return {}, False
    result = ask(queries.engine_samples(policies, settings))
    if isinstance(result, Failure):
        return result, False
    joined = join(result.series, membership, settings)
    # Targets without our labels are found by address: asked for only where something is missing.
    missing = [
        r.address
        for r in membership.replicas
        if r.address and r.state is ReplicaState.READY and (r.pool, r.name) not in joined
    ]
    if missing:
        more = ask(queries.engine_samples(policies, settings, any_of("instance", missing)))
        if isinstance(more, Answer):
            joined = {**join(more.series, membership, settings), **joined}
    return joined, result.partial


def _gateway(ask: _Asker, settings: ObserveSettings, now_s: float) -> GatewaySeries | Failure:
    result = ask(queries.gateway_samples(settings))
    if isinstance(result, Failure):
        return result
    return arrange(result.series, partial=result.partial, watch=Watch(settings=settings, now_s=now_s))


def _gateway_buckets(
    ask: _Asker, policies: Sequence[ServicePolicy], settings: ObserveSettings
) -> dict[str, QueryResult]:
    wanted = sorted({GATEWAY_FAMILY[s.indicator] for p in policies for s in p.slos if s.indicator in GATEWAY_FAMILY})
    job = Matcher(label="job", values=(settings.gateway_job,))
    return {family: ask(queries.bucket_rates(family, (gateway.SERVICE_LABEL,), settings, job)) for family in wanted}


def _engine_buckets(
    ask: _Asker,
    policies: Sequence[ServicePolicy],
    joined: Mapping[ReplicaKey, ReplicaSeries],
    from_gateway: Mapping[str, QueryResult],
    settings: ObserveSettings,
) -> dict[str, QueryResult]:
    """Ask for the engines' histograms, only those an objective needs and only under names that were seen."""
    exposed = {name for series in joined.values() for name in series.by_name}
    families: set[str] = set()
    for policy in policies:
        engines = {ENGINES[pool.engine.value].engine: ENGINES[pool.engine.value] for pool in policy.pools}
        for slo in policy.slos:
            if slo.indicator.value not in BY_NAME or _answers(
                from_gateway.get(GATEWAY_FAMILY.get(slo.indicator, "")), policy.name
            ):
                continue
            for catalogue in engines.values():
                spelled = {name for name, _ in catalogue.spellings(BY_NAME[slo.indicator.value].name)}
                families |= {name for name in spelled if f"{name}_count" in exposed}
    services = any_of(settings.service_label, (p.name for p in policies))
    by = (settings.service_label, "model_name")
    return {family: ask(queries.bucket_rates(family, by, settings, services)) for family in sorted(families)}


def _answers(result: QueryResult | None, service: str) -> bool:
    return isinstance(result, Answer) and any(s.labels.get(gateway.SERVICE_LABEL) == service for s in result.series)
