"""The same arrivals under other policies, in the simulator."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tidegate.app.cli.prometheus_flags import SCRAPES_PER_WINDOW
from tidegate.app.demo.score import Row, row
from tidegate.app.sizing import pool_capacities
from tidegate.app.tick import HISTORY_STEPS, levels_of
from tidegate.baselines.law import LawMemory
from tidegate.baselines.reactive import HpaSettings, reactive, tuned
from tidegate.baselines.static_peak import keeps, static, static_peak
from tidegate.core.decide import decide
from tidegate.forecast.select import foresee
from tidegate.perf.profile import EngineProfile
from tidegate.sim.arrivals import Arrival
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.fleet import FleetSim
from tidegate.sim.outcome import outcomes_of
from tidegate.sim.policies import Contender, Wants
from tidegate.sim.rehearse import Conditions, rehearse
from tidegate.sim.setup import FleetSetup, PoolSetup
from tidegate.sim.trace import Trace, trace_of
from tidegate.terms.decision import Memory
from tidegate.terms.forecast import Quantity
from tidegate.terms.policy import ServicePolicy

# The reactive rule is given its best target out of these (requests running + waiting per replica): a rival that nobody
# tuned proves nothing.
TARGETS = (2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)

_DECIDE_EVERY_S = 2.0  # as the live controller of the demo
_SCRAPE_S = 1.0
_HISTORY_STEP_S = 2.0
_SEEN = Wants(
    period_s=_DECIDE_EVERY_S,
    scrape_interval_s=_SCRAPE_S,
    rate_window_s=SCRAPES_PER_WINDOW * _SCRAPE_S,
    replicas=True,
    slis=True,
    histories=(Quantity.REQUESTS_PER_S,),
)


def rehearsed_rows(
    policy: ServicePolicy, profile: EngineProfile, arrivals: Sequence[Arrival], *, seconds: float
) -> list[Row]:
    """Return the rows of a static peak, the best reactive rule, and Tidegate itself, rehearsed.

    Args:
        policy: One service with one pool.
        profile: The engine of every replica.
        arrivals: What was sent live.
        seconds: Replica time is counted this long, as live.
    """
    pool = policy.pools[0]
    objectives = tuple((s.name, s.objective_ratio) for s in policy.slos)
    stage = _Stage(
        policy=policy, trace=trace_of(list(arrivals)), conditions=_conditions(policy, profile, seconds=seconds)
    )
    peak = static_peak(stage.static, objectives=objectives, max_replicas=pool.max_replicas)
    rules = tuple(HpaSettings(target_per_replica=t, down_window_s=_down_window_s(policy)) for t in TARGETS)
    best = tuned(stage.reactive, rules, lambda served: keeps(served, objectives))
    return [peak.result, best.result, stage.tidegate(profile)]


def _down_window_s(policy: ServicePolicy) -> float:
    """Return the shrink stabilisation Tidegate has, so that the rules differ in their law and not in their patience."""
    return policy.scaling.shrink_stabilisation_s or 2.0 * policy.pools[0].cold_start_prior_s


def _conditions(policy: ServicePolicy, profile: EngineProfile, *, seconds: float) -> Conditions:
    pool = policy.pools[0]
    setup = PoolSetup(
        key=pool.key,
        role=pool.role,
        profile=profile,
        cold_start=ColdStart(samples_s=(pool.cold_start_prior_s,)),
        initial=pool.min_replicas,
    )
    return Conditions(
        policy=policy,
        setup=FleetSetup(pools=(setup,)),
        history_step_s=_HISTORY_STEP_S,
        history_steps=HISTORY_STEPS,
        window_s=seconds,
        keep_decisions=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """The load and the world that all three meet."""

    policy: ServicePolicy
    trace: Trace
    conditions: Conditions

    def static(self, replicas: int) -> Row:
        """Return the row of a fixed size, all of it there from the start."""
        return self._play(
            Contender(
                name=f"static-peak ({replicas})",
                law=static(replicas),
                start=LawMemory(),
                wants=_SEEN,
                initial_replicas=replicas,
            )
        )

    def reactive(self, settings: HpaSettings) -> Row:
        """Return the row of an HPA."""
        name = f"reactive (target {settings.target_per_replica:g})"
        return self._play(Contender(name=name, law=reactive(settings), start=LawMemory(), wants=_SEEN))

    def tidegate(self, profile: EngineProfile) -> Row:
        """Return the row of the law that ran live."""
        return self._play(
            Contender(
                name="tidegate",
                law=decide,
                start=Memory(),
                wants=_SEEN,
                forecaster=partial(foresee, levels=levels_of([self.policy])),
                sizer=partial(
                    pool_capacities, profiles={self.policy.pools[0].profile: profile}, elapsed_s=_DECIDE_EVERY_S
                ),
            )
        )

    def _play(self, contender: Contender) -> Row:
        result = rehearse(self.trace, contender, conditions=self.conditions, make_fleet=FleetSim)
        return row(
            contender.name,
            "rehearsed",
            outcomes_of(result.outcomes),
            slos=self.policy.slos,
            replica_seconds=sum(result.replica_seconds.values()),
            replicas_peak=result.replicas_peak,
        )
