"""One policy once over one load: the world it meets, and its figures."""

import importlib
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from tidegate.app.config_profile import load_profile
from tidegate.app.rehearse.document import Figures, ReplicasOverTime
from tidegate.app.rehearse.findings import Play
from tidegate.app.sizing import modelled, pool_capacities
from tidegate.app.tick import HISTORY_STEPS, levels_of
from tidegate.core.decide import decide
from tidegate.forecast.select import foresee
from tidegate.perf.profile import PS_PER_S
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.counts import ReplicaCounts
from tidegate.sim.fast.fleet import FastFleet
from tidegate.sim.policies import Contender, Rival, Wants, World
from tidegate.sim.rehearse import Conditions, RehearsalResult, rehearse
from tidegate.sim.setup import FleetSetup, PoolSetup
from tidegate.sim.trace import Trace
from tidegate.terms.decision import Memory
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.slo import Indicator, Slo

_MODULES = (
    "static_peak", "static_mean", "last_value", "window_max", "hpa", "kpa", "keda", "aibrix", "crane", "llmd_slo",
    "llmd_token", "wva", "dynamo",
)  # fmt: skip
_DRAWN_MOMENTS = 400
_PERIOD_S = 15.0
_OWN_WANTS = Wants(period_s=_PERIOD_S, replicas=True, replica_rates=True, slis=True)


def rivals() -> dict[str, Rival]:
    """Return every rival by name, in the order of their modules."""
    found = [r for m in _MODULES for r in importlib.import_module(f"tidegate.baselines.{m}").RIVALS]
    return {r.name: r for r in (*_own(), *found)}


def _own() -> tuple[Rival, Rival]:
    def make(world: World, setting: float | None, *, forecast: bool) -> Contender:  # noqa: ARG001
        return Contender(
            name="tidegate" if forecast else "tidegate-reactive",
            law=decide,
            start=Memory(),
            wants=_OWN_WANTS,
            keeps_memory=True,
            forecaster=partial(foresee, levels=levels_of([world.policy])) if forecast else None,
            sizer=partial(pool_capacities, profiles=world.profiles, elapsed_s=_PERIOD_S),
        )

    return (
        Rival(name="tidegate", summary="forecasts the load a cold start ahead and sizes for a quantile of it",
              source="this project", knob=lambda _: None, make=partial(make, forecast=True)),
        Rival(name="tidegate-reactive", summary="the same law without its forecast: sizes for the load seen now",
              source="this project", knob=lambda _: None, make=partial(make, forecast=False)),
    )  # fmt: skip


def world_of(policy: ServicePolicy, trace: Trace, *, peak_per_s: float) -> World:
    """Return what whoever configures a law may know beforehand."""
    profiles = {p.profile: load_profile(p.profile) for p in policy.pools}
    prompt, output = float(trace.prompt_tokens.mean()), float(trace.output_tokens.mean())
    capacity = {p.key: modelled(policy, profiles[p.profile], prompt, output)[0] for p in policy.pools}
    tpot_s = policy.threshold_s(Indicator.TPOT) or policy.threshold_s(Indicator.ITL) or 0.05
    return World(
        policy=policy,
        profiles=profiles,
        capacity_per_s=capacity,
        concurrency={key: max(1.0, per_s * output * tpot_s) for key, per_s in capacity.items()},
        prompt_tokens=prompt,
        output_tokens=output,
        cold_start_s=max(p.cold_start_prior_s for p in policy.pools),
        mean_per_s=len(trace) / max(trace.seconds, 1.0),
        peak_per_s=peak_per_s,
    )


def play(trace: Trace, world: World, contender: Contender, *, seed: int) -> Play:
    """Return what a contender came to on a load."""
    policy = world.policy
    pools = tuple(
        PoolSetup(
            key=p.key,
            role=p.role,
            profile=world.profiles[p.profile],
            cold_start=ColdStart(samples_s=(p.cold_start_prior_s,)),
            initial=max(1, p.min_replicas),
        )
        for p in policy.pools
    )
    conditions = Conditions(
        policy=policy, setup=FleetSetup(pools=pools, seed=seed), history_steps=HISTORY_STEPS, keep_decisions=False
    )
    result = rehearse(trace, contender, conditions=conditions, make_fleet=FastFleet)
    figures, attained = scored(result, policy.slos)
    return Play(seed=seed, setting=contender.setting, figures=figures, attained=attained,
                replicas=drawn(result.replicas_over_time))  # fmt: skip


def scored(result: RehearsalResult, slos: Sequence[Slo]) -> tuple[Figures, Mapping[str, float]]:
    """Return a result's figures, and the share of requests that met each objective alone."""
    o = result.outcomes
    n = max(1, len(o.trace))
    answered = o.ended_ps >= 0
    ttft_s = (o.first_ps - o.trace.arrival_ps) / PS_PER_S
    gaps = o.trace.output_tokens - 1
    tpot_s = (o.ended_ps - o.first_ps) / np.maximum(gaps, 1) / PS_PER_S
    met = {}
    for slo in slos:
        if slo.threshold_s is None:
            met[slo.name] = answered
        elif slo.indicator is Indicator.TTFT:
            met[slo.name] = answered & (ttft_s <= slo.threshold_s)
        elif slo.indicator in {Indicator.TPOT, Indicator.ITL}:
            met[slo.name] = answered & ((gaps == 0) | (tpot_s <= slo.threshold_s))
        else:
            met[slo.name] = answered & ((o.ended_ps - o.trace.arrival_ps) / PS_PER_S <= slo.threshold_s)
    joint = np.logical_and.reduce([answered, *met.values()])
    ttft = _quantiles(ttft_s[answered])
    tpot = _quantiles(tpot_s[answered & (gaps > 0)])
    figures = Figures(
        attainment_ratio=float(joint.sum()) / n,
        gpu_hours=result.gpu_seconds / 3600.0,
        cost_usd=result.cost_usd,
        goodput_per_s=float(joint.sum()) / max(result.ended_s, 1e-9),
        ttft_p50_s=ttft[0], ttft_p95_s=ttft[1], ttft_p99_s=ttft[2],
        tpot_p50_s=tpot[0], tpot_p95_s=tpot[1], tpot_p99_s=tpot[2],
        scale_events=result.asked_changes,
        failed=int(len(answered) - answered.sum()),
        replicas_peak=result.replicas_peak,
    )  # fmt: skip
    return figures, {name: float(ok.sum()) / n for name, ok in met.items()}


def _quantiles(values: np.ndarray) -> tuple[float | None, float | None, float | None]:
    if not len(values):
        return None, None, None
    p50, p95, p99 = (float(v) for v in np.quantile(values, [0.5, 0.95, 0.99]))
    return p50, p95, p99


def drawn(counts: ReplicaCounts) -> ReplicasOverTime:
    """Return the counts at some hundred moments, the greatest in each stretch, so that no peak is lost."""
    n = len(counts.seconds)
    every = max(1, -(-n // _DRAWN_MOMENTS))
    starts = np.arange(0, n, every)
    existing = counts.ready + counts.starting + counts.draining
    return ReplicasOverTime(
        at_s=tuple(float(s) for s in counts.seconds[starts]),
        ready=tuple(int(v) for v in np.maximum.reduceat(counts.ready, starts)),
        existing=tuple(int(v) for v in np.maximum.reduceat(existing, starts)),
    )
