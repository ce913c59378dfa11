"""The same arrivals under other policies, in the simulator."""

from collections.abc import Callable, Sequence
from functools import partial

from tidegate.app.cli.prometheus_flags import SCRAPES_PER_WINDOW
from tidegate.app.demo.score import Row, row
from tidegate.app.sizing import pool_capacities
from tidegate.app.tick import levels_of
from tidegate.baselines.reactive import HpaSettings, reactive, tuned
from tidegate.baselines.static_peak import keeps, static, static_peak
from tidegate.core.decide import decide
from tidegate.forecast.select import foresee
from tidegate.perf.profile import EngineProfile
from tidegate.sim.arrivals import Arrival
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.rehearse import Conditions, PolicyFn, RehearsalResult, rehearse
from tidegate.terms.policy import ServicePolicy

# The reactive rule is given its best target out of these (requests running + waiting per replica): a rival that nobody
# tuned proves nothing.
TARGETS = (2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)

_DECIDE_EVERY_S = 2.0  # as the live controller of the demo
_SCRAPE_S = 1.0
_RATE_WINDOW_S = SCRAPES_PER_WINDOW * _SCRAPE_S


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
    play = partial(_play, policy, profile, arrivals, seconds)
    peak = static_peak(lambda n: play(static(n), initial=n), objectives=objectives, max_replicas=pool.max_replicas)
    rules = tuple(HpaSettings(target_per_replica=t, down_window_s=_down_window_s(policy)) for t in TARGETS)
    best = tuned(
        lambda s: play(reactive(s), initial=pool.min_replicas), rules, lambda result: keeps(result, objectives)
    )
    ours = play(
        decide,
        initial=pool.min_replicas,
        forecaster=partial(foresee, levels=levels_of([policy])),
        sizer=partial(pool_capacities, profiles={pool.profile: profile}, elapsed_s=_DECIDE_EVERY_S),
    )
    return [
        _row(f"static-peak ({peak.replicas})", policy, peak.result),
        _row(f"reactive (target {best.settings.target_per_replica:g})", policy, best.result),
        _row("tidegate", policy, ours),
    ]


def _down_window_s(policy: ServicePolicy) -> float:
    """Return the shrink stabilisation Tidegate has, so that the rules differ in their law and not in their patience."""
    return policy.scaling.shrink_stabilisation_s or 2.0 * policy.pools[0].cold_start_prior_s


def _play(
    policy: ServicePolicy,
    profile: EngineProfile,
    arrivals: Sequence[Arrival],
    seconds: float,
    policy_fn: PolicyFn,
    *,
    initial: int,
    **more: Callable[..., object],
) -> RehearsalResult:
    conditions = Conditions(
        policy=policy,
        cold_start=ColdStart(samples_s=(policy.pools[0].cold_start_prior_s,)),
        initial_replicas=initial,
        decide_every_s=_DECIDE_EVERY_S,
        scrape_interval_s=_SCRAPE_S,
        rate_window_s=_RATE_WINDOW_S,
        window_s=seconds,
    )
    return rehearse(arrivals, profile, policy_fn, conditions=conditions, **more)  # type: ignore[arg-type]


def _row(name: str, policy: ServicePolicy, result: RehearsalResult) -> Row:
    return row(
        name,
        "rehearsed",
        result.outcomes,
        slos=policy.slos,
        replica_seconds=result.replica_seconds,
        replicas_peak=result.replicas_peak,
    )
