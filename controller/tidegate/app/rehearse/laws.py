"""Every policy that can be rehearsed, by name: our own, the rivals, and the two ends of what can be won."""

import importlib
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tidegate.app.rehearse.backtest import present
from tidegate.app.rehearse.findings import BEST_STATIC, FAIR_ORACLE, OWN, OWN_WITHOUT_FORECAST
from tidegate.app.sizing import pool_capacities
from tidegate.app.tick import levels_of
from tidegate.baselines.figures import replicas_for
from tidegate.baselines.schedule import Schedule
from tidegate.core.decide import decide
from tidegate.forecast.select import foresee
from tidegate.perf.profile import PS_PER_S
from tidegate.sim.policies import Contender, Knob, KnobScale, Rival, Wants, World
from tidegate.sim.trace import FloatArray, Trace
from tidegate.terms.decision import Memory

_MODULES = (
    "static_peak", "static_mean", "last_value", "window_max", "hpa", "kpa", "keda", "aibrix", "crane", "llmd_slo",
    "llmd_token", "wva", "dynamo",
)  # fmt: skip
_PERIOD_S = 15.0
_WANTS = Wants(period_s=_PERIOD_S, replicas=True, replica_rates=True, slis=True)
# Headroom kept by Tidegate's own knob: a share of a replica's capacity.
_SAFE_RATIO, _THRIFTY_RATIO = 0.3, 1.6
_ORACLE_STEP_S = 30.0


def rivals() -> dict[str, Rival]:
    """Return every policy by name, ours first."""
    own = [
        Rival(
            name=OWN if forecast else OWN_WITHOUT_FORECAST,
            summary="sizes for a quantile of the load forecast a cold start ahead"
            if forecast
            else "the same law without its forecast: sizes for the load seen now",
            source="Tidegate, core.decide",
            knob=_own_knob,
            make=partial(_own, forecast),
        )
        for forecast in (True, False)
    ]
    found = [r for m in _MODULES for r in importlib.import_module(f"tidegate.baselines.{m}").RIVALS]
    return {r.name: r for r in (*own, *found)}


def _own_knob(world: World) -> Knob:
    return Knob(
        name="targetUtilisation",
        unit="share of a replica's capacity",
        safe=_SAFE_RATIO,
        thrifty=_THRIFTY_RATIO,
        default=world.policy.scaling.target_utilisation_ratio,
        scale=KnobScale.LOG,
    )


def _own(forecast: bool, world: World, setting: float | None) -> Contender:  # noqa: FBT001  (bound by `partial`)
    policy = world.policy
    chosen = policy.scaling.target_utilisation_ratio if setting is None else setting
    set_to = replace(policy, scaling=replace(policy.scaling, target_utilisation_ratio=chosen))

    def law(obs, forecasts, capacity, policies, memory, *, now_s):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, ARG001
        return decide(obs, forecasts, capacity, (set_to,), memory, now_s=now_s)

    return Contender(
        name=OWN if forecast else OWN_WITHOUT_FORECAST,
        law=law,
        start=Memory(),
        wants=_WANTS,
        setting=chosen,
        keeps_memory=True,
        forecaster=partial(foresee, levels=levels_of([policy])) if forecast else None,
        sizer=partial(pool_capacities, profiles=world.profiles, elapsed_s=_PERIOD_S),
    )


def best_static() -> Rival:
    """Return the static size, to be searched for the smallest that reaches the target."""
    return replace(rivals()["static-peak"], name=BEST_STATIC, summary="the smallest size that reaches the target")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clairvoyant:
    """The policy that knows the whole load: a schedule per load, sized for what is about to come."""

    name: str = FAIR_ORACLE
    summary: str = "knows the load; sizes for the most that comes within a cold start, which it pays like everybody"
    source: str = "perfect-forecast sizing, its headroom searched"

    @staticmethod
    def knob(world: World) -> Knob:  # noqa: ARG004  (as a Rival's)
        """Return the headroom it keeps: what of a replica's capacity is planned for."""
        return Knob(
            name="utilisation",
            unit="share of a replica's capacity",
            safe=_SAFE_RATIO,
            thrifty=_THRIFTY_RATIO,
            default=1.0,
            scale=KnobScale.LOG,
        )

    def make(self, world: World, setting: float | None, trace: Trace) -> Contender:
        """Return the schedule for one load, ready to run."""
        chosen = 1.0 if setting is None else setting
        rates = rates_of(trace, _ORACLE_STEP_S)
        ahead = round(world.cold_start_s / _ORACLE_STEP_S) + 1
        # What is ordered now is ready a cold start later, and what is ready now must carry all until then.
        most = np.array([rates[i : i + ahead + 1].max() for i in range(len(rates))])
        sizes = [replicas_for(world, float(rate) / chosen) for rate in most]
        counts = {p.key: tuple(size[p.key] for size in sizes) for p in world.policy.pools}
        made = present(Schedule(step_s=_ORACLE_STEP_S, counts=counts)).make(world, None)
        return replace(made, name=self.name, setting=chosen)


def rates_of(trace: Trace, step_s: float) -> FloatArray:
    """Return requests/s of each step, a mean over three steps: a size follows the load, not its noise."""
    counts = np.bincount(trace.arrival_ps // round(step_s * PS_PER_S))
    padded = np.pad(counts, 1, mode="edge")
    return (padded[:-2] + padded[1:-1] + padded[2:]) / (3.0 * step_s)
