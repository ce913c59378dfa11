"""The clairvoyant on a small tide, played by the compiled fleet."""

from dataclasses import replace

import numpy as np
import pytest

from tidegate.app.config_profile import load_profile
from tidegate.baselines.oracle import Ground, OraclePlay, _Pruner, clairvoyant, cut, sized
from tidegate.baselines.schedule import Schedule
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.fast.fleet import FastFleet
from tidegate.sim.score import joint
from tidegate.sim.setup import FleetSetup, PoolSetup
from tidegate.sim.trace import Trace
from tidegate.terms.fleet import PoolKey, Role
from tidegate.terms.slo import Indicator, Slo

KEY = PoolKey(service="chat", pool="main")
LEAD_S = 60.0
SLOS = (
    Slo(name="ttft", indicator=Indicator.TTFT, objective_ratio=0.95, threshold_s=1.0, window_s=60.0),
    Slo(name="tpot", indicator=Indicator.TPOT, objective_ratio=0.95, threshold_s=0.08, window_s=60.0),
)
_HOUR_S = 3600


def tide() -> Trace:
    rng = np.random.default_rng(3)
    rate = 12.0 - 10.0 * np.cos(2 * np.pi * np.arange(_HOUR_S) / _HOUR_S)
    n = rng.poisson(rate)
    at_s = np.sort(np.repeat(np.arange(_HOUR_S), n) + rng.random(int(n.sum())))
    return Trace(
        name="tide",
        arrival_ps=(at_s * 1e12).astype(np.int64),
        prompt_tokens=rng.integers(200, 2000, len(at_s)),
        output_tokens=rng.integers(20, 400, len(at_s)),
    )


def play(trace: Trace, schedule: Schedule) -> OraclePlay:
    counts = schedule.counts[KEY]
    pool = PoolSetup(
        key=KEY,
        role=Role.AGGREGATED,
        profile=load_profile("a100-llama8b-tp1"),
        cold_start=ColdStart(samples_s=(LEAD_S,)),
        initial=counts[0],
    )
    fleet = FastFleet(trace, FleetSetup(pools=(pool,)))
    for i, count in enumerate(counts):
        fleet.run_until(round(i * schedule.step_s * 1e12))
        fleet.scale_to(0, count)
    fleet.run_until(fleet.now_ps + round(3600e12))
    outcomes = fleet.outcomes()
    last_ps = max(int(outcomes.ended_ps.max()), int(trace.arrival_ps[-1]))
    return OraclePlay(met=joint(outcomes, SLOS), gpu_hours=fleet.replica_ps(0, last_ps) / 3600e12)


@pytest.fixture(scope="module")
def ground() -> Ground:
    return Ground(
        trace=tide(),
        key=KEY,
        min_replicas=1,
        max_replicas=12,
        capacity_per_s=7.0,
        lead_s=LEAD_S,
        target_ratio=0.99,
        play=play,
    )


def test_clairvoyant_reaches_the_target_below_the_best_static_size(ground: Ground) -> None:
    oracle = clairvoyant(ground)
    assert oracle.schedule is not None
    assert oracle.gpu_hours is not None
    assert oracle.attainment_ratio >= ground.target_ratio
    again = play(ground.trace, oracle.schedule)
    assert (again.attainment_ratio, again.gpu_hours) == (oracle.attainment_ratio, oracle.gpu_hours)
    steps = len(oracle.schedule.counts[KEY])
    static = [play(ground.trace, ground.schedule(np.full(steps, n))) for n in range(1, 8)]
    best = min(p.gpu_hours for p in static if p.attainment_ratio >= ground.target_ratio)
    assert oracle.gpu_hours < best
    # Perfect forecast alone is where the search began; pruning only ever makes it cheaper.
    sizes = [t.gpu_hours for t in oracle.tried if t.attainment_ratio >= ground.target_ratio]
    assert oracle.gpu_hours <= min(sizes)
    assert clairvoyant(ground) == oracle


def test_pruning_goes_on_until_no_block_can_go(ground: Ground) -> None:
    pruner = _Pruner(ground, np.full(_HOUR_S // 15, 6))
    lavish = pruner.played.gpu_hours
    costs = [lavish]
    while pruner.once() and len(costs) < 24:
        costs.append(pruner.played.gpu_hours)
    assert costs == sorted(costs, reverse=True)
    assert len(set(costs)) == len(costs)  # every pass that says it took something out did
    assert pruner.played.gpu_hours < 0.8 * lavish
    assert pruner.played.attainment_ratio >= ground.target_ratio
    lost = int((~pruner.played.met).sum())
    tried = 0
    for block in range(6):
        fewer = pruner._without((block,))
        if (fewer == pruner.needed).all():
            continue
        tried += 1
        without = play(ground.trace, ground.schedule(fewer))
        assert without.attainment_ratio < ground.target_ratio, block
        # What the surroundings alone said it would cost is what the whole says: the choice rests on it.
        assert pruner._misses_added(block) == pytest.approx(int((~without.met).sum()) - lost, rel=0.1, abs=40)
    assert tried >= 3


def test_clairvoyant_says_so_when_the_largest_size_misses(ground: Ground) -> None:
    oracle = clairvoyant(replace(ground, max_replicas=1))
    assert oracle.schedule is None
    assert oracle.gpu_hours is None
    assert oracle.reason is not None
    assert oracle.attainment_ratio < ground.target_ratio


def test_schedule_orders_a_cold_start_ahead_and_drains_at_once(ground: Ground) -> None:
    needed = np.array([1, 1, 1, 1, 1, 1, 3, 3, 1, 1])
    counts = ground.schedule(needed).counts[KEY]  # 60 s are four steps of 15 s
    assert counts == (1, 1, 3, 3, 3, 3, 3, 3, 1, 1)


def test_sizes_follow_the_load_and_stay_inside_the_bounds(ground: Ground) -> None:
    wanted = sized(ground, 1.0)
    assert wanted.min() >= 1
    assert wanted.max() <= 12
    assert (sized(ground, 0.5) >= wanted).all()
    assert wanted[len(wanted) // 2] > wanted[0]


def test_a_cut_keeps_the_requests_of_its_span_with_their_prefixes() -> None:
    whole = Trace(
        name="w",
        arrival_ps=np.array([0, 5, 10, 20], dtype=np.int64) * 10**12,
        prompt_tokens=np.array([16, 32, 48, 16], dtype=np.int64),
        output_tokens=np.ones(4, dtype=np.int64),
        hash_block_tokens=16,
        hash_start=np.array([0, 1, 3, 6, 7], dtype=np.int64),
        hashes=np.array([1, 1, 2, 1, 2, 3, 9], dtype=np.int64),
    )
    part = cut(whole, 5.0, 20.0)
    assert part.arrival_ps.tolist() == [0, 5 * 10**12]
    assert [part.hashes_of(i) for i in range(2)] == [(1, 2), (1, 2, 3)]
