"""Samples and membership made an `Observation`. Pure: absence goes in and comes out as a value that says why."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.catalogue import gateway
from tidegate.catalogue.canonical import (
    BY_NAME,
    FINISHED,
    KV_USED,
    OUTPUT_LENGTH,
    OUTPUT_TOKENS,
    PREEMPTIONS,
    PROMPT_LENGTH,
    PROMPT_TOKENS,
    RUNNING,
    WAITING,
)
from tidegate.catalogue.engines import ENGINES
from tidegate.catalogue.quantity import Quantity
from tidegate.observe.contract import violations
from tidegate.observe.gateway_signals import GatewaySeries, Watch, arrivals_of, failed_of, gauge_of
from tidegate.observe.join import NO_SERIES, ReplicaKey, ReplicaSeries
from tidegate.observe.replica_signals import Look, candidates, signal_of
from tidegate.observe.result import Answer, Failure, QueryResult
from tidegate.observe.settings import ObserveSettings
from tidegate.observe.sli import Buckets, SliFacts, sli_of
from tidegate.terms.fleet import Membership, PoolKey, Replica, ReplicaState
from tidegate.terms.observation import Observation, PoolObservation, ReplicaObservation, ServiceObservation
from tidegate.terms.policy import PoolPolicy, ServicePolicy
from tidegate.terms.signal import Signal, Unknown, UnknownReason, combine, reading, unknown
from tidegate.terms.slo import Indicator


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """All answers of one look, before anything is made of them.

    `buckets` are bucket rates by histogram family: the gateway's by service, the engines' by service and model.
    """

    engines: Mapping[ReplicaKey, ReplicaSeries] | Failure
    engines_partial: bool = False
    gateway: GatewaySeries | Failure
    buckets: Mapping[str, QueryResult] = field(default_factory=dict)


def translate(
    sighting: Sighting,
    policies: Sequence[ServicePolicy],
    membership: Membership,
    *,
    settings: ObserveSettings,
    now_s: float,
) -> Observation:
    """Return the observation of every service the policies name, in their order."""
    services = tuple(
        _Service(sighting=sighting, policy=p, membership=membership, settings=settings, now_s=now_s).observation()
        for p in policies
    )
    return Observation(observed_at_s=now_s, services=services)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    sighting: Sighting
    policy: ServicePolicy
    membership: Membership
    settings: ObserveSettings
    now_s: float

    @property
    def watch(self) -> Watch:
        return Watch(settings=self.settings, now_s=self.now_s)

    def look(self, pool: PoolPolicy) -> Look:
        return Look(
            catalogue=ENGINES[pool.engine.value],
            model=self.policy.model,
            settings=self.settings,
            now_s=self.now_s,
            partial=self.sighting.engines_partial,
        )

    def observation(self) -> ServiceObservation:
        facts = SliFacts(
            service=self.policy.name,
            seen=self.sighting.gateway,
            buckets=self.sighting.buckets,
            engines={i: self.engine_buckets(i) for i in {s.indicator for s in self.policy.slos}},
            watch=self.watch,
        )
        return ServiceObservation(
            service=self.policy.name,
            arrivals_per_s=self.arrivals(),
            prompt_tokens_mean=self.mean(PROMPT_LENGTH, PROMPT_TOKENS),
            output_tokens_mean=self.mean(OUTPUT_LENGTH, OUTPUT_TOKENS),
            failed_per_s=self.at_gateway(lambda seen: failed_of(self.policy.name, seen, self.watch), gateway.REQUESTS),
            slis=tuple(sli_of(slo, facts) for slo in self.policy.slos),
            pools=tuple(self.pool(pool) for pool in self.policy.pools),
        )

    def at_gateway(self, read: Callable[[GatewaySeries], Signal], source: str) -> Signal:
        seen = self.sighting.gateway
        if isinstance(seen, Failure):
            return unknown(seen.reason, seen.detail, now_s=self.now_s, source=source)
        return read(seen)

    def arrivals(self) -> Signal:
        name = gateway.ATTEMPTS_ATTACHED
        per_pool = [
            self.at_gateway(lambda seen, key=pool.key: arrivals_of(key, seen, self.watch), name)  # type: ignore[misc]
            for pool in self.policy.pools
        ]
        whole = combine(per_pool, expected=len(per_pool), source=name, now_s=self.now_s)
        return _covered(whole, [s.coverage_ratio for s in per_pool])

    def replica(self, pool: PoolPolicy, replica: Replica) -> ReplicaObservation:
        look = self.look(pool)
        engines = self.sighting.engines

        def read(quantity: Quantity) -> Signal:
            if isinstance(engines, Failure):
                return unknown(engines.reason, engines.detail, now_s=self.now_s, source=pool.engine.value)
            return signal_of(quantity, replica, engines.get((pool.key, replica.name), NO_SERIES), look)

        return ReplicaObservation(
            replica=replica,
            running_requests=read(RUNNING),
            waiting_requests=read(WAITING),
            kv_used_ratio=read(KV_USED),
            finished_per_s=read(FINISHED),
            prompt_tokens_per_s=read(PROMPT_TOKENS),
            output_tokens_per_s=read(OUTPUT_TOKENS),
            preemptions_per_s=read(PREEMPTIONS),
        )

    def pool(self, pool: PoolPolicy) -> PoolObservation:
        replicas = tuple(self.replica(pool, r) for r in self.membership.of(pool.key))
        ready = [r for r in replicas if r.replica.state is ReplicaState.READY]

        def total(signals: list[Signal], quantity: Quantity) -> Signal:
            source = next((s.source for s in signals if not isinstance(s, Unknown)), quantity.name)
            return combine(signals, expected=len(ready), source=source, now_s=self.now_s)

        engines = self.sighting.engines
        broken = (
            ()
            if isinstance(engines, Failure) or self.sighting.engines_partial
            else violations(pool.key, [r.replica for r in ready], engines, self.look(pool))
        )
        return PoolObservation(
            key=pool.key,
            replicas=replicas,
            running_requests=total([r.running_requests for r in ready], RUNNING),
            waiting_requests=total([r.waiting_requests for r in ready], WAITING),
            finished_per_s=total([r.finished_per_s for r in ready], FINISHED),
            output_tokens_per_s=total([r.output_tokens_per_s for r in ready], OUTPUT_TOKENS),
            gateway_in_flight_requests=self.gateway_gauge(gateway.IN_FLIGHT, pool.key),
            gateway_pending_requests=self.gateway_gauge(gateway.PENDING, pool.key),
            violations=tuple(str(v) for v in broken),
        )

    def gateway_gauge(self, name: str, key: PoolKey) -> Signal:
        return self.at_gateway(lambda seen: gauge_of(name, key, seen, self.watch), name)

    def serving(self) -> list[tuple[PoolPolicy, Replica]]:
        """Return what still answers requests: ready and draining replicas of all pools."""
        return [
            (pool, replica)
            for pool in self.policy.pools
            for replica in self.membership.of(pool.key, ReplicaState.READY, ReplicaState.DRAINING)
        ]

    def mean(self, length: Quantity, tokens: Quantity) -> Signal:
        """Return tokens per finished request: from the length histogram's sums, else from the token counters.

        Nothing finished is not a length of zero: 0/0 stays unknown.
        """
        engines = self.sighting.engines
        if isinstance(engines, Failure):
            return unknown(engines.reason, engines.detail, now_s=self.now_s, source=length.name)
        serving = self.serving()
        ready = sum(replica.state is ReplicaState.READY for _, replica in serving)
        last: Unknown | None = None
        for above, below in (((length, "_sum"), (length, "_count")), ((tokens, ""), (FINISHED, ""))):
            ratios = []
            for pool, replica in serving:
                series, look = engines.get((pool.key, replica.name), NO_SERIES), self.look(pool)
                ratios.append(
                    (
                        signal_of(above[0], replica, series, look, above[1]),
                        signal_of(below[0], replica, series, look, below[1]),
                    )
                )
            got = _ratio_of_sums(ratios, ready, length.name, self.now_s)
            if not isinstance(got, Unknown) or got.reason is UnknownReason.NOT_A_NUMBER:
                return got
            last = got if last is None else last
        if last is not None:
            return last
        return unknown(UnknownReason.ABSENT, "no replica serves", now_s=self.now_s, source=length.name)

    def engine_buckets(self, indicator: Indicator) -> tuple[Buckets, ...]:
        """Return the engines' bucket rates for an indicator, one entry per spelling seen alive."""
        engines = self.sighting.engines
        if isinstance(engines, Failure) or indicator.value not in BY_NAME:
            return ()
        quantity = BY_NAME[indicator.value]
        alive: dict[str, tuple[float, set[ReplicaKey]]] = {}
        ready = [(p, r) for p, r in self.serving() if r.state is ReplicaState.READY]
        for pool, replica in self.serving():
            series = engines.get((pool.key, replica.name), NO_SERIES)
            for one in candidates(quantity, series, self.look(pool), "_count")[:1]:
                if self.now_s - one.newest_at_s > self.settings.fresh_within_s:
                    continue
                at_s, who = alive.get(one.name, (one.newest_at_s, set()))
                who.add((pool.key, replica.name))
                alive[one.name] = (min(at_s, one.newest_at_s), who)
        covered = {key for _, who in alive.values() for key in who}
        coverage = sum((p.key, r.name) in covered for p, r in ready) / max(1, len(ready))
        found = []
        for counted, (at_s, _) in sorted(alive.items()):
            family = counted.removesuffix("_count")
            result = self.sighting.buckets.get(family)
            if not isinstance(result, Answer) or result.partial:
                continue
            rows = tuple(s for s in result.series if self.owns(s.labels))
            if rows:
                found.append(Buckets(family=family, rows=rows, at_s=at_s, coverage_ratio=coverage))
        return tuple(found)

    def owns(self, labels: Mapping[str, str]) -> bool:
        service = labels.get(self.settings.service_label)
        model = labels.get("model_name", self.policy.model)
        return model == self.policy.model and service in {None, "", self.policy.name}


