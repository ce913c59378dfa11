"""A scaling law tried on a trace: same load, same engines, same cold start, no clock."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tidegate.perf.profile import PS_PER_S
from tidegate.sim.counts import ReplicaCounts, counts_at, most_replicas
from tidegate.sim.faults import METRIC_FAULTS, Fault
from tidegate.sim.fleet_protocol import Fleet
from tidegate.sim.histogram import LATENCY_BOUNDS_PS, TPOT_BOUNDS_PS, bounds_with
from tidegate.sim.metric_faults import MetricFaults
from tidegate.sim.past import Past
from tidegate.sim.policies import Contender
from tidegate.sim.sample import MemberEvent, Outcomes
from tidegate.sim.setup import FleetSetup
from tidegate.sim.sight import Sight
from tidegate.sim.trace import Trace
from tidegate.sim.world_faults import Moment, World, moments_of
from tidegate.terms.capacity import PoolCapacity
from tidegate.terms.decision import Decision
from tidegate.terms.fleet import PoolKey
from tidegate.terms.forecast import Forecast
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.slo import Indicator

# A rehearsal whose requests have not all been answered an hour after the last arrival never will be.
MAX_TAIL_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What every law of a comparison shares, besides the trace."""

    policy: ServicePolicy  # its pools are the setup's
    setup: FleetSetup  # the truth
    faults: tuple[Fault, ...] = ()
    history_step_s: float = 60.0  # of the load's past, for laws with a forecaster
    history_steps: int = 120
    scrape_delay_s: float = 0.0  # the newest sample is at least this old
    window_s: float | None = None  # replica time is counted this long; None: until the last arrival and answer
    keep_decisions: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RehearsalResult:
    """What a law cost and what became of the requests."""

    outcomes: Outcomes
    replica_seconds: Mapping[PoolKey, float]  # from each order to the end of its drain, within the window
    gpu_seconds: float
    cost_usd: float
    replicas_peak: int  # most replicas that existed at once
    events: tuple[MemberEvent, ...]
    replicas_over_time: ReplicaCounts  # at each scrape
    decisions: tuple[Decision, ...]  # empty when they were not to be kept
    ended_s: float  # the later of the last arrival and the last answer
    decide_calls: int
    asked_changes: int  # decisions that asked a pool for another count than the one before


def rehearse(
    trace: Trace, contender: Contender, *, conditions: Conditions, make_fleet: Callable[[Trace, FleetSetup], Fleet]
) -> RehearsalResult:
    """Return what a law would have done with this load, and what its users would have seen.

    The law is called every period, first after one period, and sees samples, not the truth. Two calls with the same
    arguments give equal results.

    Args:
        trace: The load.
        contender: The law, ready to run.
        conditions: The rest of the world.
        make_fleet: The simulator: given the load and the setup, a fleet at time 0.

    Raises:
        ValueError: The policy's pools are not those of the setup, or a period or window is no time.
    """
    _check(contender, conditions)
    setup = setup_for(contender, conditions)
    run = _Run(make_fleet(trace, setup), contender, conditions)
    run.play()
    return run.result()


def setup_for(contender: Contender, conditions: Conditions) -> FleetSetup:
    """Return the fleet as this law finds it: its initial size, and histograms with a bound at each threshold."""
    setup = conditions.setup
    initial = contender.initial_replicas
    pools = setup.pools if initial is None else tuple(replace(p, initial=initial) for p in setup.pools)

    def thresholds(*indicators: Indicator) -> list[float]:
        slos = conditions.policy.slos
        return [s.threshold_s for s in slos if s.indicator in indicators and s.threshold_s is not None]

    return replace(
        setup,
        pools=pools,
        ttft_bounds_ps=bounds_with(setup.ttft_bounds_ps or LATENCY_BOUNDS_PS, thresholds(Indicator.TTFT)),
        tpot_bounds_ps=bounds_with(setup.tpot_bounds_ps or TPOT_BOUNDS_PS, thresholds(Indicator.TPOT, Indicator.ITL)),
        e2e_bounds_ps=bounds_with(setup.e2e_bounds_ps or LATENCY_BOUNDS_PS, thresholds(Indicator.E2E)),
    )


def _check(contender: Contender, conditions: Conditions) -> None:
    policed = {p.key for p in conditions.policy.pools}
    simulated = {p.key for p in conditions.setup.pools}
    if policed != simulated or len(simulated) != len(conditions.setup.pools):
        msg = (
            f"rehearsal: the setup's pools must be those of the policy "
            f"({', '.join(sorted(map(str, policed)))}), got {', '.join(sorted(map(str, simulated)))}"
        )
        raise ValueError(msg)
    wants = contender.wants
    if not (wants.period_s > 0.0 and wants.scrape_interval_s > 0.0 and wants.rate_window_s >= wants.scrape_interval_s):
        msg = (
            f"{contender.name}: period and scrape interval must be > 0 and the rate window no shorter than a scrape, "
            f"got {wants.period_s}, {wants.scrape_interval_s} and {wants.rate_window_s} s"
        )
        raise ValueError(msg)


@dataclass(slots=True, kw_only=True)
class _Mind:
    """What the law carries from one decision to the next."""

    memory: Any
    capacity: tuple[PoolCapacity, ...] = ()


