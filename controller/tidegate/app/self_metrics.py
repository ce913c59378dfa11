"""Our own metrics, made from the newest tick each time they are scraped. Names live in the catalogue."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import assert_never

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate.app.alert_desk import AlertDesk
from tidegate.app.record import TickRecord
from tidegate.app.signals import service_signals
from tidegate.app.state import LiveState, LiveView, Newest, number, request_forecast
from tidegate.catalogue import own
from tidegate.catalogue.own import OwnMetric
from tidegate.catalogue.quantity import Kind
from tidegate.terms.fleet import ReplicaState
from tidegate.terms.signal import Unknown

_Sample = tuple[tuple[str, ...], float]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class SelfMetrics(Collector):
    """Collects our own metrics from a `LiveState`; counters start at this process's start."""

    def __init__(
        self, state: LiveState, *, journal_writable: Callable[[], bool], desk: AlertDesk | None = None
    ) -> None:
        """Listen to `state` from now on."""
        self._state = state
        self._journal_writable = journal_writable
        self._desk = desk
        self._decisions: Counter[tuple[str, ...]] = Counter()
        self.registry = CollectorRegistry(auto_describe=False)
        self._tick_counts = [0] * (len(own.TICK_DURATION.buckets) + 1)  # by bucket, the last one unbounded
        self._tick_sum_s = 0.0
        self.registry.register(self)
        state.listen(self._note)

    def text(self) -> bytes:
        """Return the exposition in Prometheus' text format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterable[Metric]:
        """Yield one family per metric; a gauge of an unknown signal has no sample."""
        yield _family(own.DECISIONS, [(labels, float(n)) for labels, n in sorted(self._decisions.items())])
        yield self._ticks()
        yield _family(own.JOURNAL_WRITABLE, [((), float(self._journal_writable()))])
        counts = self._desk.counts if self._desk is not None else {}
        yield _family(own.ALERT_ACTIONS, [(labels, float(n)) for labels, n in sorted(counts.items())])
        newest = self._state.newest()
        for metric, samples in _GAUGES:
            yield _family(metric, samples(newest) if newest is not None else ())

    def _note(self, record: TickRecord, view: LiveView) -> None:
        for pool in record.decision.pools:
            self._decisions[pool.key.service, pool.key.pool, str(pool.verdict), str(pool.binding)] += 1
        if view.tick_duration_s is not None:
            self._tick_counts[bisect_left(own.TICK_DURATION.buckets, view.tick_duration_s)] += 1
            self._tick_sum_s += view.tick_duration_s

    def _ticks(self) -> Metric:
        bounds = [f"{bound:g}" for bound in own.TICK_DURATION.buckets] + ["+Inf"]
        buckets = list(zip(bounds, map(float, accumulate(self._tick_counts)), strict=True))
        metric = own.TICK_DURATION
        return HistogramMetricFamily(metric.name, metric.meaning, buckets=buckets, sum_value=self._tick_sum_s)


def _family(metric: OwnMetric, samples: Iterable[_Sample]) -> Metric:
    family: CounterMetricFamily | GaugeMetricFamily
    match metric.kind:
        case Kind.COUNTER:
            family = CounterMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        case Kind.GAUGE:
            family = GaugeMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        case Kind.HISTOGRAM:
            msg = f"{metric.name}: a histogram is kept, not collected"
            raise TypeError(msg)
        case _:
            assert_never(metric.kind)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _replicas(newest: Newest) -> Iterator[_Sample]:
    membership = newest.view.membership
    if membership is None:
        return
    for pool in newest.record.decision.pools:
        for state in ReplicaState:
            yield (pool.key.service, pool.key.pool, str(state)), float(len(membership.of(pool.key, state)))


def _wanted(newest: Newest) -> Iterator[_Sample]:
    for pool in newest.record.decision.pools:
        if pool.wanted_replicas is not None:
            yield (pool.key.service, pool.key.pool), float(pool.wanted_replicas)


def _asked(newest: Newest) -> Iterator[_Sample]:
    for pool in newest.record.decision.pools:
        yield (pool.key.service, pool.key.pool), float(pool.asked_replicas)


def _forecast(newest: Newest) -> Iterator[_Sample]:
    for service in newest.record.inputs.observation.services:
        forecast = request_forecast(newest.record, service.service)
        if forecast is None:
            continue
        for level in forecast.levels:
            yield (service.service, f"{level:g}"), forecast.peak(level)


def _arrivals(newest: Newest) -> Iterator[_Sample]:
    for service in newest.record.inputs.observation.services:
        value = number(service.arrivals_per_s)
        if value is not None:
            yield (service.service,), value


def _capacity(newest: Newest) -> Iterator[_Sample]:
    for capacity in newest.record.inputs.capacity:
        yield (capacity.key.service, capacity.key.pool, str(capacity.source)), capacity.requests_per_s


def _cold_start(newest: Newest) -> Iterator[_Sample]:
    for capacity in newest.record.inputs.capacity:
        yield (capacity.key.service, capacity.key.pool), capacity.cold_start_p95_s


def _unknown(newest: Newest) -> Iterator[_Sample]:
    for service in newest.record.inputs.observation.services:
        for found in service_signals(service):
            if isinstance(found.signal, Unknown):
                yield (found.service, found.pool, found.name, str(found.signal.reason)), 1.0


def _age(newest: Newest) -> Iterator[_Sample]:
    observation = newest.record.inputs.observation
    for service in observation.services:
        for found in service_signals(service):
            if not isinstance(found.signal, Unknown):
                yield (found.service, found.pool, found.name), found.signal.age_s(observation.observed_at_s)


def _violations(newest: Newest) -> Iterator[_Sample]:
    for service in newest.record.inputs.observation.services:
        for pool in service.pools:
            yield (pool.key.service, pool.key.pool), float(len(pool.violations))


def _attained(newest: Newest) -> Iterator[_Sample]:
    for service in newest.record.inputs.observation.services:
        for sli in service.slis:
            value = number(sli.attained_ratio)
            if value is not None:
                # The source's first word: "gateway" or "engine"; the rest is a sentence for people.
                yield (service.service, sli.slo, (sli.source.split() or ["none"])[0].rstrip(":,;")), value


_GAUGES: tuple[tuple[OwnMetric, Callable[[Newest], Iterator[_Sample]]], ...] = (
    (own.POOL_REPLICAS, _replicas),
    (own.POOL_WANTED, _wanted),
    (own.POOL_ASKED, _asked),
    (own.FORECAST, _forecast),
    (own.ARRIVALS, _arrivals),
    (own.CAPACITY, _capacity),
    (own.COLD_START, _cold_start),
    (own.SIGNAL_UNKNOWN, _unknown),
    (own.SIGNAL_AGE, _age),
    (own.CONTRACT_VIOLATIONS, _violations),
    (own.SLO_ATTAINED, _attained),
)
