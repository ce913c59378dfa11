"""A small rehearsal for tests: one service, its fleet, and laws that follow a script."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.policies import pool_policy, service_policy

from tidegate.app.config_profile import load_profile
from tidegate.sim.arrivals import steady
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.fleet import FleetSim
from tidegate.sim.policies import Contender, Wants
from tidegate.sim.rehearse import Conditions, RehearsalResult, rehearse
from tidegate.sim.setup import FleetSetup, PoolSetup
from tidegate.sim.trace import Trace, trace_of
from tidegate.terms.capacity import PoolCapacity
from tidegate.terms.decision import Decision, Memory, PoolDecision, Reason, Verdict
from tidegate.terms.fleet import PoolKey, Role
from tidegate.terms.forecast import Forecast
from tidegate.terms.observation import Observation, PoolObservation, ServiceObservation
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.signal import Signal, Unknown
from tidegate.terms.slo import Indicator, Slo

KEY = PoolKey(service="chat", pool="main")
PROFILE = load_profile("a100-llama8b-tp1")
SLOS = (
    Slo(name="ttft", indicator=Indicator.TTFT, objective_ratio=0.95, threshold_s=0.9, window_s=3600.0),
    Slo(name="tpot", indicator=Indicator.TPOT, objective_ratio=0.95, threshold_s=0.08, window_s=3600.0),
    Slo(name="available", indicator=Indicator.AVAILABILITY, objective_ratio=0.999, threshold_s=None, window_s=3600.0),
)
POLICY = service_policy(
    slos=SLOS,
    pools=("main",),
)
POLICY = replace(POLICY, pools=(pool_policy(KEY, gpus_per_replica=2, cold_start_prior_s=10.0, cost_usd_per_h=3.6),))
WANTS = Wants(period_s=5.0, scrape_interval_s=1.0, rate_window_s=10.0, replicas=True, slis=True)
LOAD = trace_of(steady(requests_per_s=2.0, seconds=60.0, prompt_tokens=300, output_tokens=60))


def pool_setup(key: PoolKey = KEY, **changes: Any) -> PoolSetup:  # noqa: ANN401  (any field of the setup)
    """Return one ready replica with a cold start of 10 s, with `changes`."""
    plain = PoolSetup(
        key=key, role=Role.AGGREGATED, profile=PROFILE, cold_start=ColdStart(samples_s=(10.0,)), initial=1
    )
    return replace(plain, **changes)


def conditions(*pools: PoolSetup, **changes: Any) -> Conditions:  # noqa: ANN401  (any field of the conditions)
    """Return the conditions of `POLICY`, with `changes`."""
    plain = Conditions(
        policy=POLICY, setup=FleetSetup(pools=pools or (pool_setup(),)), history_step_s=2.0, history_steps=120
    )
    return replace(plain, **changes)


class Script:
    """Asks every pool for the counts of a list, one per call, and keeps what it was shown."""

    def __init__(self, *asked: int, drain_first: Sequence[str] = (), writes: bool = True) -> None:
        self._asked = asked
        self._drain_first = tuple(drain_first)
        self._writes = writes
        self.seen: list[Observation] = []
        self.forecasts: list[tuple[Forecast, ...]] = []
        self.remembered: list[int] = []

    def __call__(
        self,
        obs: Observation,
        forecasts: Sequence[Forecast],
        capacity: Sequence[PoolCapacity],  # noqa: ARG002  (the signature of core.decide)
        policies: Sequence[ServicePolicy],
        memory: Memory,
        *,
        now_s: float,
    ) -> tuple[Decision, Memory]:
        asked = self._asked[min(len(self.seen), len(self._asked) - 1)]
        self.seen.append(obs)
        self.forecasts.append(tuple(forecasts))
        self.remembered.append(memory.sequence)
        pools = tuple(
            PoolDecision(
                key=pool.key, role=pool.role, verdict=Verdict.HOLD, ready_replicas=0, starting_replicas=0,
                draining_replicas=0, asked_before_replicas=asked, wanted_replicas=asked, asked_replicas=asked,
                binding=Reason.STEADY, notes=(), drain_first=self._drain_first, writes=self._writes,
            )
            for policy in policies
            for pool in policy.pools
        )  # fmt: skip
        sequence = memory.sequence + 1
        return Decision(decided_at_s=now_s, sequence=sequence, pools=pools), Memory(sequence=sequence)

    def service(self, call: int) -> ServiceObservation:
        """Return what it was shown of the service at a call, from 0."""
        return self.seen[call].services[0]

    def pool(self, call: int) -> PoolObservation:
        """Return what it was shown of the first pool."""
        return self.service(call).pools[0]


def contender(law: Any, **changes: Any) -> Contender:  # noqa: ANN401  (any law, any field)
    """Return a law that reads what `WANTS` names, with `changes`."""
    plain = Contender(name="script", law=law, start=Memory(), wants=WANTS)
    return replace(plain, **changes)


def play(law: Any, trace: Trace = LOAD, **changes: Any) -> RehearsalResult:  # noqa: ANN401
    """Return the rehearsal of a law under `conditions(**changes)`."""
    made = law if isinstance(law, Contender) else contender(law)
    return rehearse(trace, made, conditions=conditions(**changes), make_fleet=FleetSim)


def number(signal: Signal) -> float:
    """Return a known number."""
    assert not isinstance(signal, Unknown), signal
    return signal.number
