"""A scaling policy tried on given arrivals: same load, same engines, same cold start, no clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tidegate.perf.profile import PS_PER_S, EngineProfile
from tidegate.sim.arrivals import Arrival
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.fleet import FleetSim, ScaleEvent
from tidegate.sim.outcome import Outcome, attained_ratios, joint_ratio
from tidegate.sim.sight import Sight
from tidegate.terms.capacity import PoolCapacity
from tidegate.terms.decision import Decision, Memory
from tidegate.terms.fleet import PoolKey, ReplicaState
from tidegate.terms.forecast import Forecast
from tidegate.terms.history import History
from tidegate.terms.observation import Observation, ServiceObservation
from tidegate.terms.policy import ServicePolicy

# A rehearsal whose requests have not all been answered an hour after the last arrival never will be.
MAX_TAIL_S = 3600.0


class PolicyFn(Protocol):
    """The signature of `core.decide` and of every baseline."""

    def __call__(
        self,
        obs: Observation,
        forecasts: tuple[Forecast, ...],
        capacity: tuple[PoolCapacity, ...],
        policies: tuple[ServicePolicy, ...],
        memory: Memory,
        *,
        now_s: float,
    ) -> tuple[Decision, Memory]:
        """Return the decision and what must be remembered."""
        ...


class Forecaster(Protocol):
    """The signature of `forecast.select.foresee`."""

    def __call__(
        self, histories: Sequence[History], *, horizons_s: dict[str, float], now_s: float
    ) -> tuple[Forecast, ...]:
        """Return demand quantiles per service and quantity."""
        ...


class ColdStarts(Protocol):
    """Seconds from order to ready of each start seen, oldest first."""

    def __call__(self, key: PoolKey, /) -> tuple[float, ...]:
        """Return them for one pool."""
        ...


class Sizer(Protocol):
    """What one replica carries now; profiles and period are bound beforehand."""

    def __call__(
        self,
        policies: tuple[ServicePolicy, ...],
        services: tuple[ServiceObservation, ...],
        *,
        cold_starts: ColdStarts,
        previous: tuple[PoolCapacity, ...],
        now_s: float,
    ) -> tuple[PoolCapacity, ...]:
        """Return one capacity per pool."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What every policy of a comparison shares, besides arrivals and engine."""

    policy: ServicePolicy  # exactly one pool
    cold_start: ColdStart
    initial_replicas: int
    decide_every_s: float = 15.0
    scrape_interval_s: float = 1.0
    rate_window_s: float = 15.0
    sweep_s: float = 1.0
    history_step_s: float = 2.0
    history_steps: int = 120
    window_s: float | None = None  # replica time is counted this long; None: until the last request is answered


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalResult:
    """What a policy cost and what it kept."""

    outcomes: tuple[Outcome, ...]  # in order of arrival
    attained_ratio: tuple[tuple[str, float], ...]  # per objective, in policy order, of all requests
    joint_ratio: float  # all objectives of a request met together
    failed: int
    replica_seconds: float  # from each order to the end of its drain, within the window
    gpu_seconds: float
    replicas_peak: int  # most replicas that existed at once
    events: tuple[ScaleEvent, ...]
    replicas_over_time: tuple[tuple[float, int, int, int], ...]  # at each scrape: seconds, ready, starting, draining
    decisions: tuple[Decision, ...]
    ended_s: float  # when the last request was answered


def rehearse(
    arrivals: Sequence[Arrival],
    profile: EngineProfile,
    policy_fn: PolicyFn,
    *,
    conditions: Conditions,
    forecaster: Forecaster | None = None,
    sizer: Sizer | None = None,
) -> RehearsalResult:
    """Return what `policy_fn` would have done with these arrivals, and what its users would have seen.

    The policy is called every `decide_every_s`, first after one such period, and sees scrapes, not the truth. Two
    calls with the same arguments give equal results.

    Args:
        arrivals: The load.
        profile: The engine of every replica.
        policy_fn: `core.decide` or a baseline.
        conditions: The rest of the world.
        forecaster: None: the policy gets no forecasts.
        sizer: None: the policy gets no capacities.

    Raises:
        ValueError: The policy document has not exactly one pool, or the arrivals are malformed.
    """
    if len(conditions.policy.pools) != 1:
        msg = f"rehearsal: the policy must have exactly one pool, got {len(conditions.policy.pools)}"
        raise ValueError(msg)
    run = _Run(arrivals, profile, policy_fn, conditions=conditions, forecaster=forecaster, sizer=sizer)
    run.play()
    return run.result()


