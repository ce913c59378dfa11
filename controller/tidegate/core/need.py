"""How many replicas demand needs, before anything restrains the number.

A replica is planned for `target_utilisation_ratio` of its capacity; the rest is headroom, and a backlog may use it:
`replicas = max(ceil(demand / (capacity * target)), ceil((now + backlog / work_off_s) / capacity))`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tidegate.core.demand import Demand
from tidegate.core.supply import Supply
from tidegate.core.trust import believed
from tidegate.terms.capacity import PoolCapacity
from tidegate.terms.decision import PoolMemory, Reason, ReasonNote
from tidegate.terms.fleet import PoolKey, Role
from tidegate.terms.observation import PoolObservation, ServiceObservation, SliReading
from tidegate.terms.policy import PoolPolicy, ServicePolicy
from tidegate.terms.slo import Indicator, Slo

# A backlog is to be gone when a replica ordered for it could serve, but not faster than a human would call flapping.
MIN_WORK_OFF_S = 10.0
# After a replica became ready, latency figures still hold requests from before it: about one rate window.
SETTLE_S = 30.0
# Below this share of the ready capacity a missed latency objective is no sign of too few replicas.
PRESSURE_RATIO = 0.5
# A number of replicas no fleet has; keeps absurd inputs printable.
_MOST_REPLICAS = 1_000_000
# 3.0000000001 replicas are 3: without it, demand of exactly three replicas asks for a fourth by rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNeed:
    """What one pool needs and which considerations said so; `wanted_replicas` None: nothing known to size on."""

    key: PoolKey
    wanted_replicas: int | None
    notes: tuple[ReasonNote, ...]


def sizable(capacity: PoolCapacity | None) -> bool:
    """Return whether the capacity is a number one can divide by."""
    return capacity is not None and math.isfinite(capacity.requests_per_s) and capacity.requests_per_s > 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One service's demand and what stands against it."""

    policy: ServicePolicy
    demand: Demand
    observed: ServiceObservation | None
    capacity: Mapping[PoolKey, PoolCapacity]
    supply: Mapping[PoolKey, Supply]
    memory: Mapping[PoolKey, PoolMemory]
    now_s: float

    @property
    def ready_requests_per_s(self) -> float:
        """What the ready replicas of all pools carry at their full capacity."""
        return sum(
            self.supply[p.key].ready_replicas * self.capacity[p.key].requests_per_s
            for p in self.policy.pools
            if sizable(self.capacity.get(p.key))
        )

    def under_pressure(self) -> bool:
        """Return whether load is known to be high enough for latency to speak about the number of replicas."""
        if self.demand.backlog_requests is not None and self.demand.backlog_requests > 0.0:
            return True
        now = self.demand.now_per_s
        return now is not None and now > 0.0 and now >= PRESSURE_RATIO * self.ready_requests_per_s


def needs_of(facts: Facts) -> dict[PoolKey, PoolNeed]:
    """Return the need of each pool of the service.

    Pools of one role share its demand: the cheapest per request/s is filled to its maximum first, the last takes the
    rest. Each role carries the whole demand (a request passes prefill and decode).
    """
    found: dict[PoolKey, PoolNeed] = {}
    for role in Role:
        pools = [p for p in facts.policy.pools if p.role is role]
        if not pools:
            continue
        sized = sorted(
            (p for p in pools if sizable(facts.capacity.get(p.key))),
            key=lambda p: (p.cost_usd_per_h / facts.capacity[p.key].requests_per_s, p.key),
        )
        found |= {p.key: PoolNeed(key=p.key, wanted_replicas=None, notes=()) for p in pools}
        found |= _role_needs(facts, sized)
        symptom = symptom_of(facts) if sized else ""
        if symptom:
            open_pools = [p for p in sized if facts.supply[p.key].asked_before_replicas < p.max_replicas]
            key = (open_pools or sized[-1:])[0].key
            found[key] = _one_more(found[key], facts, symptom)
    return found


def _role_needs(facts: Facts, pools: Sequence[PoolPolicy]) -> dict[PoolKey, PoolNeed]:
    demand = facts.demand
    rates = [r for r in (demand.forecast_per_s, demand.now_per_s) if r is not None]
    if not pools or (not rates and demand.backlog_requests is None):
        return {}
    forecast_led = demand.forecast_per_s is not None and demand.forecast_per_s >= (demand.now_per_s or 0.0)
    reason = Reason.DEMAND_FORECAST if forecast_led else Reason.DEMAND_NOW
    work_off_s = max(MIN_WORK_OFF_S, *(_cold_start_s(facts.capacity[p.key]) for p in pools))
    backlog = demand.backlog_requests or 0.0
    target = facts.policy.scaling.target_utilisation_ratio
    by_rate = _fill(pools, max(rates, default=0.0), facts.capacity, use_ratio=target)
    by_backlog = _fill(pools, (demand.now_per_s or 0.0) + backlog / work_off_s, facts.capacity, use_ratio=1.0)
    found = {}
    for pool in pools:
        share, replicas = by_rate[pool.key]
        need = PoolNeed(key=pool.key, wanted_replicas=replicas, notes=(_sized(facts, pool, share, replicas, reason),))
        worked_off = by_backlog[pool.key][1]
        if worked_off > replicas and backlog > 0.0:
            backlog_facts = (("backlog_requests", backlog), ("work_off_s", work_off_s))
            need = raised(need, worked_off, Reason.BACKLOG, facts=backlog_facts)
        found[pool.key] = need
    return found


