"""Kubernetes' HorizontalPodAutoscaler (autoscaling/v2) as functions: metrics to counts, then windows, rates, bounds.

The parts are shared by every law that stands behind an HPA (KEDA, crane, llm-d's laws); `follow` is the whole tail from
a recommended count to what is asked for. What the HPA knows of the past lives in its process: a restart loses it, and
it starts again from the present count.

Source: Kubernetes, horizontal pod autoscaling (autoscaling/v2); defaults of kube-controller-manager.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tidegate.baselines.figures import kv_at_capacity, load_knob, targets
from tidegate.baselines.law import LawMemory, PoolFacts, Proposal, ceil_div, held, inside, number_of, pool_law, staged
from tidegate.sim.policies import Contender, Knob, PolicyFn, Rival, Wants, World
from tidegate.terms.decision import Reason
from tidegate.terms.fleet import PoolKey, ReplicaState

SYNC_S = 15.0  # --horizontal-pod-autoscaler-sync-period

Dated = tuple[tuple[float, int], ...]  # (time, count), oldest first


class Select(StrEnum):
    """Which of several rate policies counts."""

    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One rate policy: at most `pods` or at most `percent` of the count at the start of the period."""

    pods: int | None = None
    percent: float | None = None  # exactly one of the two is given
    period_s: float = 15.0

    def limit(self, start: int, direction: int) -> int:
        """Return the farthest count from `start` upwards (+1) or downwards (-1)."""
        if self.pods is not None:
            return start + direction * self.pods
        reached = start * (1.0 + direction * (self.percent or 0.0) / 100.0)
        return math.ceil(reached) if direction > 0 else math.trunc(reached)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How one direction is restrained."""

    window_s: float
    steps: tuple[Step, ...]
    select: Select = Select.MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Behavior:
    """`spec.behavior` and the tolerance; the defaults are Kubernetes'."""

    tolerance: float = 0.1
    up: Rules = field(default_factory=lambda: Rules(window_s=0.0, steps=(Step(percent=100.0), Step(pods=4))))
    down: Rules = field(default_factory=lambda: Rules(window_s=300.0, steps=(Step(percent=100.0),)))


@dataclass(frozen=True, slots=True, kw_only=True)
class HpaState:
    """What the controller's process remembers of one object."""

    recommendations: Dated
    grown: Dated = ()  # (time, replicas added)
    shrunk: Dated = ()  # (time, replicas removed)


def average_value(total: float, replicas: int, target: float, *, tolerance: float = 0.1) -> int:
    """Return the count an External or Object metric with an AverageValue target recommends, before any limit.

    Args:
        total: The metric over all pods, >= 0.
        replicas: status.replicas, >= 0.
        target: Per replica, > 0.
        tolerance: Relative deviation that changes nothing.
    """
    if replicas > 0 and abs(total / (target * replicas) - 1.0) <= tolerance:
        return replicas
    return ceil_div(total, target)


def value(total: float, replicas: int, ready: int, target: float, *, tolerance: float = 0.1) -> int:
    """Return the count an External or Object metric with a Value target recommends: multiplicative, can run away.

    Args:
        total: The metric.
        replicas: spec.replicas.
        ready: Ready pods.
        target: For the total, > 0.
        tolerance: Relative deviation that changes nothing.
    """
    ratio = total / target
    if replicas == 0:
        return ceil_div(total, target)
    return replicas if abs(ratio - 1.0) <= tolerance else ceil_div(total * ready, target)


def pods_metric(
    values: Sequence[float], replicas: int, target: float, *, missing: int = 0, unready: int = 0, tolerance: float = 0.1
) -> int | None:
    """Return the count a Pods metric recommends; None when no ready pod reported, which the HPA takes as an error.

    Pods without a sample may only shrink a move: they count as 0 when growing and as on target when shrinking.

    Args:
        values: One per ready pod that reported.
        replicas: spec.replicas.
        target: AverageValue, > 0.
        missing: Running pods without a sample.
        unready: Pods that are not ready yet; they count when growing only, as 0.
        tolerance: Relative deviation that changes nothing.
    """
    if not values:
        return None
    total, count = sum(values), len(values)
    ratio = total / (count * target)
    if ratio == 1.0 or (not missing and (not unready or ratio <= 1.0)):
        return replicas if abs(ratio - 1.0) <= tolerance else ceil_div(total, target)
    counted = count + missing + (unready if ratio > 1.0 else 0)
    filled = total + (missing * target if ratio < 1.0 else 0.0)
    again = filled / (counted * target)
    if abs(again - 1.0) <= tolerance or (ratio < 1.0 < again) or (again < 1.0 < ratio):
        return replicas
    desired = ceil_div(filled, target)
    against = desired > replicas if again < 1.0 else desired < replicas
    return replicas if against else desired


