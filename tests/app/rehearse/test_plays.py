"""One policy over one load: the world it meets, its setting, and what is drawn of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tidegate.app.config import load_policies
from tidegate.app.rehearse.fair import fair_oracle
from tidegate.app.rehearse.laws import best_static, rivals
from tidegate.app.rehearse.loads import Loads
from tidegate.app.rehearse.matching import as_set, matched
from tidegate.app.rehearse.plays import Stage, cache_of, drawn, world_of
from tidegate.sim.counts import ReplicaCounts
from tidegate.sim.faults import FaultName
from tidegate.sim.trace import Trace

POLICY = load_policies([Path(__file__).parents[3] / "examples" / "policies" / "chat.yaml"])[0]


def tide(hashes: int = 0) -> Trace:
    """Twenty minutes that rise from 2 to 14 requests/s and fall again."""
    rng = np.random.default_rng(5)
    rate = 8.0 - 6.0 * np.cos(2 * np.pi * np.arange(1200) / 1200)
    at_s = np.sort(np.repeat(np.arange(1200), n := rng.poisson(rate)) + rng.random(int(n.sum())))
    rows = np.full(len(at_s), 1000, dtype=np.int64)
    return Trace(
        name="tide",
        arrival_ps=(at_s * 1e12).astype(np.int64),
        prompt_tokens=rows,
        output_tokens=rows // 5,
        hash_block_tokens=hashes,
        hash_start=np.zeros(len(rows) + 1 if hashes else 0, dtype=np.int64),
    )


@pytest.fixture(scope="module", name="stage")
def staged() -> Stage:
    loads = Loads(name="tide", files=(), format="made", trace=tide())
    return Stage(loads=loads, world=world_of(POLICY, tide(), peak_per_s=13.5), seeds=(0,))


def test_world_says_what_may_be_known_beforehand(stage: Stage) -> None:
    world = stage.world
    key = POLICY.pools[0].key
    assert (world.prompt_tokens, world.output_tokens) == (1000.0, 200.0)
    assert world.mean_per_s == pytest.approx(8.0, rel=0.05)
    assert world.cold_start_s == 20.0
    assert 2.0 < world.capacity_per_s[key] < 12.0


@pytest.mark.timeout(240)  # twenty laws, and a cold cache compiles the simulator first
def test_every_rival_can_be_made_and_played(stage: Stage) -> None:
    for rival in rivals().values():
        (play,) = stage.plays(rival, None)
        assert 0.0 <= play.figures.attainment_ratio <= 1.0, rival.name
        assert play.figures.gpu_hours > 0.0, rival.name
        assert play.replicas is not None


def test_thriftier_setting_of_our_own_law_costs_less(stage: Stage) -> None:
    own = rivals()["tidegate"]
    safe, thrifty = (stage.plays(own, setting)[0] for setting in (0.4, 1.4))
    assert thrifty.figures.gpu_hours < safe.figures.gpu_hours
    assert thrifty.figures.attainment_ratio <= safe.figures.attainment_ratio
    assert safe.setting == 0.4


def test_slower_engines_serve_worse_under_the_same_belief(stage: Stage) -> None:
    static = rivals()["static-peak"]
    (believed,), (slow,) = stage.plays(static, None), stage.plays(static, None, speed_ratio=0.5)
    assert slow.figures.gpu_hours == pytest.approx(believed.figures.gpu_hours, rel=0.05)
    assert slow.figures.tpot_p50_s is not None
    assert believed.figures.tpot_p50_s is not None
    assert slow.figures.tpot_p50_s > 1.5 * believed.figures.tpot_p50_s


def test_fault_is_played_once_and_said(stage: Stage) -> None:
    fault, play = stage.faulty(rivals()["static-peak"], FaultName.REPLICA_CRASH)
    (sound,) = stage.plays(rivals()["static-peak"], None)
    assert fault.name is FaultName.REPLICA_CRASH
    assert 300.0 < fault.start_s < 900.0
    assert play.figures.attainment_ratio < sound.figures.attainment_ratio


def test_fair_oracle_needs_no_more_than_the_best_static_size(stage: Stage) -> None:
    static = best_static()
    knob = static.knob(stage.world)
    assert knob is not None
    found = matched(
        knob, lambda s: stage.plays(static, s), target_ratio=0.98, default=stage.plays(static, None)
    ).match  # fmt: skip
    oracle = fair_oracle(stage, target_ratio=0.98, speeds=())
    assert found.gpu_hours is not None
    assert oracle.match.gpu_hours is not None
    assert oracle.match.gpu_hours < 0.9 * found.gpu_hours
    assert oracle.match.plays[0].figures.attainment_ratio >= 0.98


def test_fair_oracle_says_that_the_target_is_out_of_reach(stage: Stage) -> None:
    pool = replace(POLICY.pools[0], max_replicas=1)
    small = Stage(
        loads=stage.loads, world=replace(stage.world, policy=replace(POLICY, pools=(pool,))), seeds=(0,)
    )  # fmt: skip
    oracle = fair_oracle(small, target_ratio=0.99, speeds=())
    assert oracle.match.gpu_hours is None
    assert oracle.match.reason
    assert oracle.default[0].figures.replicas_peak == 1


def test_policy_without_a_knob_reaches_the_target_as_it_is_or_not(stage: Stage) -> None:
    plays = stage.plays(rivals()["static-mean"], None)
    reached = plays[0].figures.attainment_ratio
    assert as_set(plays, target_ratio=reached).match.plays == plays
    missed = as_set(plays, target_ratio=reached + 1e-6).match
    assert (missed.plays, missed.reason is not None) == ((), True)


def test_prefix_cache_is_there_when_the_load_has_hashes_that_fit(stage: Stage) -> None:
    assert cache_of(stage.world, tide()) == (None, None)
    cache, note = cache_of(stage.world, tide(512))
    assert cache is not None
    assert cache.hash_block_tokens == 512
    assert note is not None
    assert cache_of(stage.world, tide(500))[0] is None


def test_drawn_counts_keep_the_highest_of_each_stretch() -> None:
    ready = np.ones(4000, dtype=np.int64)
    ready[1234] = 9
    seen = drawn(ReplicaCounts(seconds=np.arange(4000.0), ready=ready, starting=0 * ready, draining=1 + 0 * ready))
    assert len(seen.at_s) == 400
    assert (max(seen.ready), max(seen.existing)) == (9, 10)