def _sized(facts: Facts, pool: PoolPolicy, share_per_s: float, replicas: int, reason: Reason) -> ReasonNote:
    """Return the note that says which demand at which capacity gave the number."""
    capacity = facts.capacity[pool.key]
    return ReasonNote(
        reason=reason,
        before_replicas=facts.supply[pool.key].asked_before_replicas,
        after_replicas=replicas,
        facts=(
            ("demand_requests_per_s", share_per_s),
            ("replica_requests_per_s", capacity.requests_per_s),
            ("target_utilisation_ratio", facts.policy.scaling.target_utilisation_ratio),
            ("quantile", facts.policy.scaling.forecast_quantile),
            ("horizon_s", facts.demand.horizon_s),
        ),
        text=capacity.binding,
    )


def _fill(
    pools: Sequence[PoolPolicy], rate_per_s: float, capacity: Mapping[PoolKey, PoolCapacity], *, use_ratio: float
) -> dict[PoolKey, tuple[float, int]]:
    """Return each pool's share of the rate and the replicas for it; the last pool is not capped."""
    left = rate_per_s
    shares: dict[PoolKey, tuple[float, int]] = {}
    for position, pool in enumerate(pools):
        each = capacity[pool.key].requests_per_s * use_ratio
        replicas = min(_MOST_REPLICAS, max(0, math.ceil(min(left / each, _MOST_REPLICAS) - _ROUNDING)))
        is_last = position == len(pools) - 1
        if not is_last:
            replicas = min(max(replicas, pool.min_replicas), pool.max_replicas)
        share = left if is_last else min(left, replicas * each)
        shares[pool.key] = (share, replicas)
        left -= share
    return shares


def _cold_start_s(capacity: PoolCapacity) -> float:
    seconds = capacity.cold_start_p95_s
    return seconds if math.isfinite(seconds) and seconds > 0.0 else 0.0


def raised(
    need: PoolNeed, replicas: int, reason: Reason, *, facts: tuple[tuple[str, float], ...] = (), text: str = ""
) -> PoolNeed:
    """Return `need` raised to `replicas`, with the note that says so."""
    before = need.wanted_replicas or 0
    note = ReasonNote(reason=reason, before_replicas=before, after_replicas=replicas, facts=facts, text=text)
    return replace(need, wanted_replicas=replicas, notes=(*need.notes, note))


def _one_more(need: PoolNeed, facts: Facts, symptom: str) -> PoolNeed:
    """Raise by one over what serves now.

    Counting from the ready replicas makes what is already ordered the answer to the same complaint; and no more than
    one decision's growth above what demand needs, since more replicas do not mend skew or a slow engine.
    """
    ready = facts.supply[need.key].ready_replicas
    replicas = min(ready + 1, (need.wanted_replicas or 0) + facts.policy.scaling.max_grow_replicas)
    if replicas <= (need.wanted_replicas or 0):
        return need
    return raised(need, replicas, Reason.SLO_MISSED, facts=(("ready_replicas", float(ready)),), text=symptom)


def symptom_of(facts: Facts) -> str:
    """Return what shows that demand alone is sized too small: a missed latency objective, a growing queue; or ""."""
    if facts.observed is None:
        return ""
    newest = max((s.newest_ready_at_s or -math.inf for s in facts.supply.values()), default=-math.inf)
    if facts.now_s - newest < SETTLE_S:
        return ""
    missed = _missed(facts, facts.observed) if facts.under_pressure() else ""
    return missed or _queue_grows(facts, facts.observed)


def _missed(facts: Facts, observed: ServiceObservation) -> str:
    stale_after_s = facts.policy.scaling.stale_after_s
    for slo, reading in latency_readings(facts.policy, observed):
        if reading is None:
            continue
        attained = believed(reading.attained_ratio, now_s=facts.now_s, stale_after_s=stale_after_s)
        if attained is not None and attained < slo.objective_ratio:
            return f"{slo.name} met by {attained:.1%} of requests, objective {slo.objective_ratio:.1%}"
    return ""


def latency_readings(policy: ServicePolicy, observed: ServiceObservation) -> list[tuple[Slo, SliReading | None]]:
    """Return each latency objective with its reading; errors are no matter of replica counts, so none for them."""
    by_name = {r.slo: r for r in observed.slis}
    return [(s, by_name.get(s.name)) for s in policy.slos if s.indicator is not Indicator.AVAILABILITY]


def _queue_grows(facts: Facts, observed: ServiceObservation) -> str:
    stale_after_s = facts.policy.scaling.stale_after_s
    for pool in observed.pools:
        before = facts.memory[pool.key].waiting_requests if pool.key in facts.memory else None
        waiting = queue_of(pool, now_s=facts.now_s, stale_after_s=stale_after_s)
        # Fewer than one waiting request per replica is the ordinary gap between two engine steps.
        floor = facts.supply[pool.key].ready_replicas if pool.key in facts.supply else 0
        if waiting is not None and before is not None and waiting > before > floor > 0:
            return f"queue of {pool.key} grew from {before:.0f} to {waiting:.0f} requests"
    return ""


def queue_of(pool: PoolObservation, *, now_s: float, stale_after_s: float) -> float | None:
    """Return requests waiting in the pool's engines, None when not known."""
    return believed(pool.waiting_requests, now_s=now_s, stale_after_s=stale_after_s)
