"""The oracles of a comparison: a schedule for each seed's load, found on the simulator that judges the policies."""

from dataclasses import replace
from functools import partial

from tidegate.app.rehearse.document import FrontierPoint
from tidegate.app.rehearse.findings import FAIR_ORACLE, INSTANT_BOUND, AtSpeed, Finding, Match, Play
from tidegate.app.rehearse.oracle_cache import kept, name_of
from tidegate.app.rehearse.plays import Stage
from tidegate.baselines.oracle import Ground, Oracle, OraclePlay, clairvoyant, perfect_forecast
from tidegate.baselines.schedule import Schedule, schedule_contender
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.fast.fleet import FastFleet
from tidegate.sim.rehearse import Conditions, rehearse
from tidegate.sim.score import joint
from tidegate.sim.trace import Trace

_SUMMARY = (
    "knows every arrival, pays cold start and drain; a schedule sized by perfect forecast, then pruned by playing"
)
_SOURCE = "the least GPU time anybody could have had, as far as search finds it"


def fair_oracle(stage: Stage, *, target_ratio: float, speeds: tuple[float, ...]) -> Finding:
    """Return what the fair oracle came to; the policy must have one pool."""
    match, points, notes = _found(stage, target_ratio=target_ratio, speed_ratio=1.0)
    at_speed = {}
    for ratio in speeds:
        other, _, _ = _found(stage, target_ratio=target_ratio, speed_ratio=ratio)
        if other.plays:
            at_speed[ratio] = AtSpeed(default=other.plays, match=other)
    return Finding(
        name=FAIR_ORACLE,
        kind="oracle",
        summary=_SUMMARY,
        source=_SOURCE,
        period_s=None,
        knob=None,
        default=match.plays or _largest(stage),
        match=match,
        frontier=points,
        at_speed=at_speed,
        notes=notes,
    )


def instant_bound(stage: Stage, *, target_ratio: float) -> Finding:
    """Return what a perfect forecast came to whose replicas are ready the moment they are ordered; drains are paid."""
    plays: list[Play] = []
    points: tuple[FrontierPoint, ...] = ()
    reason = None
    for seed in stage.seeds:
        usual = stage.conditions(seed=seed)
        pools = tuple(replace(p, cold_start=ColdStart(samples_s=(0.0,))) for p in usual.setup.pools)
        conditions = replace(usual, setup=replace(usual.setup, pools=pools))
        ground = replace(_ground(stage, conditions, seed=seed, target_ratio=target_ratio), lead_s=0.0)
        found, needed = perfect_forecast(ground)
        points = points or tuple(
            FrontierPoint(setting=None, attainment_ratio=t.attainment_ratio, gpu_hours=t.gpu_hours) for t in found.tried
        )
        if needed is None:
            plays, reason = [], found.reason
            break
        plays.append(stage.play(schedule_contender(INSTANT_BOUND, ground.schedule(needed)), conditions, seed=seed))
    match = Match(plays=tuple(plays), reason=reason)
    return Finding(
        name=INSTANT_BOUND,
        kind="oracle",
        summary="knows every arrival, and its replicas start in no time: a bound, not a policy",
        source="replicas = load / what one carries, the load per replica searched",
        period_s=None,
        knob=None,
        default=match.plays or _largest(stage),
        match=match,
        frontier=points,
    )


def _found(
    stage: Stage, *, target_ratio: float, speed_ratio: float
) -> tuple[Match, tuple[FrontierPoint, ...], tuple[str, ...]]:
    plays: list[Play] = []
    points: tuple[FrontierPoint, ...] = ()
    passes = []
    for seed in stage.seeds:
        conditions = stage.conditions(seed=seed, speed_ratio=speed_ratio)
        ground = _ground(stage, conditions, seed=seed, target_ratio=target_ratio)
        name = name_of(ground.trace, conditions, target_ratio=target_ratio, capacity_per_s=ground.capacity_per_s)
        oracle = kept(name, stage.world.policy.pools[0], partial(clairvoyant, ground))
        if oracle.schedule is None:
            return Match(reason=oracle.reason or "the target is out of its reach"), _points(oracle), ()
        plays.append(stage.play(schedule_contender(FAIR_ORACLE, oracle.schedule), conditions, seed=seed))
        points = points or _points(oracle)
        passes.append(oracle.passes)
    note = f"Its schedule was pruned in {max(passes)} passes; a better one may exist, so the gap is at least this wide."
    return Match(plays=tuple(plays)), points, (note,)


def _ground(stage: Stage, conditions: Conditions, *, seed: int, target_ratio: float) -> Ground:
    policy = stage.world.policy
    pool = policy.pools[0]

    def play(trace: Trace, schedule: Schedule) -> OraclePlay:
        contender = schedule_contender(FAIR_ORACLE, schedule)
        result = rehearse(trace, contender, conditions=conditions, make_fleet=FastFleet)
        return OraclePlay(met=joint(result.outcomes, policy.slos), gpu_hours=result.gpu_seconds / 3600.0)

    return Ground(
        trace=stage.trace(seed),
        key=pool.key,
        min_replicas=pool.min_replicas,
        max_replicas=pool.max_replicas,
        capacity_per_s=stage.world.capacity_per_s[pool.key],
        lead_s=max(max(p.cold_start.samples_s) for p in conditions.setup.pools),
        target_ratio=target_ratio,
        play=play,
    )


def _points(oracle: Oracle) -> tuple[FrontierPoint, ...]:
    found = [FrontierPoint(setting=None, attainment_ratio=t.attainment_ratio, gpu_hours=t.gpu_hours)
             for t in oracle.tried]  # fmt: skip
    if oracle.gpu_hours is not None:
        found.append(FrontierPoint(setting=None, attainment_ratio=oracle.attainment_ratio, gpu_hours=oracle.gpu_hours))
    return tuple(found)


def _largest(stage: Stage) -> tuple[Play, ...]:
    """Return the largest size allowed, all of the time: the most that could be attained."""
    pool = stage.world.policy.pools[0]
    contender = schedule_contender(FAIR_ORACLE, Schedule(step_s=60.0, counts={pool.key: (pool.max_replicas,)}))
    return tuple(stage.play(contender, stage.conditions(seed=seed), seed=seed) for seed in stage.seeds)
