"""One policy once over one load: the world it meets, and its figures."""

from dataclasses import dataclass, field

import numpy as np

from tidegate.app.config_profile import load_profile
from tidegate.app.rehearse.document import Figures, ReplicasOverTime
from tidegate.app.rehearse.findings import Play
from tidegate.app.rehearse.loads import Loads
from tidegate.app.sizing import modelled
from tidegate.app.tick import HISTORY_STEPS, history_step_s
from tidegate.baselines.figures import HEADROOM, replicas_for
from tidegate.perf.capacity import replica_capacity
from tidegate.perf.profile import PS_PER_S, EngineProfile
from tidegate.perf.variants import scaled
from tidegate.sim.coldstart import ColdStart, LognormalPart, cold_starts
from tidegate.sim.counts import ReplicaCounts
from tidegate.sim.fast.fleet import FastFleet
from tidegate.sim.faults import Fault, FaultName, fault
from tidegate.sim.policies import Contender, Rival, World
from tidegate.sim.rehearse import Conditions, rehearse
from tidegate.sim.score import Score, score
from tidegate.sim.setup import CacheSetup, FleetSetup, PoolSetup, Routing
from tidegate.sim.trace import Trace
from tidegate.terms.fleet import PoolKey
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.slo import Indicator

_DRAWN_MOMENTS = 400
# All policies start alike, with what the first ten minutes need.
FIRST_S = 600.0
# Drawn once a seed and pool, taken in turn: enough that none of the fleets here sees the same one soon.
COLD_STARTS = 256
COLD_START_MEDIAN_RATIO = 0.72  # of the 95th percentile: a lognormal spread of 0.2
# As `tidegate run` scrapes by default.
SCRAPE_INTERVAL_S = 5.0


def world_of(policy: ServicePolicy, trace: Trace, *, peak_per_s: float) -> World:
    """Return what whoever configures a law may know beforehand."""
    profiles = {p.profile: load_profile(p.profile) for p in policy.pools}
    prompt, output = float(trace.prompt_tokens.mean()), float(trace.output_tokens.mean())
    capacity = {p.key: modelled(policy, profiles[p.profile], prompt, output)[0] for p in policy.pools}
    return World(
        policy=policy,
        profiles=profiles,
        capacity_per_s=capacity,
        concurrency={
            p.key: _in_flight(policy, profiles[p.profile], prompt, output, per_s=capacity[p.key]) for p in policy.pools
        },
        prompt_tokens=prompt,
        output_tokens=output,
        cold_start_s=max(p.cold_start_prior_s for p in policy.pools),
        mean_per_s=len(trace) / max(trace.seconds, 1.0),
        peak_per_s=peak_per_s,
    )


def _in_flight(policy: ServicePolicy, profile: EngineProfile, prompt: float, output: float, *, per_s: float) -> float:
    """Return the mean requests in one replica at its capacity: those that decode, and those in front of it."""
    at = replica_capacity(
        profile,
        ttft_s=policy.threshold_s(Indicator.TTFT),
        tpot_s=policy.threshold_s(Indicator.TPOT) or policy.threshold_s(Indicator.ITL),
        prompt_tokens=prompt,
        output_tokens=output,
    )
    front = per_s * (profile.front_end_s + at.step_s)
    return max(1.0, at.decoding + front)


def cold_start_of(p95_s: float, *, seed: int) -> ColdStart:
    """Return start-up times around a believed 95th percentile: lognormal, the median at 0.72 of it.

    Real ones scatter: 8B weights took 2.7 to 6.3 s (median 4.4) in thirty loads of ServerlessLLM's published trials.
    """
    if p95_s <= 0.0:
        return ColdStart(samples_s=(0.0,))
    part = LognormalPart(name="order to ready", median_s=COLD_START_MEDIAN_RATIO * p95_s, p95_s=p95_s)
    return cold_starts((part,), np.random.default_rng([seed, 0xC01D]), COLD_STARTS)


