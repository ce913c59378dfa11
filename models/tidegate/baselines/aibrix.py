"""AIBrix' application-specific pod autoscaler (APA) on KV use: as its documents intend it, and as its code was found.

Each resync (10 s) the pods' mean goes into a window (180 s). Its mean over the target, outside a tolerance, multiplies
the present count, at most doubled or halved. Since the count multiplies itself while new pods start, a guard counts
pods that are not ready as missing: idle when growing, on target when shrinking. A cooldown of 300 s before shrinking
and 0 s before growing looks back at what was recommended.

As found, by reading (defects of the design's list that reach APA):
- a: the cooldown takes the *lowest* recommendation of its window when shrinking (and the highest when growing), the
  reverse of what a stabilisation does: one low sample decides, for 300 s;
- b: a sample that cannot be fetched reads 0 instead of failing, so an outage halves the fleet each step.
Defects c, d are of its KPA; e, f, g of its samples, metric names and HPA strategy.

As intended a pod without a sample is left out of the mean, and without any sample nothing moves. It scrapes pods
itself; here a fault of the metrics store counts as one of that scrape. Only ready pods are read.

Source: AIBrix, pkg/controller/podautoscaler (algorithm/apa, autoscaler); defaults of its annotations.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidegate.baselines.figures import kv_at_capacity, load_knob, targets
from tidegate.baselines.law import LawMemory, PoolFacts, Proposal, ceil_div, held, number_of, pool_law, staged
from tidegate.sim.policies import Contender, Knob, Rival, Wants, World
from tidegate.terms.decision import Reason
from tidegate.terms.fleet import ReplicaState

RESYNC_S = 10.0
KeptT = TypeVar("KeptT")
_EDGE = 1e-9  # a ratio that is on the tolerance but for rounding is within it


@dataclass(frozen=True, slots=True, kw_only=True)
class ApaSettings:
    """The annotations of one PodAutoscaler; the defaults are AIBrix'."""

    target: float  # of the pods' mean, > 0
    up_tolerance: float = 0.1
    down_tolerance: float = 0.1
    max_up_rate: float = 2.0
    max_down_rate: float = 2.0
    window_s: float = 180.0
    up_cooldown_s: float = 0.0
    down_cooldown_s: float = 300.0
    as_found: bool = False  # with defects a and b


@dataclass(frozen=True, slots=True, kw_only=True)
class ApaState:
    """What the controller remembers of one object."""

    samples: tuple[tuple[float, float], ...] = ()  # (time, mean over pods), within the window
    recommendations: tuple[tuple[float, int], ...] = ()  # within the longer cooldown


def apa(use: float, replicas: int, settings: ApaSettings) -> int:
    """Return the count the algorithm recommends, before guard, cooldown and bounds.

    Args:
        use: Mean over the window of the mean over pods.
        replicas: spec.replicas; 0 stays 0.
        settings: Target, tolerances and rates.
    """
    ratio = use / settings.target
    expected = ceil_div(use * replicas, settings.target)
    if ratio > 1.0 + settings.up_tolerance + _EDGE:
        return min(math.ceil(settings.max_up_rate * replicas), expected)
    if ratio < 1.0 - settings.down_tolerance - _EDGE:
        return max(math.floor(replicas / settings.max_down_rate), expected)
    return replicas


def guarded(recommended: int, use: float, replicas: int, *, ready: int, settings: ApaSettings) -> int:
    """Return the recommendation with pods that are not ready counted as missing: between it and no move."""
    ready = min(ready, replicas)
    pending = replicas - ready
    if pending <= 0 or recommended == replicas:
        return recommended
    if recommended > replicas:
        return min(recommended, max(replicas, ceil_div(use * ready, settings.target)))
    return max(recommended, min(replicas, ceil_div(use * ready + settings.target * pending, settings.target)))


