"""The three rivals made of NVIDIA Dynamo's planner: throughput (as shipped, ARIMA), load, and both (Kalman).

Their knob for more replicas is `min_endpoint`, the only one that buys headroom; the load loop has the sensitivity of
its removals instead. The accelerator ceiling is the policy's, else what its pools may have at most (as shipped: 8).

Source: NVIDIA Dynamo planner 1.6.1 (Apache-2.0), re-implemented; see `dynamo_planner`.
"""

from functools import lru_cache

from tidegate.baselines.dynamo_budget import Band
from tidegate.baselines.dynamo_decide import Engine, Limits
from tidegate.baselines.dynamo_engine import believed_pass, limits_of
from tidegate.baselines.dynamo_forecast import Forecasting
from tidegate.baselines.dynamo_planner import LOAD_S, THROUGHPUT_S, Settings, planner_rule
from tidegate.baselines.law import LawMemory, service_law
from tidegate.perf.profile import EngineProfile
from tidegate.sim.policies import Contender, Knob, KnobScale, Rival, Wants, World
from tidegate.terms.fleet import Role
from tidegate.terms.slo import Indicator


@lru_cache(maxsize=64)
def engine_of(role: Role, profile: EngineProfile) -> Engine:
    """Return the engine a planner believes in."""
    return Engine(role=role, forward=believed_pass(profile), limits=limits_of(profile))


def settings_of(
    world: World, *, throughput: bool, load: bool, forecasting: Forecasting, floor: int = 1, sensitivity: float = 0.8
) -> Settings:
    """Return a planner's configuration for a world."""
    policy = world.policy
    itl_s = policy.threshold_s(Indicator.ITL) or policy.threshold_s(Indicator.TPOT)
    plain = Limits()
    most = policy.budget.max_gpus
    if most is None:
        most = sum(p.max_replicas * p.gpus_per_replica for p in policy.pools)
    return Settings(
        throughput=throughput,
        load=load,
        forecasting=forecasting,
        limits=Limits(
            ttft_s=policy.threshold_s(Indicator.TTFT) or plain.ttft_s,
            itl_s=itl_s or plain.itl_s,
            sensitivity_ratio=sensitivity,
        ),
        band=Band(most=most),
        floor=floor,
    )


def _contender(name: str, world: World, settings: Settings, setting: float | None) -> Contender:
    engines = {p.key: engine_of(p.role, world.profiles[p.profile]) for p in world.policy.pools}
    return Contender(
        name=name,
        law=service_law(planner_rule(settings, engines)),
        start=LawMemory(),
        wants=Wants(
            period_s=LOAD_S if settings.load else THROUGHPUT_S,
            scrape_interval_s=LOAD_S,
            rate_window_s=THROUGHPUT_S,
            replicas=settings.load,
            engine_detail=settings.load,
        ),
        setting=setting,
    )


def _floor_knob(world: World) -> Knob:
    most = max(p.max_replicas for p in world.policy.pools)
    return Knob(
        name="min_endpoint", unit="replicas", safe=float(most), thrifty=1.0, default=1.0, scale=KnobScale.INTEGER
    )


def _sensitivity_knob(_world: World) -> Knob:
    return Knob(name="load_scaling_down_sensitivity", unit="%", safe=1.0, thrifty=100.0, default=80.0)


def _throughput(world: World, setting: float | None) -> Contender:
    floor = 1 if setting is None else round(setting)
    settings = settings_of(world, throughput=True, load=False, forecasting=Forecasting.ARIMA, floor=floor)
    return _contender("dynamo-throughput", world, settings, setting)


def _hybrid(world: World, setting: float | None) -> Contender:
    floor = 1 if setting is None else round(setting)
    settings = settings_of(world, throughput=True, load=True, forecasting=Forecasting.KALMAN, floor=floor)
    return _contender("dynamo-hybrid", world, settings, setting)


def _load_only(world: World, setting: float | None) -> Contender:
    ratio = 0.8 if setting is None else setting / 100.0
    settings = settings_of(world, throughput=False, load=True, forecasting=Forecasting.CONSTANT, sensitivity=ratio)
    return _contender("dynamo-load", world, settings, setting)


_SOURCE = "NVIDIA Dynamo planner 1.6.1"

RIVALS: tuple[Rival, ...] = (
    Rival(
        name="dynamo-throughput",
        summary="Dynamo planner, throughput only, forecast by ARIMA as shipped",
        source=_SOURCE,
        knob=_floor_knob,
        make=_throughput,
    ),
    Rival(
        name="dynamo-load",
        summary="Dynamo planner, load only, by what each engine holds",
        source=_SOURCE,
        knob=_sensitivity_knob,
        make=_load_only,
    ),
    Rival(
        name="dynamo-hybrid",
        summary="Dynamo planner, load with forecast floors, by a Kalman filter",
        source=_SOURCE,
        knob=_floor_knob,
        make=_hybrid,
    ),
)
