"""One service as the decision sees it: facts derived once, then what each pool's guards look at."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tidegate.core.budget import Claim, caps_of
from tidegate.core.demand import demand_on
from tidegate.core.guards import Bound, Context
from tidegate.core.need import Facts, PoolNeed, latency_readings, needs_of, sizable
from tidegate.core.supply import Supply, supply_of
from tidegate.core.trust import Doubt, doubt_in
from tidegate.core.window import look_back, remember
from tidegate.terms.capacity import PoolCapacity
from tidegate.terms.decision import Memory, Reason
from tidegate.terms.fleet import PoolKey
from tidegate.terms.forecast import Forecast
from tidegate.terms.observation import Intervention, InterventionKind, ServiceObservation
from tidegate.terms.policy import PoolPolicy, ServicePolicy

_NO_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One service with everything derived from its facts."""

    facts: Facts
    doubts: tuple[Doubt, ...]
    needs: Mapping[PoolKey, PoolNeed]
    histories: Mapping[PoolKey, tuple[tuple[float, int], ...]]  # what was wanted, this decision included

    def proposal(self, key: PoolKey) -> int:
        """Return what the guards start from: the need, or what was asked before when nothing is known."""
        wanted = self.needs[key].wanted_replicas
        return self.facts.supply[key].asked_before_replicas if wanted is None else wanted

    def window_s(self, key: PoolKey) -> float:
        """Return the stabilisation window: the policy's, else twice the measured cold start."""
        return _window_s(self.facts, key)

    def ever_observed(self, key: PoolKey) -> bool:
        """Return whether a load signal was ever believed and there was a size to divide it by."""
        memory = self.facts.memory.get(key)
        if memory is not None and memory.ever_observed:
            return True
        loads = (self.facts.demand.now_per_s, self.facts.demand.backlog_requests)
        return any(v is not None for v in loads) and self.needs[key].wanted_replicas is not None


def look(
    policy: ServicePolicy,
    observed: ServiceObservation | None,
    forecasts: Sequence[Forecast],
    capacity: Mapping[PoolKey, PoolCapacity],
    memory: Memory,
    *,
    now_s: float,
) -> Scene:
    """Return the service's scene; nothing here raises on what was observed."""
    pools = {p.key: p for p in observed.pools} if observed else {}
    remembered = {m.key: m for m in memory.pools}
    facts = Facts(
        policy=policy,
        demand=demand_on(policy, observed, forecasts, now_s=now_s),
        observed=observed,
        capacity=capacity,
        supply={p.key: supply_of(p, pools.get(p.key), remembered.get(p.key), mode=policy.mode) for p in policy.pools},
        memory=remembered,
        now_s=now_s,
    )
    doubts = (*facts.demand.doubts, *_missing(facts), *_latency_doubts(facts))
    needs = needs_of(facts)
    blind = any(d.reason is not Reason.PARTIAL_COVERAGE for d in doubts)
    histories = {p.key: _history(facts, p.key, needs[p.key].wanted_replicas, blind=blind) for p in policy.pools}
    return Scene(facts=facts, doubts=doubts, needs=needs, histories=histories)


def _history(facts: Facts, key: PoolKey, wanted: int | None, *, blind: bool) -> tuple[tuple[float, int], ...]:
    """Return what was wanted, this decision included.

    A number made while a required signal was lost is a lower bound: it may raise the window's maximum, and it does
    not count as having watched.
    """
    memory = facts.memory.get(key)
    if blind and wanted is not None and wanted <= facts.supply[key].asked_before_replicas:
        wanted = None
    past = memory.wanted_history if memory is not None else ()
    return remember(past, wanted, now_s=facts.now_s, length_s=_window_s(facts, key))


def _window_s(facts: Facts, key: PoolKey) -> float:
    given = facts.policy.scaling.shrink_stabilisation_s
    if given is not None:
        return max(0.0, given)
    return 2.0 * _cold_start_s(facts.policy, facts.capacity, key)


def _cold_start_s(policy: ServicePolicy, capacity: Mapping[PoolKey, PoolCapacity], key: PoolKey) -> float:
    """Return the pool's cold start p95, seconds: measured or, without a capacity, the policy's prior."""
    measured = capacity[key].cold_start_p95_s if key in capacity else math.nan
    if math.isfinite(measured) and measured >= 0.0:
        return measured
    return next((p.cold_start_prior_s for p in policy.pools if p.key == key), 0.0)