def of_several(recommendations: Sequence[int | None], replicas: int) -> int | None:
    """Return the highest of several metrics' counts; None, no change, when lost ones forbid a move.

    None in `recommendations` is a metric that failed: the rest may then raise the count and not lower it.
    """
    known = [n for n in recommendations if n is not None]
    if not known or (len(known) < len(recommendations) and max(known) < replicas):
        return None
    return max(known)


def stabilised(replicas: int, wanted: int, older: Dated, behavior: Behavior, *, now_s: float) -> int:
    """Return the count after both stabilisation windows; `older` holds the recommendations before this one."""
    since_up_s, since_down_s = now_s - behavior.up.window_s, now_s - behavior.down.window_s
    up = min([wanted, *(n for at_s, n in older if at_s > since_up_s)])
    down = max([wanted, *(n for at_s, n in older if at_s > since_down_s)])
    return up if replicas < up else min(replicas, down)


def rate_limited(
    replicas: int, wanted: int, behavior: Behavior, *, grown: Dated = (), shrunk: Dated = (), now_s: float
) -> int:
    """Return `wanted` as far as the direction's rate policies let it go; `grown` and `shrunk` are earlier moves."""
    direction = 1 if wanted > replicas else -1
    rules = behavior.up if direction > 0 else behavior.down
    if wanted == replicas or rules.select is Select.DISABLED:
        return replicas
    limits = []
    for step in rules.steps:
        since_s = now_s - step.period_s
        start = replicas - _within(grown, since_s) + _within(shrunk, since_s)
        limits.append(step.limit(start, direction))
    permissive = (rules.select is Select.MAX) == (direction > 0)
    limit = max(limits) if permissive else min(limits)
    return max(replicas, min(wanted, limit)) if direction > 0 else min(replicas, max(wanted, limit))


def follow(
    wanted: int | None, facts: PoolFacts, before: HpaState | None, behavior: Behavior
) -> tuple[Proposal, HpaState]:
    """Return what the HPA asks for and remembers, given the count its metrics recommend (None: no valid metric).

    Order: windows, then rate policies, then the pool's bounds. Without a valid metric nothing moves and nothing is
    remembered of it.
    """
    now_s, current = facts.now_s, facts.asked
    # Seeded with the present count, as the HPA does after a restart.
    state = before or HpaState(recommendations=((now_s, current),))
    if wanted is None:
        return held(facts), state
    steady = stabilised(current, wanted, state.recommendations, behavior, now_s=now_s)
    limited = rate_limited(current, steady, behavior, grown=state.grown, shrunk=state.shrunk, now_s=now_s)
    asked = inside(facts.pool, limited)
    border = Reason.AT_MAXIMUM if limited > asked else Reason.AT_MINIMUM
    notes = staged(
        (Reason.DEMAND_NOW, wanted), (Reason.STABILISATION, steady), (Reason.RATE_LIMIT, limited), (border, asked)
    )
    proposal = Proposal(asked=asked, wanted=wanted, notes=notes)
    return proposal, _remembered(state, wanted, asked - current, behavior, now_s=now_s)


def _remembered(state: HpaState, wanted: int, moved: int, behavior: Behavior, *, now_s: float) -> HpaState:
    since_s = now_s - max(behavior.up.window_s, behavior.down.window_s)
    period_s = max((s.period_s for s in (*behavior.up.steps, *behavior.down.steps)), default=0.0)
    grown, shrunk = _after(state.grown, now_s - period_s), _after(state.shrunk, now_s - period_s)
    return HpaState(
        recommendations=(*_after(state.recommendations, since_s), (now_s, wanted)),
        grown=(*grown, (now_s, moved)) if moved > 0 else grown,
        shrunk=(*shrunk, (now_s, -moved)) if moved < 0 else shrunk,
    )