class _Run:
    """One rehearsal under way."""

    def __init__(self, fleet: Fleet, contender: Contender, conditions: Conditions) -> None:
        wants = contender.wants
        faults = MetricFaults(faults=tuple(f for f in conditions.faults if f.name in METRIC_FAULTS))
        past = None
        if contender.forecaster is not None:
            past = Past(
                step_s=conditions.history_step_s,
                steps=conditions.history_steps,
                window_ps=round(wants.rate_window_s * PS_PER_S),
                quantities=wants.histories,
                faults=faults,
            )
        self._fleet = fleet
        self._contender = contender
        self._conditions = conditions
        self._sight = Sight(
            fleet,
            policy=conditions.policy,
            wants=wants,
            faults=faults,
            scrape_delay_s=conditions.scrape_delay_s,
            past=past,
        )
        self._world = World(fleet)
        self._mind = _Mind(memory=contender.start)
        self._decisions: list[Decision] = []
        self._calls = 0
        self._changes = 0
        self._asked: dict[PoolKey, int] = {p.key: p.initial for p in fleet.setup.pools}

    def play(self) -> None:
        """Run until every request came to its end and the window is over."""
        fleet, wants = self._fleet, self._contender.wants
        scrape_ps, decide_ps = round(wants.scrape_interval_s * PS_PER_S), round(wants.period_s * PS_PER_S)
        window_ps = round((self._conditions.window_s or 0.0) * PS_PER_S)
        limit_ps = window_ps + round((fleet.trace.seconds + MAX_TAIL_S) * PS_PER_S)
        moments = moments_of(self._conditions.faults)
        next_scrape_ps, next_decide_ps = 0, decide_ps
        while fleet.now_ps < limit_ps:
            moment_ps = moments[0].at_ps if moments else limit_ps
            fleet.run_until(min(next_scrape_ps, next_decide_ps, moment_ps))
            if fleet.idle and fleet.now_ps >= window_ps:
                return
            while moments and moments[0].at_ps == fleet.now_ps:
                self._happen(moments.pop(0))
            if fleet.now_ps == next_scrape_ps:
                self._sight.scrape()
                next_scrape_ps += scrape_ps
            if fleet.now_ps == next_decide_ps:  # after the scrape of the same moment
                if not self._world.controller_down:
                    self._decide(fleet.now_ps / PS_PER_S)
                next_decide_ps += decide_ps

    def result(self) -> RehearsalResult:
        """Return what came of it."""
        fleet, conditions = self._fleet, self._conditions
        outcomes = fleet.outcomes()
        last_ps = np.maximum(outcomes.ended_ps, fleet.trace.arrival_ps).max(initial=0)
        until_ps = int(last_ps) if conditions.window_s is None else round(conditions.window_s * PS_PER_S)
        seconds = {p.key: fleet.replica_ps(i, until_ps) / PS_PER_S for i, p in enumerate(fleet.setup.pools)}
        pools = conditions.policy.pools
        events = fleet.events()
        return RehearsalResult(
            outcomes=outcomes,
            replica_seconds=seconds,
            gpu_seconds=sum(seconds[p.key] * p.gpus_per_replica for p in pools),
            cost_usd=sum(seconds[p.key] / 3600.0 * p.cost_usd_per_h for p in pools),
            replicas_peak=most_replicas(events),
            events=events,
            replicas_over_time=counts_at(
                events, interval_s=self._contender.wants.scrape_interval_s, scrapes=self._sight.scrapes_taken
            ),
            decisions=tuple(self._decisions),
            ended_s=float(last_ps) / PS_PER_S,
            decide_calls=self._calls,
            asked_changes=self._changes,
        )

    def _happen(self, moment: Moment) -> None:
        restarted = self._world.happen(moment)
        if restarted and not self._contender.keeps_memory:
            self._mind = _Mind(memory=self._contender.start)

    def _decide(self, now_s: float) -> None:
        contender, mind, policies = self._contender, self._mind, (self._conditions.policy,)
        observation = self._sight.observe(now_s, self._world.pending_s)
        if contender.sizer is not None:
            mind.capacity = contender.sizer(
                policies,
                observation.services,
                cold_starts=self._sight.membership.cold_starts,
                previous=mind.capacity,
                now_s=now_s,
            )
        decision, mind.memory = contender.law(
            observation, self._forecasts(now_s), mind.capacity, policies, mind.memory, now_s=now_s
        )
        self._calls += 1
        if self._conditions.keep_decisions:
            self._decisions.append(decision)
        self._apply(decision)

    def _apply(self, decision: Decision) -> None:
        changed = False
        for pool in decision.pools:
            if not pool.writes:
                continue
            changed |= self._asked[pool.key] != pool.asked_replicas
            self._asked[pool.key] = pool.asked_replicas
            self._world.scale_to(pool.key, pool.asked_replicas, pool.drain_first)
        self._changes += changed

    def _forecasts(self, now_s: float) -> tuple[Forecast, ...]:
        if self._contender.forecaster is None:
            return ()
        return self._contender.forecaster(self._sight.histories(now_s), horizons_s=self._horizons_s(), now_s=now_s)

    def _horizons_s(self) -> dict[str, float]:
        """Return how far to look: the slowest pool's cold start, measured or believed."""
        policy = self._conditions.policy
        measured = [c.cold_start_p95_s for c in self._mind.capacity if c.key.service == policy.name]
        return {policy.name: max(measured or [p.cold_start_prior_s for p in policy.pools])}
