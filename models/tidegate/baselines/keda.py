"""KEDA with its Prometheus scaler on queue length, and the HPA that KEDA creates behind it.

The polling loop (30 s) owns 0 <-> 1: it activates when the metric is over the activation threshold, and takes the last
replicas away when inactive for longer than the cooldown (300 s). The HPA owns 1..N: it asks KEDA's metrics server each
15 s, whatever the polling interval, for an External metric with an AverageValue target.

Missing data: an empty, NaN or infinite answer is 0 by default (`ignoreNullValues: "true"`), an error otherwise. An
error without a fallback leaves the HPA without a metric, so it holds, and the polling loop holds too. With a fallback,
after more than `failureThreshold` failures in a row the metric becomes target x replicas, so the HPA wants those.

The query is `sum(running) + sum(waiting)` over the engines; with no replica it is what the gateway holds, else nothing
could ever wake a pool from zero. Values travel in thousandths and negatives become 0.

Source: KEDA 2.x, Prometheus scaler, scale executor and fallback.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from tidegate.baselines.figures import load_knob, replicas_for, targets
from tidegate.baselines.hpa import SYNC_S, Behavior, HpaState, average_value, follow
from tidegate.baselines.law import LawMemory, PoolFacts, Proposal, failed, held, number_of, pool_law
from tidegate.sim.policies import Contender, Knob, Rival, Wants, World
from tidegate.terms.decision import Reason, ReasonNote
from tidegate.terms.signal import Signal


class FallbackBehavior(StrEnum):
    """Which count a fallback stands for."""

    STATIC = "static"
    CURRENT = "currentReplicas"
    CURRENT_IF_HIGHER = "currentReplicasIfHigher"
    CURRENT_IF_LOWER = "currentReplicasIfLower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """`spec.fallback`."""

    replicas: int  # >= 0
    failure_threshold: int = 3  # failures in a row before it is used
    behavior: FallbackBehavior = FallbackBehavior.STATIC

    def count(self, current: int) -> int:
        """Return the replicas it stands for."""
        match self.behavior:
            case FallbackBehavior.CURRENT:
                return current
            case FallbackBehavior.CURRENT_IF_HIGHER:
                return max(current, self.replicas)
            case FallbackBehavior.CURRENT_IF_LOWER:
                return min(current, self.replicas)
            case FallbackBehavior.STATIC:
                return self.replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class KedaSettings:
    """One ScaledObject with one Prometheus trigger; the defaults are KEDA's."""

    threshold: float  # AverageValue, > 0
    activation_threshold: float = 0.0
    polling_s: float = 30.0
    cooldown_s: float = 300.0
    ignore_null: bool = True
    fallback: Fallback | None = None
    behavior: Behavior = field(default_factory=Behavior)


@dataclass(frozen=True, slots=True, kw_only=True)
class KedaState:
    """What KEDA and its HPA remember of one object."""

    hpa: HpaState | None = None
    polled_at_s: float | None = None
    active_at_s: float | None = None  # when it was last active; None: never
    failures: int = 0  # in a row


def scaler_value(signal: Signal | None, *, ignore_null: bool) -> float | None:
    """Return what the Prometheus scaler makes of an answer, in whole thousandths; None is an error."""
    if failed(signal):
        return None
    number = number_of(signal)
    if number is None:
        return 0.0 if ignore_null else None
    return max(0.0, round(number * 1000.0) / 1000.0)


def with_fallback(value: float | None, settings: KedaSettings, *, failures: int, replicas: int) -> float | None:
    """Return the metric as the HPA gets it: the value, a fallback's, or None.

    Args:
        value: From the scaler, None for an error.
        settings: The object's.
        failures: In a row, this one included.
        replicas: Present count.
    """
    if value is not None or settings.fallback is None or failures <= settings.fallback.failure_threshold:
        return value
    return settings.threshold * settings.fallback.count(replicas)


def polled(value: float | None, facts: PoolFacts, state: KedaState, settings: KedaSettings) -> int:
    """Return the count after the polling loop, given the count asked for before it.

    An error holds, but for a fallback of 0 replicas with a minimum of 0, which goes the way of an inactive object.
    """
    least, current = facts.pool.min_replicas, facts.asked
    if value is not None and value > settings.activation_threshold:
        return max(1, least) if current == 0 else current
    holds = value is None and (settings.fallback is None or settings.fallback.replicas != 0)
    idle_s = None if state.active_at_s is None else facts.now_s - state.active_at_s
    if holds or least > 0 or current == 0 or (idle_s is not None and idle_s <= settings.cooldown_s):
        return current
    return 0