def _missing(facts: Facts) -> tuple[Doubt, ...]:
    """Return the pools that nobody sized and, when the service was seen, those that nobody saw."""
    unsized = [p.key for p in facts.policy.pools if not sizable(facts.capacity.get(p.key))]
    doubts = [Doubt(signal=f"{k} capacity", reason=Reason.STALE_METRICS, detail="none known") for k in unsized]
    if facts.observed is not None:
        seen = {p.key for p in facts.observed.pools}
        unseen = [p.key for p in facts.policy.pools if p.key not in seen]
        doubts += [Doubt(signal=f"{k} observation", reason=Reason.STALE_METRICS, detail="absent") for k in unseen]
    return tuple(doubts)


def _latency_doubts(facts: Facts) -> tuple[Doubt, ...]:
    """Return which latency objectives cannot be judged though load makes them matter.

    Without pressure latency has no say in either direction: an idle histogram reads NaN, and a pool that could never
    shrink at no traffic would be the harm.
    """
    if facts.observed is None or not facts.under_pressure():
        return ()
    doubts: list[Doubt] = []
    for slo, reading in latency_readings(facts.policy, facts.observed):
        name = f"{facts.policy.name} {slo.name}"
        if reading is None:
            doubts.append(Doubt(signal=name, reason=Reason.STALE_METRICS, detail="not read"))
            continue
        stale_after_s = facts.policy.scaling.stale_after_s
        found = doubt_in(name, reading.attained_ratio, now_s=facts.now_s, stale_after_s=stale_after_s, optional=True)
        doubts += [found] if found is not None else []
    return tuple(doubts)


def contexts(scene: Scene, interventions: Sequence[Intervention]) -> dict[PoolKey, Context]:
    """Return what each pool's guards look at; the service's budget is shared out over its pools here."""
    policy = scene.facts.policy
    found = {p.key: _context(scene, p, interventions) for p in policy.pools}
    if policy.budget.max_gpus is None and policy.budget.max_cost_usd_per_h is None:
        return found
    claims = [
        Claim(
            pool=p,
            least_replicas=p.min_replicas,
            held_replicas=found[p.key].before,
            asked_replicas=found[p.key].inside(scene.proposal(p.key)),
        )
        for p in policy.pools
    ]
    caps = caps_of(policy.budget, claims)
    return {
        key: replace(context, bounds=(*context.bounds, _at_most(Reason.BUDGET, caps[key])))
        for key, context in found.items()
    }


def _context(scene: Scene, pool: PoolPolicy, interventions: Sequence[Intervention]) -> Context:
    key, now_s = pool.key, scene.facts.now_s
    scaling = scene.facts.policy.scaling
    return Context(
        supply=scene.facts.supply[key],
        wanted_replicas=scene.needs[key].wanted_replicas,
        bounds=_bounds(pool, scene.facts.supply[key], interventions, now_s=now_s),
        max_grow_replicas=scaling.max_grow_replicas,
        max_shrink_replicas=scaling.max_shrink_replicas,
        window=look_back(
            scene.histories[key], now_s=now_s, length_s=scene.window_s(key), stale_after_s=scaling.stale_after_s
        ),
        doubts=scene.doubts,
        ever_observed=scene.ever_observed(key),
    )


def _bounds(
    pool: PoolPolicy, supply: Supply, interventions: Sequence[Intervention], *, now_s: float
) -> tuple[Bound, ...]:
    """Return minimum and maximum, then floors, then a freeze: the later the stronger, all inside the first two."""
    found = [_at_least(Reason.AT_MINIMUM, pool.min_replicas), _at_most(Reason.AT_MAXIMUM, pool.max_replicas)]
    active = [i for i in interventions if i.pool == pool.key and i.expires_at_s > now_s]
    floors = [(i.replicas, i.origin) for i in active if i.kind is InterventionKind.FLOOR and i.replicas is not None]
    found += [_at_least(Reason.FLOOR, min(n, pool.max_replicas), text=origin) for n, origin in floors]
    kept = min(max(supply.asked_before_replicas, pool.min_replicas), pool.max_replicas)
    found += [
        Bound(reason=Reason.FROZEN, least_replicas=kept, most_replicas=kept, text=i.origin)
        for i in active
        if i.kind is InterventionKind.FREEZE
    ]
    return tuple(found)


def _at_least(reason: Reason, replicas: int, *, text: str = "") -> Bound:
    return Bound(reason=reason, least_replicas=replicas, most_replicas=_NO_LIMIT, text=text)


def _at_most(reason: Reason, replicas: int, *, text: str = "") -> Bound:
    return Bound(reason=reason, least_replicas=0, most_replicas=replicas, text=text)