def cache_of(world: World, trace: Trace) -> tuple[CacheSetup | None, str | None]:
    """Return the prefix cache that a load's hashes call for, and what a reader must know of it."""
    size = trace.hash_block_tokens
    if not size:
        return None, None
    odd = sorted({p.block_tokens for p in world.profiles.values() if size % p.block_tokens})
    if odd:
        return None, (
            f"The load's prefix hashes are not used: their blocks of {size} tokens are no multiple of the engine's "
            f"({odd[0]})."
        )
    return CacheSetup(
        hash_block_tokens=size
    ), "Engines keep a prefix cache in GPU memory; the load's hashes say what hits."


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What all policies of a comparison meet: the load of each seed, the belief, and the real engines."""

    loads: Loads
    world: World
    seeds: tuple[int, ...]
    routing: Routing = Routing.LEAST_REQUEST
    cache: CacheSetup | None = None  # of every replica
    traces: dict[int, Trace] = field(default_factory=dict)  # drawn once, by seed

    def trace(self, seed: int) -> Trace:
        """Return the load of a seed."""
        if seed not in self.traces:
            self.traces[seed] = self.loads.of(seed)
        return self.traces[seed]

    def plays(self, rival: Rival, setting: float | None, *, speed_ratio: float = 1.0) -> tuple[Play, ...]:
        """Return a policy with one setting under every seed; the real engines are `speed_ratio` times as fast."""
        contender = rival.make(self.world, setting)
        return tuple(
            self.play(contender, self.conditions(seed=seed, speed_ratio=speed_ratio), seed=seed) for seed in self.seeds
        )

    def faulty(self, rival: Rival, name: FaultName, setting: float | None = None) -> tuple[Fault, Play]:
        """Return a policy under the first seed, as shipped or set, with a fault around the busiest ten minutes."""
        seed = self.seeds[0]
        met = fault(name, self.trace(seed))
        return met, self.play(rival.make(self.world, setting), self.conditions(seed=seed, faults=(met,)), seed=seed)

    def conditions(self, *, seed: int, speed_ratio: float = 1.0, faults: tuple[Fault, ...] = ()) -> Conditions:
        """Return the world that every policy meets."""
        policy = self.world.policy
        first = self._first(seed)
        pools = tuple(
            PoolSetup(
                key=p.key,
                role=p.role,
                profile=scaled(self.world.profiles[p.profile], speed_ratio),
                cold_start=cold_start_of(p.cold_start_prior_s, seed=seed),
                initial=first[p.key],
                cache=self.cache,
            )
            for p in policy.pools
        )
        return Conditions(
            policy=policy,
            setup=FleetSetup(pools=pools, routing=self.routing, seed=seed),
            faults=faults,
            history_step_s=history_step_s(self.world.cold_start_s, SCRAPE_INTERVAL_S),
            history_steps=HISTORY_STEPS,
            keep_decisions=False,
        )

    def _first(self, seed: int) -> dict[PoolKey, int]:
        """Return the replicas that every scaling policy finds: what carries the first minutes with some headroom."""
        trace = self.trace(seed)
        span_s = max(1.0, min(FIRST_S, trace.seconds))
        early = int(np.searchsorted(trace.arrival_ps, round(span_s * PS_PER_S)))
        return replicas_for(self.world, early / span_s / HEADROOM)

    def play(self, contender: Contender, conditions: Conditions, *, seed: int) -> Play:
        """Return one policy over the load of a seed."""
        result = rehearse(self.trace(seed), contender, conditions=conditions, make_fleet=FastFleet)
        scored = score(result, self.world.policy.slos)
        seen = seed == self.seeds[0] and not conditions.faults
        return Play(
            seed=seed,
            setting=contender.setting,
            figures=figures_of(scored),
            attained=scored.attained,
            replicas=drawn(result.replicas_over_time) if seen else None,
        )


def figures_of(scored: Score) -> Figures:
    """Return a score in the document's words."""
    return Figures(
        attainment_ratio=scored.attainment_ratio,
        gpu_hours=scored.gpu_hours,
        cost_usd=scored.cost_usd,
        goodput_per_s=scored.goodput_per_s,
        ttft_p50_s=scored.ttft_s[0],
        ttft_p95_s=scored.ttft_s[1],
        ttft_p99_s=scored.ttft_s[2],
        tpot_p50_s=scored.tpot_s[0],
        tpot_p95_s=scored.tpot_s[1],
        tpot_p99_s=scored.tpot_s[2],
        scale_events=scored.scale_events,
        failed=scored.failed,
        replicas_peak=scored.replicas_peak,
    )


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