def _after(dated: Dated, since_s: float) -> Dated:
    return tuple(entry for entry in dated if entry[0] > since_s)


def _within(moves: Dated, since_s: float) -> int:
    return sum(n for at_s, n in moves if at_s > since_s)


def queue_law(target: Callable[[PoolKey], float], behavior: Behavior) -> PolicyFn[LawMemory[HpaState]]:
    """Return the HPA on an External metric, running + waiting requests, with an AverageValue per pool.

    Unknown sum: no valid metric, so it holds. A sum over fewer replicas than are ready is taken as it comes, as
    Prometheus would give it. Simplified: requests still in draining replicas are not in the sum.
    """

    def rule(facts: PoolFacts, before: HpaState | None) -> tuple[Proposal, HpaState]:
        load, wanted = facts.in_engines, None
        if load is not None:
            wanted = average_value(load, facts.existing, target(facts.pool.key), tolerance=behavior.tolerance)
        return follow(wanted, facts, before, behavior)

    return pool_law(rule)


def kv_law(target: Callable[[PoolKey], float], behavior: Behavior) -> PolicyFn[LawMemory[HpaState]]:
    """Return the HPA on a Pods metric, KV use, with an AverageValue per pool.

    A replica that starts and has an address runs without a series, so it is missing; without one it is a pending pod,
    so unready; a draining one is being deleted and left out. No replica with a sample: an error, so it holds.
    """

    def rule(facts: PoolFacts, before: HpaState | None) -> tuple[Proposal, HpaState]:
        replicas = facts.seen.replicas if facts.seen else ()
        read = [number_of(r.kv_used_ratio) for r in replicas if r.replica.state is ReplicaState.READY]
        values = [v for v in read if v is not None]
        unready = sum(r.replica.state is ReplicaState.STARTING and not r.replica.address for r in replicas)
        missing = len(read) - len(values) + facts.starting - unready
        wanted = pods_metric(
            values,
            facts.asked,
            target(facts.pool.key),
            missing=missing,
            unready=unready,
            tolerance=behavior.tolerance,
        )
        return follow(wanted, facts, before, behavior)

    return pool_law(rule)


def _queue_knob(world: World) -> Knob:
    return load_knob(world, world.concurrency, name="averageValue", unit="requests per replica", default=None)


def _queue(world: World, setting: float | None) -> Contender:
    chosen = _queue_knob(world).default if setting is None else setting
    law = queue_law(targets(world, world.concurrency, chosen).__getitem__, Behavior())
    return Contender(
        name="hpa-queue", law=law, start=LawMemory(), wants=Wants(period_s=SYNC_S, rates=False), setting=chosen
    )


def _kv_knob(world: World) -> Knob:
    # 0.5 is the KV target of AIBrix's published autoscaler comparison; Kubernetes ships none.
    return load_knob(world, kv_at_capacity(world), name="averageValue", unit="share of KV in use", default=0.5)


def _kv(world: World, setting: float | None) -> Contender:
    chosen = _kv_knob(world).default if setting is None else setting
    law = kv_law(targets(world, kv_at_capacity(world), chosen).__getitem__, Behavior())
    wants = Wants(period_s=SYNC_S, rates=False, replicas=True)
    return Contender(name="hpa-kv", law=law, start=LawMemory(), wants=wants, setting=chosen)


RIVALS = (
    Rival(
        name="hpa-queue",
        summary="Kubernetes HPA, external metric running + waiting requests, AverageValue",
        source="Kubernetes autoscaling/v2, defaults of kube-controller-manager",
        knob=_queue_knob,
        make=_queue,
    ),
    Rival(
        name="hpa-kv",
        summary="Kubernetes HPA, pods metric KV-cache use, AverageValue",
        source="Kubernetes autoscaling/v2, rules for missing and unready pods",
        knob=_kv_knob,
        make=_kv,
    ),
)
