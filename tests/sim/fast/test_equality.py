"""The compiled fleet against the plain one, step by step: every number of every look must be equal."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tests.sim.fast.worlds import Deed, World, assert_same, assert_same_course, worlds

from tidegate.app.config import load_profile
from tidegate.perf.profile import PS_PER_S
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.fast.fleet import FastFleet
from tidegate.sim.fleet import FleetSim
from tidegate.sim.setup import FleetSetup, PoolSetup
from tidegate.sim.trace import Trace
from tidegate.terms.fleet import PoolKey, Role

# The first test of a run may have to compile, for half a minute or more on a busy machine.
pytestmark = pytest.mark.timeout(300)
RANDOM = settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@RANDOM
@given(worlds())
def test_fast_fleet_equals_the_plain_one_with_aggregated_pools(world: World) -> None:
    assert_same_course(world)


@RANDOM
@given(worlds(cached=True))
def test_fast_fleet_equals_the_plain_one_with_prefix_caches_and_tiers(world: World) -> None:
    assert_same_course(world)


@RANDOM
@given(worlds(disaggregated=True))
def test_fast_fleet_equals_the_plain_one_with_prefill_and_decode_pools(world: World) -> None:
    assert_same_course(world)


@RANDOM
@given(worlds(disaggregated=True, cached=True))
def test_fast_fleet_equals_the_plain_one_with_cached_prefill_pools(world: World) -> None:
    assert_same_course(world)


def real_world(trace: Trace, *, initial: int, deeds: tuple[Deed, ...] = ()) -> World:
    pool = PoolSetup(
        key=PoolKey(service="chat", pool="main"),
        role=Role.AGGREGATED,
        profile=load_profile("a100-llama8b-tp1"),
        cold_start=ColdStart(samples_s=(1.5,)),
        initial=initial,
    )
    return World(trace=trace, setup=FleetSetup(pools=(pool,), ttft_bounds_ps=(PS_PER_S,)), deeds=deeds)


def load(*, requests: int, gap_ps: int, prompt: int, output: int) -> Trace:
    rng = np.random.default_rng(7)
    return Trace(
        name="even",
        arrival_ps=gap_ps * np.arange(requests, dtype=np.int64),
        prompt_tokens=rng.integers(1, 2 * prompt, requests),
        output_tokens=rng.integers(1, 2 * output, requests),
    )


def test_fast_fleet_equals_the_plain_one_when_more_requests_are_in_flight_than_there_was_room_for() -> None:
    trace = load(requests=2500, gap_ps=PS_PER_S // 4000, prompt=20, output=2)
    fast = assert_same_course(real_world(trace, initial=2, deeds=(Deed(after_ps=PS_PER_S // 2, kind="sample"),)))
    assert np.all(fast.outcomes().ended_ps > 0)


def test_fast_fleet_equals_the_plain_one_when_more_replicas_live_than_there_was_room_for() -> None:
    trace = load(requests=300, gap_ps=PS_PER_S // 50, prompt=100, output=20)
    deeds = (
        Deed(after_ps=PS_PER_S // 10, kind="scale", number=21),
        Deed(after_ps=2 * PS_PER_S, kind="crash", number=2),
        Deed(after_ps=PS_PER_S, kind="scale", number=3),
        Deed(after_ps=PS_PER_S, kind="scale", number=12),
    )
    fast = assert_same_course(real_world(trace, initial=3, deeds=deeds))
    assert len({e.member for e in fast.events()}) > 21


def test_fast_fleet_equals_the_plain_one_at_looks_within_a_long_answer() -> None:
    trace = load(requests=12, gap_ps=PS_PER_S // 3, prompt=3000, output=300)
    looks = tuple(Deed(after_ps=PS_PER_S // 7 + 1, kind="sample") for _ in range(60))
    assert_same_course(real_world(trace, initial=1, deeds=looks))


def test_fast_fleet_equals_the_plain_one_on_the_last_day_a_trace_may_have() -> None:
    days_100_ps = 8_640_000 * PS_PER_S
    near = load(requests=200, gap_ps=PS_PER_S // 10, prompt=500, output=50)
    far = near.arrival_ps + days_100_ps - near.arrival_ps[-1]
    trace = Trace(
        name="far",
        arrival_ps=np.concatenate([near.arrival_ps, far]),
        prompt_tokens=np.tile(near.prompt_tokens, 2),
        output_tokens=np.tile(near.output_tokens, 2),
    )
    setup = real_world(trace, initial=2).setup
    plain, fast = FleetSim(trace, setup), FastFleet(trace, setup)
    for until_ps in (days_100_ps // 2, days_100_ps, days_100_ps + 3600 * PS_PER_S):
        plain.run_until(until_ps)
        fast.run_until(until_ps)
        assert_same(plain, fast)
    assert fast.idle
    assert (fast.outcomes().ended_ps >= 0).all()
