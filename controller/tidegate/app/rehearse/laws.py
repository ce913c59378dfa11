"""Every policy that can be rehearsed, by name: our own, the rivals, and the two ends of what can be won."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from tidegate.app.rehearse.findings import BEST_STATIC, OWN, OWN_WITHOUT_FORECAST
from tidegate.app.sizing import pool_capacities
from tidegate.app.tick import levels_of
from tidegate.core.decide import decide
from tidegate.forecast.select import foresee
from tidegate.sim.policies import Contender, Knob, KnobScale, PolicyFn, Rival, Wants, World
from tidegate.terms.capacity import PoolCapacity
from tidegate.terms.decision import Decision, Memory
from tidegate.terms.forecast import Forecast, Quantity
from tidegate.terms.history import History
from tidegate.terms.observation import Observation
from tidegate.terms.policy import ServicePolicy

_MODULES = (
    "static_peak", "static_mean", "last_value", "window_max", "hpa", "kpa", "keda", "aibrix", "crane", "llmd_slo",
    "llmd_token", "wva", "dynamo",
)  # fmt: skip
_PERIOD_S = 15.0
# As `tidegate run` does: copies of one series are folded.
_WANTS = Wants(
    period_s=_PERIOD_S,
    replicas=True,
    slis=True,
    histories=(Quantity.REQUESTS_PER_S,),
    folds_copies=True,
)
# What `targetUtilisation` may be set to in a policy ends at 1.
_SAFE_RATIO, _THRIFTY_RATIO = 0.3, 1.0


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

    return Contender(
        name=OWN if forecast else OWN_WITHOUT_FORECAST,
        law=_with_policy(set_to),
        start=Memory(),
        wants=_WANTS,
        setting=chosen,
        keeps_memory=True,
        forecaster=partial(foresee if forecast else last_seen, levels=levels_of([policy])),
        sizer=partial(pool_capacities, profiles=world.profiles, elapsed_s=_PERIOD_S),
    )


def last_seen(
    histories: Sequence[History], *, horizons_s: Mapping[str, float], now_s: float, levels: tuple[float, ...]
) -> tuple[Forecast, ...]:
    """Return forecasts that say nothing of the future: the last value of each history, for every quantile.

    Without any forecast the law would hold what it has, for it takes a missing one as lost sight.
    """
    return tuple(
        Forecast(
            service=h.service,
            quantity=h.quantity,
            made_at_s=now_s,
            step_s=max(h.step_s, horizons_s.get(h.service, h.step_s)),
            levels=levels,
            values=tuple((h.samples[-1][1],) for _ in levels),
            method="last_value",
            reason="no forecast asked for",
        )
        for h in histories
        if h.samples
    )


def _with_policy(policy: ServicePolicy) -> PolicyFn[Memory]:
    """Return `decide` under this policy, whatever one it is called with: the knob is a field of the policy."""

    def law(
        obs: Observation,
        forecasts: Sequence[Forecast],
        capacity: Sequence[PoolCapacity],
        policies: Sequence[ServicePolicy],  # noqa: ARG001
        memory: Memory,
        *,
        now_s: float,
    ) -> tuple[Decision, Memory]:
        return decide(obs, tuple(forecasts), tuple(capacity), (policy,), memory, now_s=now_s)

    return law


def best_static() -> Rival:
    """Return the static size, to be searched for the smallest that reaches the target."""
    return replace(rivals()["static-peak"], name=BEST_STATIC, summary="the smallest size that reaches the target")
