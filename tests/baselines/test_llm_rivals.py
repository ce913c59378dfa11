"""The laws made for LLM fleets, each in a whole rehearsal: they follow a load up and down, and their knob trades."""

from dataclasses import replace

import numpy as np
import pytest
from tests.policies import pool_policy
from tests.sim.stage import KEY, POLICY, PROFILE, pool_setup

from tidegate.baselines import dynamo, llmd_slo, llmd_token, wva
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.fleet import FleetSim
from tidegate.sim.policies import Rival, World
from tidegate.sim.rehearse import Conditions, RehearsalResult, rehearse
from tidegate.sim.setup import FleetSetup
from tidegate.sim.trace import Trace

RIVALS = (*llmd_slo.RIVALS, *llmd_token.RIVALS, *wva.RIVALS, *dynamo.RIVALS)
# Four times slower than the hardware: a small load fills it, and there are fewer steps to simulate.
SLOW = replace(
    PROFILE,
    weight_read_ps=4 * PROFILE.weight_read_ps,
    compute_ps_per_token=4 * PROFILE.compute_ps_per_token,
    host_ps_per_sequence=4 * PROFILE.host_ps_per_sequence,
)
WIDE = replace(POLICY, pools=(pool_policy(KEY, min_replicas=1, max_replicas=12),))
WORLD = World(
    policy=WIDE,
    profiles={WIDE.pools[0].profile: SLOW},
    capacity_per_s={KEY: 0.5},
    concurrency={KEY: 30.0},
    prompt_tokens=1200.0,
    output_tokens=200.0,
    cold_start_s=30.0,
    mean_per_s=2.1,
    peak_per_s=6.0,
)


def _ramp() -> Trace:
    """Return 10 min of 0.2, then 10 min of 6, then 10 min of 0.2 requests/s."""
    at_s = np.concatenate((np.arange(0, 600, 5.0), np.arange(600, 1200, 1 / 6), np.arange(1200, 1800, 5.0)))
    rng = np.random.default_rng(5)
    return Trace(
        name="ramp",
        arrival_ps=np.rint(at_s * 1e12).astype(np.int64),
        prompt_tokens=rng.integers(600, 1800, size=len(at_s)),
        output_tokens=rng.integers(60, 140, size=len(at_s)),
    )


LOAD = _ramp()


def _rehearsed(rival: Rival, setting: float | None = None) -> RehearsalResult:
    setup = FleetSetup(pools=(pool_setup(profile=SLOW, initial=2, cold_start=ColdStart(samples_s=(30.0,))),))
    conditions = Conditions(policy=WIDE, setup=setup)
    return rehearse(LOAD, rival.make(WORLD, setting), conditions=conditions, make_fleet=FleetSim)


@pytest.mark.parametrize("rival", RIVALS, ids=lambda r: r.name)
def test_rival_follows_a_load_up(rival: Rival) -> None:
    result = _rehearsed(rival)
    asked = {d.decided_at_s: d.pools[0].asked_replicas for d in result.decisions}
    before = max(n for at_s, n in asked.items() if 400.0 <= at_s <= 600.0)
    during = max(n for at_s, n in asked.items() if 600.0 < at_s <= 1300.0)
    assert during > before
    assert all(1 <= n <= 12 for n in asked.values())


@pytest.mark.parametrize("rival", RIVALS, ids=lambda r: r.name)
def test_rival_costs_more_at_the_safe_end_of_its_knob(rival: Rival) -> None:
    knob = rival.knob(WORLD)
    assert knob is not None
    assert min(knob.safe, knob.thrifty) <= knob.default <= max(knob.safe, knob.thrifty)
    assert _rehearsed(rival, knob.safe).gpu_seconds > _rehearsed(rival, knob.thrifty).gpu_seconds