class _Run:
    """One rehearsal under way."""

    def __init__(
        self,
        arrivals: Sequence[Arrival],
        profile: EngineProfile,
        policy_fn: PolicyFn,
        *,
        conditions: Conditions,
        forecaster: Forecaster | None,
        sizer: Sizer | None,
    ) -> None:
        self._policy_fn = policy_fn
        self._conditions = conditions
        self._forecaster = forecaster
        self._sizer = sizer
        self._fleet = FleetSim(
            arrivals=arrivals,
            profile=profile,
            cold_start=conditions.cold_start,
            initial=conditions.initial_replicas,
            sweep_s=conditions.sweep_s,
        )
        self._sight = Sight(fleet=self._fleet, policy=conditions.policy, rate_window_s=conditions.rate_window_s)
        self._memory = Memory()
        self._capacity: tuple[PoolCapacity, ...] = ()
        self._decisions: list[Decision] = []
        self._counts: list[tuple[float, int, int, int]] = []
        self._answered_ps = 0

    def play(self) -> None:
        """Run until all requests are answered and the window is over."""
        fleet, conditions = self._fleet, self._conditions
        scrape_ps = round(conditions.scrape_interval_s * PS_PER_S)
        decide_ps = round(conditions.decide_every_s * PS_PER_S)
        window_ps = round((conditions.window_s or 0.0) * PS_PER_S)
        last_s = fleet.arrivals[-1].at_s if fleet.arrivals else 0.0
        limit_ps = window_ps + round((last_s + MAX_TAIL_S) * PS_PER_S)
        next_scrape_ps, next_decide_ps = 0, decide_ps
        while fleet.now_ps < limit_ps:
            fleet.run_until(min(next_scrape_ps, next_decide_ps))
            if fleet.idle and fleet.now_ps >= window_ps:
                return
            if fleet.now_ps == next_scrape_ps:
                self._sight.scrape()
                self._count()
                next_scrape_ps += scrape_ps
            if fleet.now_ps == next_decide_ps:  # after the scrape of the same moment
                self._decide(fleet.now_ps / PS_PER_S)
                next_decide_ps += decide_ps

    def result(self) -> RehearsalResult:
        """Return what came of it."""
        fleet, conditions = self._fleet, self._conditions
        outcomes = fleet.outcomes()
        slos = conditions.policy.slos
        ended_s = max((o.arrival.at_s + (o.e2e_s or 0.0) for o in outcomes), default=0.0)
        until_s = ended_s if conditions.window_s is None else conditions.window_s
        replica_seconds = fleet.replica_ps(round(until_s * PS_PER_S)) / PS_PER_S
        return RehearsalResult(
            outcomes=outcomes,
            attained_ratio=attained_ratios(outcomes, slos),
            joint_ratio=joint_ratio(outcomes, slos),
            failed=len(fleet.arrivals) - sum(o.answered for o in outcomes),
            replica_seconds=replica_seconds,
            gpu_seconds=replica_seconds * conditions.policy.pools[0].gpus_per_replica,
            replicas_peak=_peak(fleet.events),
            events=tuple(fleet.events),
            replicas_over_time=tuple(self._counts),
            decisions=tuple(self._decisions),
            ended_s=ended_s,
        )

    def _decide(self, now_s: float) -> None:
        conditions = self._conditions
        policies = (conditions.policy,)
        observation = self._sight.observe(now_s)
        if self._sizer is not None:
            self._capacity = self._sizer(
                policies, observation.services, cold_starts=self._cold_starts, previous=self._capacity, now_s=now_s
            )
        forecasts: tuple[Forecast, ...] = ()
        if self._forecaster is not None:
            histories = self._sight.histories(now_s, step_s=conditions.history_step_s, steps=conditions.history_steps)
            forecasts = self._forecaster(histories, horizons_s=self._horizons_s(), now_s=now_s)
        decision, self._memory = self._policy_fn(
            observation, forecasts, self._capacity, policies, self._memory, now_s=now_s
        )
        self._decisions.append(decision)
        for pool in decision.pools:
            if pool.key == conditions.policy.pools[0].key and pool.writes:
                self._fleet.scale_to(pool.asked_replicas, pool.drain_first)

    def _horizons_s(self) -> dict[str, float]:
        pool = self._conditions.policy.pools[0]
        measured = [c.cold_start_p95_s for c in self._capacity]
        return {self._conditions.policy.name: max(measured, default=pool.cold_start_prior_s)}

    def _cold_starts(self, key: PoolKey, /) -> tuple[float, ...]:
        if key != self._conditions.policy.pools[0].key:
            return ()
        started = [m for m in self._fleet.members[self._conditions.initial_replicas :] if m.ready_ps is not None]
        return tuple((m.ready_ps - m.ordered_ps) / PS_PER_S for m in started if m.ready_ps is not None)

    def _count(self) -> None:
        fleet = self._fleet
        states = (ReplicaState.READY, ReplicaState.STARTING, ReplicaState.DRAINING)
        ready, starting, draining = (len(fleet.of(s)) for s in states)
        self._counts.append((fleet.now_ps / PS_PER_S, ready, starting, draining))


def _peak(events: Sequence[ScaleEvent]) -> int:
    most = now = 0
    for event in events:
        now += {"ordered": 1, "ended": -1}.get(event.kind, 0)
        most = max(most, now)
    return most