def cooled(
    recommended: int, replicas: int, older: Sequence[tuple[float, int]], settings: ApaSettings, *, now_s: float
) -> int:
    """Return the count after the cooldown; `older` holds the recommendations before this one.

    As intended the least of the window grows and the most of it shrinks; as found it is the other way round.
    """
    if recommended == replicas:
        return recommended
    grows = recommended > replicas
    since_s = now_s - (settings.up_cooldown_s if grows else settings.down_cooldown_s)
    window = [recommended, *(n for at_s, n in older if at_s > since_s)]
    chosen = min(window) if grows != settings.as_found else max(window)
    return max(replicas, chosen) if grows else min(replicas, chosen)


def pod_mean(facts: PoolFacts, *, as_found: bool) -> float | None:
    """Return the mean KV use over the ready pods; None without any sample (as found: those count as 0)."""
    replicas = facts.seen.replicas if facts.seen else ()
    read = [number_of(r.kv_used_ratio) for r in replicas if r.replica.state is ReplicaState.READY]
    values = [v or 0.0 for v in read] if as_found else [v for v in read if v is not None]
    if not values:
        return 0.0 if as_found else None
    return sum(values) / len(values)


def _rule(facts: PoolFacts, kept: ApaState | None, settings: ApaSettings) -> tuple[Proposal, ApaState]:
    now_s, current, state = facts.now_s, facts.asked, kept or ApaState()
    mean = pod_mean(facts, as_found=settings.as_found)
    if mean is None:
        return held(facts), state
    samples = (*_after(state.samples, now_s - settings.window_s), (now_s, mean))
    use = sum(value for _, value in samples) / len(samples)
    wanted = apa(use, current, settings)
    counted = guarded(wanted, use, current, ready=facts.ready, settings=settings)
    asked = cooled(counted, current, state.recommendations, settings, now_s=now_s)
    notes = staged((Reason.DEMAND_NOW, wanted), (Reason.PENDING_SUPPLY, counted), (Reason.STABILISATION, asked))
    longer_s = max(settings.up_cooldown_s, settings.down_cooldown_s)
    after = ApaState(
        samples=samples, recommendations=(*_after(state.recommendations, now_s - longer_s), (now_s, counted))
    )
    return Proposal(asked=asked, wanted=wanted, notes=notes), after


def _after(dated: tuple[tuple[float, KeptT], ...], since_s: float) -> tuple[tuple[float, KeptT], ...]:
    return tuple(entry for entry in dated if entry[0] > since_s)


def _knob(world: World) -> Knob:
    # 0.5 is the target of AIBrix' published comparison of its autoscalers.
    return load_knob(world, kv_at_capacity(world), name="targetValue", unit="share of KV in use", default=0.5)


def _contender(name: str, world: World, setting: float | None, *, as_found: bool) -> Contender:
    chosen = _knob(world).default if setting is None else setting
    each = {
        key: ApaSettings(target=target, as_found=as_found)
        for key, target in targets(world, kv_at_capacity(world), chosen).items()
    }
    return Contender(
        name=name,
        law=pool_law(lambda facts, kept: _rule(facts, kept, each[facts.pool.key])),
        start=LawMemory(),
        wants=Wants(period_s=RESYNC_S, scrape_interval_s=RESYNC_S, rates=False, replicas=True),
        setting=chosen,
    )


def _intended(world: World, setting: float | None) -> Contender:
    return _contender("aibrix-apa-intended", world, setting, as_found=False)


def _found(world: World, setting: float | None) -> Contender:
    return _contender("aibrix-apa-found", world, setting, as_found=True)


RIVALS = (
    Rival(
        name="aibrix-apa-intended",
        summary="AIBrix APA on mean KV use, window 180 s, cooldown 300 s, as documented",
        source="AIBrix PodAutoscaler, strategy APA",
        knob=_knob,
        make=_intended,
    ),
    Rival(
        name="aibrix-apa-found",
        summary="AIBrix APA as its code was found: reversed cooldown, a failed fetch reads 0",
        source="AIBrix PodAutoscaler, strategy APA, read in its source",
        knob=_knob,
        make=_found,
    ),
)
