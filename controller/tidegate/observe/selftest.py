"""The self-test: does every query match live series, and if not, what exactly is wrong.

Used by `tidegate check` and, through `PoolObservation.violations`, at every look of the controller.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tidegate.catalogue import gateway
from tidegate.catalogue.engines import ENGINES
from tidegate.catalogue.quantity import Kind, Quantity
from tidegate.observe import queries
from tidegate.observe.contract import breach_of, scraped_every_s, violations
from tidegate.observe.gateway_signals import GatewaySeries
from tidegate.observe.join import NO_SERIES, ReplicaKey, ReplicaSeries
from tidegate.observe.matchers import any_of, duration, selector
from tidegate.observe.observer import sight
from tidegate.observe.prometheus import PrometheusReader
from tidegate.observe.replica_signals import Look, candidates
from tidegate.observe.result import Answer, Failure
from tidegate.observe.settings import ObserveSettings
from tidegate.observe.translate import Sighting
from tidegate.terms.fleet import Membership, PoolKey, Replica, ReplicaState
from tidegate.terms.policy import PoolPolicy, ServicePolicy


class Verdict(StrEnum):
    """How one query fares."""

    OK = "ok"
    PARTIAL = "partial"  # some of the replicas
    MISSING = "missing"  # required, and nothing matches
    NOT_OFFERED = "not_offered"  # optional, and nothing matches
    NO_REPLICAS = "no_replicas"  # nothing to match yet


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCheck:
    """One quantity of one pool."""

    pool: str
    quantity: str
    required: bool
    aliases: tuple[str, ...]  # the names that matched
    series: int
    covered: int  # replicas (for the gateway: instances) with a live series
    expected: int
    newest_age_s: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractReport:
    """All checks, the named violations, and notes on what looks odd without breaking anything.

    `failure` is set, and the rest empty, when Prometheus could not be asked.
    """

    checks: tuple[QueryCheck, ...] = ()
    violations: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    failure: Failure | None = None

    @property
    def ok(self) -> bool:
        """Whether every required query matches for every replica."""
        return self.failure is None and not self.violations


def contract_report(
    reader: PrometheusReader,
    policies: Sequence[ServicePolicy],
    membership: Membership | None,
    now_s: float,
    *,
    settings: ObserveSettings,
) -> ContractReport:
    """Return how the policies' queries match what Prometheus has now.

    Args:
        reader: The backend.
        policies: Whose queries.
        membership: The live replicas; None takes every scrape target of the services for a ready replica.
        now_s: Unix time.
        settings: Windows and join labels.
    """
    targets = reader.instant(_targets_query(policies, settings), now_s)
    if isinstance(targets, Failure):
        return ContractReport(failure=targets)
    members = membership if membership is not None else _members(targets, policies, settings, now_s)
    seen = sight(reader, policies, members, settings=settings, now_s=now_s)
    if isinstance(seen.engines, Failure):
        return ContractReport(failure=seen.engines)
    if isinstance(seen.gateway, Failure):
        return ContractReport(failure=seen.gateway)
    wanted = queries.quantities_of(policies)
    checks: list[QueryCheck] = []
    broken: list[str] = []
    for policy in policies:
        for pool in policy.pools:
            look = Look(catalogue=ENGINES[pool.engine.value], model=policy.model, settings=settings, now_s=now_s)
            ready = members.of(pool.key, ReplicaState.READY)
            checks += [_check(q, pool, ready, seen.engines, look) for q in wanted]
            broken += [str(v) for v in violations(pool.key, ready, seen.engines, look)]
            if not ready and membership is None:
                broken.append(_no_targets(reader, pool, policy, settings, now_s))
            check = _gateway_check(pool.key, seen.gateway, settings, now_s)
            checks.append(check)
            if check.verdict is Verdict.MISSING:
                broken.append(_gateway_violation(pool.key, seen.gateway, settings))
    notes = (*_interval_notes(targets, settings), *_twin_notes(seen), *targets.warnings)
    return ContractReport(checks=tuple(checks), violations=tuple(broken), notes=notes)


def _targets_query(policies: Sequence[ServicePolicy], settings: ObserveSettings) -> str:
    services = any_of(settings.service_label, (p.name for p in policies))
    # Longer than any usual scrape interval, so that one much longer than believed shows.
    return f"{selector([queries.UP], services)}[{duration(max(300.0, settings.look_back_s))}]"


def _members(targets: Answer, policies: Sequence[ServicePolicy], settings: ObserveSettings, now_s: float) -> Membership:
    """Return the scrape targets as replicas; a target without a replica label is named by its address."""
    keys = {pool.key for p in policies for pool in p.pools}
    found: dict[tuple[PoolKey, str], Replica] = {}
    for series in targets.series:
        labels = series.labels
        key = PoolKey(service=labels.get(settings.service_label, ""), pool=labels.get(settings.pool_label, ""))
        address = labels.get("instance", "")
        if key in keys and now_s - series.newest_at_s <= settings.fresh_within_s:
            name = labels.get(settings.replica_label) or address
            found[key, name] = Replica(
                name=name, pool=key, state=ReplicaState.READY, address=address, ordered_at_s=series.samples[0][0]
            )
    ordered = sorted(found.values(), key=lambda r: (r.pool, r.name))
    return Membership(taken_at_s=now_s, replicas=tuple(ordered))


def _check(
    quantity: Quantity,
    pool: PoolPolicy,
    ready: Sequence[Replica],
    joined: Mapping[ReplicaKey, ReplicaSeries],
    look: Look,
) -> QueryCheck:
    part = "_count" if quantity.kind is Kind.HISTOGRAM else ""
    aliases: dict[str, None] = {}
    count = covered = 0
    ages: list[float] = []
    for replica in ready:
        series = joined.get((pool.key, replica.name), NO_SERIES)
        found = candidates(quantity, series, look, part)
        if not found or breach_of(quantity, series, look, part) is not None:
            continue
        aliases[found[0].name] = None
        count += len(found[0].series)
        covered += 1
        ages.append(look.now_s - found[0].newest_at_s)
    return QueryCheck(
        pool=str(pool.key),
        quantity=quantity.name,
        required=quantity.required,
        aliases=tuple(aliases),
        series=count,
        covered=covered,
        expected=len(ready),
        newest_age_s=max(ages, default=None),
        verdict=_verdict(covered, len(ready), required=quantity.required),
    )


def _verdict(covered: int, expected: int, *, required: bool) -> Verdict:
    if expected == 0:
        return Verdict.NO_REPLICAS
    if covered == expected:
        return Verdict.OK
    if covered:
        return Verdict.PARTIAL
    return Verdict.MISSING if required else Verdict.NOT_OFFERED


def _gateway_check(key: PoolKey, seen: GatewaySeries, settings: ObserveSettings, now_s: float) -> QueryCheck:
    found = [
        s
        for s in seen.by_cluster.get((gateway.ATTEMPTS_ATTACHED, str(key)), ())
        if now_s - s.newest_at_s <= settings.fresh_within_s
    ]
    covered = len({s.labels.get("instance", "") for s in found})
    expected = max(1, len(seen.instances))
    return QueryCheck(
        pool=str(key),
        quantity="arrivals (gateway)",
        required=True,
        aliases=(gateway.ATTEMPTS_ATTACHED,) if found else (),
        series=len(found),
        covered=covered,
        expected=expected,
        newest_age_s=max((now_s - s.newest_at_s for s in found), default=None),
        verdict=_verdict(covered, expected, required=True),
    )


def _gateway_violation(key: PoolKey, seen: GatewaySeries, settings: ObserveSettings) -> str:
    start = f"contract: pool {key}: arrivals: "
    if not seen.instances:
        return f'{start}Prometheus has no scrape target of job "{settings.gateway_job}"'
    if not seen.up_instances:
        return f'{start}every scrape target of job "{settings.gateway_job}" is down; is Envoy up?'
    there = sorted({cluster for _, cluster in seen.by_cluster})
    listed = ", ".join(there[:4]) or "none"
    return f"{start}no {gateway.ATTEMPTS_ATTACHED} of cluster {key} (clusters there: {listed})"


def _no_targets(
    reader: PrometheusReader, pool: PoolPolicy, policy: ServicePolicy, settings: ObserveSettings, now_s: float
) -> str:
    """Return why nothing is found for a pool: wrong labels, or no such job at all. Costs one query."""
    catalogue = ENGINES[pool.engine.value]
    wanted = f'{settings.service_label}="{pool.key.service}", {settings.pool_label}="{pool.key.pool}"'
    start = f"contract: pool {pool.key}: no scrape target is labelled {wanted}"
    names = [name for name, _ in catalogue.spellings("running_requests")]
    by = f"job, {settings.service_label}, {settings.pool_label}, {catalogue.model_label}"
    result = reader.instant(f"count by ({by}) ({selector(names)})", now_s)
    if isinstance(result, Failure):
        return f"{start} ({result.detail})"
    if not result.series:
        return f"{start}, and no series of {catalogue.engine} exists: its job is missing from the scrape configuration"
    there = "; ".join(
        sorted({" ".join(f"{k}={v}" for k, v in sorted(s.labels.items())) or "no labels" for s in result.series})[:4]
    )
    return f"{start}; {catalogue.engine} series exist with {there} (the policy's model is {policy.model})"


def _interval_notes(targets: Answer, settings: ObserveSettings) -> tuple[str, ...]:
    """Say when targets are scraped less often than believed: then rates and ages mislead."""
    interval_s = scraped_every_s(targets.series)
    if interval_s is None or interval_s <= 1.5 * settings.scrape_interval_s:
        return ()
    return (f"targets are scraped every {interval_s:.1f} s, not every {settings.scrape_interval_s:g} s as set",)


def _twin_notes(seen: Sighting) -> tuple[str, ...]:
    """Say when two jobs scrape one replica; its series are not counted twice, and the scrapes cost twice."""
    if isinstance(seen.engines, Failure):
        return ()
    twins = sorted(
        f"{name} ({', '.join(sorted({s.labels.get('job', '') for s in series.of(queries.UP)}))})"
        for (_, name), series in seen.engines.items()
        if len(series.of(queries.UP)) > 1
    )
    return (f"scraped more than once: {', '.join(twins[:4])}",) if twins else ()
