"""Knative's pod autoscaler (KPA) on concurrency: a stable window, a panic window, and never down in panic.

Windows average the total concurrency over the pool's pods. Everything is clamped by the count of *ready* pods, so pods
that take minutes to start are not seen, and once panic is over the stable window may take back what panic asked for.

Read in Knative's source: the order of panic's start, extension and end; the floor that panic keeps; the start in panic
with the present count as its floor. Simplified: one sample a tick (2 s) instead of two; all pods are read, not a sample
of them; the concurrency is the gateway's count of requests in flight plus those it holds for want of a replica, in
place of the proxies' and the activator's averages over a second, so a fault of the metrics store counts as one of its
own scrape; the activator itself is not built.

An unknown count makes no sample: a gap counts as zero until it is followed by a sample, and without any sample in the
stable window the scale is invalid and nothing moves.

Source: Knative Serving, autoscaler (scaling, aggregation) and its config-autoscaler defaults.
"""

import math
from dataclasses import dataclass

from tidegate.baselines.figures import load_knob, targets
from tidegate.baselines.law import LawMemory, PoolFacts, Proposal, ceil_div, held, number_of, pool_law, staged
from tidegate.sim.policies import Contender, Knob, Rival, Wants, World
from tidegate.terms.decision import Reason

TICK_S = 2.0

Samples = tuple[tuple[float, float], ...]  # (time, concurrency), oldest first


@dataclass(frozen=True, slots=True, kw_only=True)
class KpaSettings:
    """The fields of config-autoscaler; the defaults are Knative's."""

    target: float  # concurrent requests of one pod, > 0; container-concurrency-target-default is 100
    utilisation: float = 0.7  # container-concurrency-target-percentage
    stable_window_s: float = 60.0
    panic_window_s: float = 6.0  # 10 % of the stable window
    panic_threshold: float = 2.0
    max_up_rate: float = 1000.0
    max_down_rate: float = 2.0
    grace_s: float = 30.0  # between no activity and no pod

    @property
    def sized_for(self) -> float:
        """Concurrent requests of one pod that counts are computed with."""
        return self.target * self.utilisation


@dataclass(frozen=True, slots=True, kw_only=True)
class KpaState:
    """What the autoscaler remembers of one revision."""

    samples: Samples = ()  # within the stable window
    first_s: float = 0.0  # time of the first sample since there was none
    panic_since_s: float | None = None
    panic_most: int = 0  # the most asked for in this panic
    idle_since_s: float | None = None  # since when no pod is wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """One scaling step: the count, and panic as it stands after it."""

    desired: int
    panic_since_s: float | None
    panic_most: int


def started(ready: int, *, now_s: float) -> KpaState:
    """Return the first memory: over one ready pod it begins in panic, with their count as the floor."""
    return KpaState(panic_since_s=now_s if ready > 1 else None, panic_most=ready)


def window_mean(samples: Samples, window_s: float, *, first_s: float, now_s: float) -> float:
    """Return the mean of the samples, one a tick, in the window that ends now; 0 when it holds none.

    Ticks without a sample count as zero, but for those before the first (`first_s`) and those after the last.
    """
    since_s = now_s - window_s
    inside = [load for at_s, load in samples if at_s > since_s]
    if not inside:
        return 0.0
    begins_s = max(first_s, since_s + TICK_S)
    return sum(inside) / (1 + round((samples[-1][0] - begins_s) / TICK_S))


def scaled(stable: float, panic: float, ready: int, state: KpaState, settings: KpaSettings, *, now_s: float) -> Scaled:
    """Return what one tick asks for.

    Args:
        stable: Mean concurrency over the stable window, of the whole pool.
        panic: The same over the panic window.
        ready: Ready pods, >= 0.
        state: Panic as it was.
        settings: Targets, rates and windows.
        now_s: Time of the tick.
    """
    pods = max(1, ready)
    most, least = math.ceil(settings.max_up_rate * pods), math.floor(pods / settings.max_down_rate)
    calm_pods = ceil_div(stable, settings.sized_for)
    panic_pods = ceil_div(panic, settings.sized_for)
    since_s, floor = state.panic_since_s, state.panic_most
    if panic_pods / pods >= settings.panic_threshold:
        since_s = now_s
    elif since_s is not None and since_s + settings.stable_window_s < now_s:
        since_s, floor = None, 0
    desired = min(max(calm_pods, least), most)
    if since_s is not None:
        desired = floor = max(floor, desired, min(max(panic_pods, least), most))
    return Scaled(desired=desired, panic_since_s=since_s, panic_most=floor)


def _rule(facts: PoolFacts, kept: KpaState | None, settings: KpaSettings) -> tuple[Proposal, KpaState]:
    now_s = facts.now_s
    state = kept or started(facts.ready, now_s=now_s)
    samples = _sampled(facts, state.samples, now_s - settings.stable_window_s)
    if not samples:
        return held(facts), KpaState(panic_since_s=state.panic_since_s, panic_most=state.panic_most)
    first_s = state.first_s if state.samples else now_s
    stable, panic = (
        window_mean(samples, window_s, first_s=first_s, now_s=now_s)
        for window_s in (settings.stable_window_s, settings.panic_window_s)
    )
    step = scaled(stable, panic, facts.ready, state, settings, now_s=now_s)
    idle_since_s = None if step.desired > 0 else now_s if state.idle_since_s is None else state.idle_since_s
    # The last pod goes only when none was wanted for the grace period.
    waits = idle_since_s is not None and now_s - idle_since_s < settings.grace_s
    asked = min(1, facts.asked) if waits else step.desired
    after = KpaState(
        samples=samples,
        first_s=first_s,
        panic_since_s=step.panic_since_s,
        panic_most=step.panic_most,
        idle_since_s=idle_since_s,
    )
    notes = staged((Reason.DEMAND_NOW, step.desired), (Reason.STABILISATION, asked))
    return Proposal(asked=asked, wanted=step.desired, notes=notes), after


def _sampled(facts: PoolFacts, samples: Samples, since_s: float) -> Samples:
    in_flight = number_of(facts.seen.gateway_in_flight_requests) if facts.seen else None
    first = next((i for i, (at_s, _) in enumerate(samples) if at_s > since_s), len(samples))
    if in_flight is None or facts.seen is None:
        return samples[first:]
    held_back = number_of(facts.seen.gateway_pending_requests) or 0.0
    return (*samples[first:], (facts.now_s, in_flight + held_back))


def _knob(world: World) -> Knob:
    return load_knob(world, world.concurrency, name="target", unit="concurrent requests per replica", default=100.0)


def _make(world: World, setting: float | None) -> Contender:
    chosen = _knob(world).default if setting is None else setting
    each = {key: KpaSettings(target=target) for key, target in targets(world, world.concurrency, chosen).items()}
    return Contender(
        name="kpa",
        law=pool_law(lambda facts, kept: _rule(facts, kept, each[facts.pool.key])),
        start=LawMemory(),
        wants=Wants(period_s=TICK_S, scrape_interval_s=TICK_S, rates=False),
        setting=chosen,
    )


RIVALS = (
    Rival(
        name="kpa",
        summary="Knative pod autoscaler on concurrency: stable 60 s, panic 6 s, tick 2 s",
        source="Knative Serving autoscaler, config-autoscaler defaults",
        knob=_knob,
        make=_make,
    ),
)