def _ratio_of_sums(pairs: Sequence[tuple[Signal, Signal]], ready: int, source: str, now_s: float) -> Signal:
    known = [(a, b) for a, b in pairs if not isinstance(a, Unknown) and not isinstance(b, Unknown)]
    if not known:
        first = next((s for pair in pairs for s in pair if isinstance(s, Unknown)), None)
        if first is None:
            return unknown(UnknownReason.ABSENT, "no replica serves", now_s=now_s, source=source)
        return unknown(first.reason, first.detail, now_s=now_s, source=first.source)
    coverage = min(1.0, len(known) / max(1, ready))
    name = known[0][0].source
    below = sum(b.number for _, b in known)
    if below <= 0:
        return unknown(
            UnknownReason.NOT_A_NUMBER, "no request finished", now_s=now_s, source=name, coverage_ratio=coverage
        )
    return reading(
        sum(a.number for a, _ in known) / below,
        sampled_at_s=min(s.sampled_at_s for pair in known for s in pair),
        coverage_ratio=coverage,
        source=name,
    )


def _covered(signal: Signal, shares: Sequence[float]) -> Signal:
    """Return the signal with its coverage lowered to that of its least covered part."""
    if isinstance(signal, Unknown):
        return signal
    return reading(
        signal.number,
        sampled_at_s=signal.sampled_at_s,
        coverage_ratio=min([signal.coverage_ratio, *shares]),
        source=signal.source,
    )