def _metric(facts: PoolFacts, settings: KedaSettings) -> float | None:
    if facts.seen is None:
        return 0.0 if settings.ignore_null else None
    null = settings.ignore_null
    if facts.existing == 0:
        return scaler_value(facts.seen.gateway_pending_requests, ignore_null=null)
    operands = (facts.seen.running_requests, facts.seen.waiting_requests)
    parts = [scaler_value(signal, ignore_null=null) for signal in operands]
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        return None
    # In PromQL an empty operand makes the whole sum empty, not the other operand's value.
    return 0.0 if any(number_of(signal) is None for signal in operands) else sum(known)


def _rule(facts: PoolFacts, kept: KedaState | None, settings: KedaSettings) -> tuple[Proposal, KedaState]:
    state = kept or KedaState()
    value = _metric(facts, settings)
    state = replace(state, failures=0 if value is not None else state.failures + 1)
    if value is not None and value > settings.activation_threshold:
        state = replace(state, active_at_s=facts.now_s)
    if state.polled_at_s is None or facts.now_s - state.polled_at_s >= settings.polling_s:
        state = replace(state, polled_at_s=facts.now_s)
        count = polled(value, facts, state, settings)
        if count != facts.asked:
            note = ReasonNote(reason=Reason.DEMAND_NOW, before_replicas=facts.asked, after_replicas=count)
            return Proposal(asked=count, wanted=count, notes=(note,)), state
    if facts.asked == 0:  # an HPA with a count of 0 is disabled
        return held(facts, Reason.AT_MINIMUM), state
    metric = with_fallback(value, settings, failures=state.failures, replicas=facts.existing)
    wanted = None
    if metric is not None:
        recommended = average_value(metric, facts.existing, settings.threshold, tolerance=settings.behavior.tolerance)
        wanted = max(1, recommended)  # the HPA's own minimum is never 0
    proposal, hpa = follow(wanted, facts, state.hpa, settings.behavior)
    return replace(proposal, asked=max(1, proposal.asked)), replace(state, hpa=hpa)


def _knob(world: World) -> Knob:
    return load_knob(world, world.concurrency, name="threshold", unit="requests per replica", default=None)


def _contender(name: str, world: World, setting: float | None, fallback: dict[str, Fallback] | None) -> Contender:
    chosen = _knob(world).default if setting is None else setting
    each = {
        key: KedaSettings(
            threshold=target,
            ignore_null=fallback is None,
            fallback=None if fallback is None else fallback[str(key)],
        )
        for key, target in targets(world, world.concurrency, chosen).items()
    }
    return Contender(
        name=name,
        law=pool_law(lambda facts, kept: _rule(facts, kept, each[facts.pool.key])),
        start=LawMemory(),
        wants=Wants(period_s=SYNC_S, rates=False),
        setting=chosen,
    )


def _plain(world: World, setting: float | None) -> Contender:
    return _contender("keda-queue", world, setting, None)


def _careful(world: World, setting: float | None) -> Contender:
    """Return KEDA as a careful operator sets it: errors are errors; then the mean's size, or what runs if more."""
    fallback = {
        str(key): Fallback(replicas=count, behavior=FallbackBehavior.CURRENT_IF_HIGHER)
        for key, count in replicas_for(world, world.mean_per_s).items()
    }
    return _contender("keda-queue-fallback", world, setting, fallback)


RIVALS = (
    Rival(
        name="keda-queue",
        summary="KEDA on running + waiting, polling 30 s, cooldown 300 s; an empty answer is 0",
        source="KEDA 2.x Prometheus scaler with its defaults, before a Kubernetes HPA",
        knob=_knob,
        make=_plain,
    ),
    Rival(
        name="keda-queue-fallback",
        summary="KEDA on running + waiting; an empty answer is an error, with a fallback after 3",
        source="KEDA 2.x Prometheus scaler, ignoreNullValues false, fallback currentReplicasIfHigher",
        knob=_knob,
        make=_careful,
    ),
)
