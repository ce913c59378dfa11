"""llm-d's Workload Variant Autoscaler, V2 of its saturation analyser: token supply against token demand.

Every 15 s each replica's KV use and queue (highest of the last minute) become tokens of demand; what a replica can hold
becomes supply. Demand over 0.85 of the supply that is ready or pending grows the cheapest variant, supply that 0.70
leaves spare shrinks the dearest. The result is a gauge that an HPA follows; there is no stabilisation of its own. A
replica without a reading is skipped; when all are, the last gauge stands. Prefix hits count as none, because its query
names a series without `_total` that no engine publishes. Scale to zero is off, as shipped.

Source: llm-d Workload Variant Autoscaler 0.9, saturation analyser V2 and cost-aware optimiser; HPA behaviour of its
own benchmarks (up 10 pods in 150 s, down window 240 s).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.baselines.hpa import SYNC_S, Behavior, HpaState, Rules, Step, average_value, follow
from tidegate.baselines.law import LawMemory, PoolFacts, Proposal, ServiceRule, number_of, service_law
from tidegate.baselines.wva_optimise import Variant, optimised
from tidegate.baselines.wva_supply import (
    GatewayQueue,
    Lengths,
    Limits,
    ReplicaReading,
    Supply,
    Thresholds,
    VariantKept,
    gateway_tokens,
    needs,
    supply_of,
)
from tidegate.sim.policies import Contender, Knob, Rival, Wants, World
from tidegate.terms.fleet import PoolKey, ReplicaState, Role

MAX_OVER_S = 60.0
LENGTHS_WINDOW_S = 300.0
SCALE_UP = 0.85
# Kept in proportion when the threshold is moved; as shipped 0.70 beside 0.85.
SCALE_DOWN_PART = 0.70 / 0.85

BEHAVIOR = Behavior(
    up=Rules(window_s=0.0, steps=(Step(pods=10, period_s=150.0),)),
    down=Rules(window_s=240.0, steps=(Step(percent=100.0),)),
)

Gauge = tuple[float, str, float, float]  # (time, replica, KV use, queue)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolKept:
    """What is remembered of one variant."""

    gauges: tuple[Gauge, ...] = ()  # of the last minute
    variant: VariantKept = field(default_factory=VariantKept)
    wanted: int | None = None  # the gauge as last emitted
    hpa: HpaState | None = None


WvaKept = tuple[tuple[PoolKey, PoolKept], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WvaSettings:
    """Thresholds, and each profile's limits."""

    thresholds: Thresholds
    limits: Mapping[str, Limits]
    behavior: Behavior = BEHAVIOR


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """One variant at one tick."""

    facts: PoolFacts
    kept: PoolKept
    gauges: tuple[Gauge, ...]
    supply: Supply


def wva_rule(settings: WvaSettings) -> ServiceRule[WvaKept]:
    """Return the law for the variants of one model."""

    def rule(pools: tuple[PoolFacts, ...], before: WvaKept | None) -> tuple[tuple[Proposal, ...], WvaKept]:
        kept = dict(before or ())
        seen = [_look(facts, kept.get(facts.pool.key) or PoolKept(), settings) for facts in pools]
        targets = _targets(seen, settings)
        proposals, after = [], []
        for one in seen:
            key = one.facts.pool.key
            wanted = targets.get(key, one.kept.wanted)
            gauge = None
            if wanted is not None:
                gauge = average_value(float(wanted), one.facts.existing, 1.0, tolerance=settings.behavior.tolerance)
            proposal, hpa = follow(gauge, one.facts, one.kept.hpa, settings.behavior)
            proposals.append(proposal)
            after.append((key, PoolKept(gauges=one.gauges, variant=one.supply.kept, wanted=wanted, hpa=hpa)))
        return tuple(proposals), tuple(after)

    return rule


def _look(facts: PoolFacts, kept: PoolKept, settings: WvaSettings) -> _Seen:
    gauges = _gauges(facts, kept.gauges)
    supply = supply_of(
        _readings(facts, gauges),
        _lengths(facts),
        settings.limits[facts.pool.profile],
        kept.variant,
        settings.thresholds,
        prefill=facts.pool.role is Role.PREFILL,
    )
    return _Seen(facts=facts, kept=kept, gauges=gauges, supply=supply)


