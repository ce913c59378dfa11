"""One policy once over one load: the world it meets, and its figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate.app.config_profile import load_profile
from tidegate.app.rehearse.document import Figures, ReplicasOverTime
from tidegate.app.rehearse.findings import Play
from tidegate.app.rehearse.laws import Clairvoyant
from tidegate.app.rehearse.loads import Loads
from tidegate.app.sizing import modelled
from tidegate.app.tick import HISTORY_STEPS
from tidegate.perf.profile import PS_PER_S
from tidegate.perf.variants import scaled
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.counts import ReplicaCounts
from tidegate.sim.fast.fleet import FastFleet
from tidegate.sim.faults import Fault, FaultName, fault
from tidegate.sim.policies import Contender, Rival, World
from tidegate.sim.rehearse import Conditions, RehearsalResult, rehearse
from tidegate.sim.setup import FleetSetup, PoolSetup
from tidegate.sim.trace import Trace
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.slo import Indicator, Slo

_DRAWN_MOMENTS = 400
Player = Rival | Clairvoyant


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What all policies of a comparison meet: the load of each seed, the belief, and the real engines."""

    loads: Loads
    world: World
    seeds: tuple[int, ...]
    traces: dict[int, Trace] = field(default_factory=dict)  # drawn once, by seed

    def trace(self, seed: int) -> Trace:
        """Return the load of a seed."""
        if seed not in self.traces:
            self.traces[seed] = self.loads.of(seed)
        return self.traces[seed]

    def plays(self, rival: Player, setting: float | None, *, speed_ratio: float = 1.0) -> tuple[Play, ...]:
        """Return a policy with one setting under every seed; the real engines are `speed_ratio` times as fast."""
        return tuple(self._play(rival, setting, seed, speed_ratio=speed_ratio) for seed in self.seeds)

    def faulty(self, rival: Player, name: FaultName) -> tuple[Fault, Play]:
        """Return a policy as set under the first seed, with a fault around the busiest ten minutes."""
        seed = self.seeds[0]
        met = fault(name, self.trace(seed))
        return met, self._play(rival, None, seed, faults=(met,))

    def period_s(self, rival: Player) -> float:
        """Return the seconds between two of its decisions."""
        return self._contender(rival, None, self.seeds[0]).wants.period_s

    def _contender(self, rival: Player, setting: float | None, seed: int) -> Contender:
        if isinstance(rival, Clairvoyant):
            return rival.make(self.world, setting, self.trace(seed))
        return rival.make(self.world, setting)

    def _play(
        self,
        rival: Player,
        setting: float | None,
        seed: int,
        *,
        speed_ratio: float = 1.0,
        faults: tuple[Fault, ...] = (),
    ) -> Play:
        policy = self.world.policy
        pools = tuple(
            PoolSetup(
                key=p.key,
                role=p.role,
                profile=scaled(self.world.profiles[p.profile], speed_ratio),
                cold_start=ColdStart(samples_s=(p.cold_start_prior_s,)),
                initial=max(1, p.min_replicas),
            )
            for p in policy.pools
        )
        conditions = Conditions(
            policy=policy,
            setup=FleetSetup(pools=pools, seed=seed),
            faults=faults,
            history_steps=HISTORY_STEPS,
            keep_decisions=False,
        )
        contender = self._contender(rival, setting, seed)
        result = rehearse(self.trace(seed), contender, conditions=conditions, make_fleet=FastFleet)
        figures, attained = scored(result, policy.slos)
        seen = drawn(result.replicas_over_time) if seed == self.seeds[0] and not faults else None
        return Play(seed=seed, setting=contender.setting, figures=figures, attained=attained, replicas=seen)


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