def _gauges(facts: PoolFacts, before: tuple[Gauge, ...]) -> tuple[Gauge, ...]:
    """Return the last minute's gauges with those of now."""
    recent = [g for g in before if g[0] > facts.now_s - MAX_OVER_S]
    for replica in facts.seen.replicas if facts.seen else ():
        used, queue = number_of(replica.kv_used_ratio), number_of(replica.waiting_requests)
        if replica.replica.state is ReplicaState.READY and used is not None:
            recent.append((facts.now_s, replica.replica.name, used, queue or 0.0))
    return tuple(recent)


def _readings(facts: PoolFacts, gauges: tuple[Gauge, ...]) -> tuple[ReplicaReading, ...]:
    """Return each ready replica that has a gauge in the last minute, with the highest it showed."""
    found = []
    for replica in facts.seen.replicas if facts.seen else ():
        own = [g for g in gauges if g[1] == replica.replica.name]
        if replica.replica.state is not ReplicaState.READY or not own:
            continue
        capacity = number_of(replica.engine.kv_capacity_tokens) if replica.engine else None
        found.append(
            ReplicaReading(kv_used_ratio=max(g[2] for g in own), queue=max(g[3] for g in own), kv_tokens=capacity)
        )
    return tuple(found)


def _lengths(facts: PoolFacts) -> Lengths | None:
    served = facts.served
    prompt = number_of(served.prompt_tokens_mean) if served else None
    output = number_of(served.output_tokens_mean) if served else None
    return Lengths(prompt=prompt, output=output) if prompt and output else None


def _targets(seen: list[_Seen], settings: WvaSettings) -> dict[PoolKey, int]:
    """Return the count of each variant; none where no replica of its role was read."""
    roles = {one.facts.pool.role for one in seen if one.supply.per_replica is not None}
    live = [one for one in seen if one.facts.pool.role in roles and one.supply.per_replica is not None]
    if not live or not any(one.supply.read for one in live):
        return {}
    queue = _gateway_queue(live)
    required: dict[str, float] = {}
    spare: dict[str, float] = {}
    for role in roles:
        of_role = [one for one in live if one.facts.pool.role is role]
        demand = sum(one.supply.demand_tokens for one in of_role) + gateway_tokens(queue, prefill=role is Role.PREFILL)
        ready = sum(one.facts.ready * (one.supply.per_replica or 0) for one in of_role)
        pending = sum(one.facts.starting * (one.supply.per_replica or 0) for one in of_role)
        required[role], spare[role] = needs(demand, ready, ready + pending, settings.thresholds)
    variants = [
        Variant(
            key=one.facts.pool.key,
            role=one.facts.pool.role,
            per_replica=one.supply.per_replica or 1,
            cost=one.facts.pool.cost_usd_per_h,
            current=one.facts.existing,
            least=one.facts.pool.min_replicas,
            most=one.facts.pool.max_replicas,
        )
        for one in live
    ]
    return optimised(variants, required, spare)


def _gateway_queue(live: list[_Seen]) -> GatewayQueue:
    """Return what the gateway holds for the model; the same queue for every variant, so the largest reading."""
    sizes = [number_of(one.facts.seen.gateway_pending_requests) if one.facts.seen else None for one in live]
    lengths = next((found for one in live if (found := _lengths(one.facts)) is not None), None)
    return GatewayQueue(size=max((s for s in sizes if s is not None), default=0.0), lengths=lengths)


def thresholds(scale_up: float = SCALE_UP) -> Thresholds:
    """Return the thresholds for one setting of `scaleUpThreshold`."""
    return Thresholds(scale_up=scale_up, scale_down=scale_up * SCALE_DOWN_PART)


def _knob(_world: World) -> Knob:
    return Knob(name="scaleUpThreshold", unit="share of token supply", safe=0.05, thrifty=1.5, default=SCALE_UP)


def _make(world: World, setting: float | None) -> Contender:
    limits = {
        name: Limits(
            token_budget=profile.token_budget,
            max_sequences=profile.max_sequences,
            kv_tokens=profile.kv_blocks * profile.block_tokens,
        )
        for name, profile in world.profiles.items()
    }
    settings = WvaSettings(thresholds=thresholds(SCALE_UP if setting is None else setting), limits=limits)
    return Contender(
        name="wva-v2",
        law=service_law(wva_rule(settings)),
        start=LawMemory(),
        wants=Wants(period_s=SYNC_S, rate_window_s=LENGTHS_WINDOW_S, replicas=True, engine_detail=True),
        setting=setting,
    )


RIVALS: tuple[Rival, ...] = (
    Rival(
        name="wva-v2",
        summary="llm-d WVA V2: token supply against token demand, cost-aware, through an HPA",
        source="llm-d Workload Variant Autoscaler 0.9",
        knob=_knob,
        make=_make,
    ),
)
