"""The simulated fleet: states and their times, what happens to requests, counters; a step's time is in conftest."""

import numpy as np
import pytest
from tests.sim.worlds import FAR_PS, PS, Engine, hashed, kinds, load, pool, setup, states

from tidegate.sim.arrivals import Arrival, in_order
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.events import SimRequest
from tidegate.sim.fleet import FleetSim
from tidegate.sim.replica import ReplicaSim
from tidegate.sim.setup import CacheSetup, Routing
from tidegate.terms.fleet import ReplicaState

NOTHING = load()


def test_fleet_of_one_equals_the_replica_alone(engine: Engine) -> None:
    trace = load(*[(i * 400, 30 + i, 1 + i % 7) for i in range(40)])
    fleet = FleetSim(trace, setup(pool(engine())))
    fleet.run_until(FAR_PS)
    alone = ReplicaSim(engine())
    for i in range(40):
        asked = SimRequest(key=i, prompt_tokens=30 + i, output_tokens=1 + i % 7)
        alone.submit(asked, i * 400)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step in alone.step_until(FAR_PS):
        for key in step.emitted:
            first.setdefault(key, step.ended_at_ps)
            last[key] = step.ended_at_ps
    outcomes = fleet.outcomes()
    assert outcomes.first_ps.tolist() == [first[i] for i in range(40)]
    assert outcomes.ended_ps.tolist() == [last[i] for i in range(40)]
    assert set(outcomes.member.tolist()) == {0}


def test_fleet_refuses_what_arrives_while_nobody_is_ready(engine: Engine) -> None:
    # A replica that becomes ready at 5000 is ready after the arrivals of that instant.
    fleet = FleetSim(load((4999, 10, 1), (5000, 10, 1), (5001, 10, 1)), setup(pool(engine(), 0)))
    fleet.scale_to(0, 1)
    fleet.run_until(FAR_PS)
    assert fleet.outcomes().ended_ps.tolist() == [-1, -1, 5001 + 50 + 277]
    assert fleet.outcomes().member.tolist() == [-1, -1, 0]
    assert fleet.sample().refused == 2
    assert kinds(fleet) == [(0, "ordered", 0), (5000, "ready", 0)]


def test_fleet_refuses_what_no_engine_can_hold(engine: Engine) -> None:
    fleet = FleetSim(load((0, 900, 101), (0, 10, 1)), setup(pool(engine())))
    fleet.run_until(FAR_PS)
    sample = fleet.sample()
    assert (sample.arrived, sample.refused, sample.answered, sample.pending_prompt_tokens) == (2, 1, 1, 0)


def test_fleet_notices_readiness_at_the_next_sweep(engine: Engine) -> None:
    fleet = FleetSim(NOTHING, setup(pool(engine(), 0)))
    fleet.run_until(1500)
    fleet.scale_to(0, 1)
    fleet.run_until(6999)
    assert states(fleet) == {0: ReplicaState.STARTING}
    fleet.run_until(7000)
    assert kinds(fleet) == [(1500, "ordered", 0), (7000, "ready", 0)]


def test_cold_starts_are_those_of_the_pool_in_order_of_its_orders(engine: Engine) -> None:
    slow = ColdStart(samples_s=(9000 * PS, 3000 * PS))
    fleet = FleetSim(NOTHING, setup(pool(engine(), 1, cold_start=slow), pool(engine(), 2)))
    fleet.scale_to(1, 3)
    fleet.scale_to(0, 3)
    fleet.run_until(FAR_PS)
    ready = [(at, member) for at, kind, member in kinds(fleet) if kind == "ready"]
    # Members 0 to 2 begin ready; 3 is the second pool's, 4 and 5 the first pool's.
    assert ready == [(0, 0), (0, 1), (0, 2), (3000, 5), (5000, 3), (9000, 4)]
    assert [(e.member, e.pool) for e in fleet.events() if e.kind == "ordered"] == [
        (0, 0),
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 0),
        (5, 0),
    ]


def test_starting_counts_as_supply_and_never_as_cover(engine: Engine) -> None:
    fleet = FleetSim(NOTHING, setup(pool(engine())))
    fleet.scale_to(0, 3)
    fleet.scale_to(0, 3)
    assert sorted(states(fleet).values()) == [ReplicaState.READY, ReplicaState.STARTING, ReplicaState.STARTING]
    fleet.scale_to(0, 1)  # two still start: the one that serves must stay
    assert states(fleet)[0] is ReplicaState.READY
    fleet.run_until(6000)
    fleet.scale_to(0, 1, drain_first=(0,))
    assert states(fleet) == {1: ReplicaState.READY}


def test_scaling_in_drains_the_named_then_the_emptiest_then_the_youngest(engine: Engine) -> None:
    fleet = FleetSim(load((0, 10, 99), (0, 10, 99)), setup(pool(engine(), 4)))
    fleet.run_until(10)  # members 0 and 1 have a request each
    fleet.scale_to(0, 3, drain_first=(1,))
    fleet.scale_to(0, 2)
    fleet.scale_to(0, 1)
    assert kinds(fleet)[8:] == [
        (10, "draining", 1),
        (10, "draining", 3),
        (10, "ended", 3),
        (10, "draining", 2),
        (10, "ended", 2),
    ]


def test_drained_replica_gets_no_request_and_finishes_what_it_has(engine: Engine) -> None:
    fleet = FleetSim(load((0, 10, 3), (0, 10, 3), (20, 10, 3)), setup(pool(engine(), 2)))
    fleet.run_until(10)
    fleet.drain(1)
    fleet.drain(1)
    fleet.run_until(FAR_PS)
    assert fleet.outcomes().member.tolist() == [0, 1, 0]
    last = 50 + 277 + 140 + 142
    assert fleet.outcomes().ended_ps[1] == last
    assert kinds(fleet)[4:] == [(10, "draining", 1), (last, "ended", 1)]
    assert [fleet.replica_ps(0, until) for until in (0, 500, 2000)] == [0, 1000, 2000 + last]


def test_replica_time_runs_from_the_order_and_is_kept_per_pool(engine: Engine) -> None:
    fleet = FleetSim(NOTHING, setup(pool(engine()), pool(engine(), 0)))
    fleet.run_until(1000)
    fleet.scale_to(1, 1)
    fleet.run_until(9000)
    fleet.scale_to(0, 0)
    fleet.run_until(20_000)
    assert [fleet.replica_ps(p, 20_000) for p in (0, 1)] == [9000, 19_000]


def test_sample_tells_counters_and_gauges_of_the_instant(engine: Engine) -> None:
    trace = load((0, 10, 3), (300, 20, 2))
    fleet = FleetSim(trace, setup(pool(engine())))
    fleet.run_until(340)  # prompt 0 done at 327; from 327 a decode that ends at 467; request 1 in the front end
    early = fleet.sample()
    assert (early.at_ps, early.arrived, early.in_flight, early.answered) == (340, 2, 2, 0)
    assert (early.prompt_tokens, early.output_tokens, early.pending_prompt_tokens) == (30, 5, 20)
    row = {f: getattr(early, f).tolist() for f in ("member", "live", "running", "waiting", "kv_used_blocks")}
    assert row == {"member": [0], "live": [2], "running": [1], "waiting": [0], "kv_used_blocks": [1]}
    assert (early.context_tokens[0], early.waiting_prompt_tokens[0]) == (11, 0)
    assert (early.prompt_done_tokens[0], early.output_done_tokens[0], early.finished[0]) == (10, 1, 0)
    fleet.run_until(350)
    late = fleet.sample()
    assert (late.waiting[0], late.waiting_prompt_tokens[0]) == (1, 20)
    fleet.run_until(FAR_PS)
    end = fleet.sample()
    assert (end.answered, end.in_flight, end.finished[0], end.output_done_tokens[0]) == (2, 0, 2, 5)
    assert (end.kv_used_blocks[0], end.context_tokens[0], end.pending_prompt_tokens) == (0, 0, 0)


def test_sample_leaves_out_replicas_that_start_or_have_ended(engine: Engine) -> None:
    fleet = FleetSim(load((0, 10, 9), (0, 10, 9)), setup(pool(engine(), 3)))
    fleet.run_until(10)
    fleet.drain(1)
    fleet.drain(2)
    fleet.scale_to(0, 2)
    assert fleet.sample().member.tolist() == [0, 1]


def test_histograms_count_a_value_at_its_bound_in_that_bucket(engine: Engine) -> None:
    # TTFT 327; E2E 609; TPOT (140 + 142) // 2 = 141.
    trace = load((0, 10, 3), (100_000, 10, 1))
    bounds = {"ttft_bounds_ps": (326, 327, 328), "tpot_bounds_ps": (140, 141), "e2e_bounds_ps": (327, 608)}
    fleet = FleetSim(trace, setup(pool(engine()), **bounds))
    fleet.run_until(FAR_PS)
    sample = fleet.sample()
    assert sample.ttft_counts.tolist() == [0, 2, 0, 0]
    assert sample.tpot_counts.tolist() == [0, 1, 0]  # an answer of one token has no gap
    assert sample.e2e_counts.tolist() == [1, 0, 1]


def test_kv_aware_fleet_routes_by_its_last_sample(engine: Engine) -> None:
    trace = load((0, 90, 50), (1, 90, 50), (2, 90, 50), (3000, 10, 1), (3001, 10, 1))
    fleet = FleetSim(trace, setup(pool(engine(max_sequences=1), 2), routing=Routing.KV_AWARE))
    fleet.run_until(2000)
    # Request 2 waits behind request 0, and nobody has looked yet: each counts what it was sent.
    assert [m.live for m in fleet.members()] == [2, 1]
    fleet.sample()
    fleet.run_until(4000)
    assert fleet.outcomes().member.tolist() == [0, 1, 0, 1, 0]  # 1060 to 60; then 1060 to 1060 and the turn is 4


def test_remote_pool_is_shared_across_replicas_and_outlives_them(engine: Engine) -> None:
    cache = CacheSetup(hash_block_tokens=32, remote_blocks=4, remote_load_ps_per_token=1)
    trace = hashed(load((0, 70, 1), (50_000, 70, 1)), 32, (1, 2), (1, 2))
    fleet = FleetSim(trace, setup(pool(engine(token_budget=128), 2, cache=cache)))
    fleet.run_until(40_000)
    fleet.crash(0)
    fleet.run_until(FAR_PS)
    outcomes = fleet.outcomes()
    assert outcomes.member.tolist() == [0, 1]
    assert outcomes.first_ps.tolist() == [50 + 7537, 50_050 + 110 + 6 + 1206 + 7 + 64]


def test_cpu_memory_dies_with_its_replica(engine: Engine) -> None:
    cache = CacheSetup(hash_block_tokens=32, cpu_blocks=4)
    trace = hashed(load((0, 70, 1), (50_000, 70, 1)), 32, (1, 2), (1, 2))
    fleet = FleetSim(trace, setup(pool(engine(token_budget=128), 2, cache=cache)))
    fleet.run_until(40_000)
    fleet.crash(0)
    fleet.run_until(FAR_PS)
    assert fleet.outcomes().first_ps.tolist() == [50 + 7537, 50_050 + 7537]


def test_known_hits_of_a_trace_count_without_a_cache(engine: Engine) -> None:
    trace = load((0, 10, 1), (50_000, 10, 1), reusable_tokens=(0, 9))
    fleet = FleetSim(trace, setup(pool(engine())))
    fleet.run_until(FAR_PS)
    # One token after nine: 110 + 1 + 3 * (2 * 9 + 1) // 2 + 7.
    assert fleet.outcomes().first_ps.tolist() == [327, 50_050 + 146]


def test_pools_of_unlike_engines_serve_one_load(engine: Engine) -> None:
    slow = engine(step_base_ps=1000)
    fleet = FleetSim(load((0, 10, 1), (0, 10, 1)), setup(pool(engine()), pool(slow)))
    fleet.run_until(FAR_PS)
    assert fleet.outcomes().ended_ps.tolist() == [327, 1227]


def test_arrivals_are_sorted_stably_and_checked() -> None:
    late, early, twin = (Arrival(at_s=t, prompt_tokens=p, output_tokens=1) for t, p in ((2.0, 1), (1.0, 2), (2.0, 3)))
    assert in_order([late, early, twin]) == (early, late, twin)
    for bad in ({"at_s": -1.0}, {"at_s": float("nan")}, {"prompt_tokens": 0}, {"output_tokens": 0}):
        fields = {"at_s": 1.0, "prompt_tokens": 1, "output_tokens": 1} | bad
        with pytest.raises(ValueError, match="arrival 0: at_s must be finite and >= 0"):
            in_order([Arrival(**fields)])


def test_outcomes_of_an_empty_load_are_empty(engine: Engine) -> None:
    fleet = FleetSim(NOTHING, setup(pool(engine())))
    assert fleet.idle
    assert all(len(c) == 0 for c in (fleet.outcomes().first_ps, fleet.outcomes().ended_ps))
    assert fleet.sample().arrived == 0
    assert np.array_equal(fleet.sample().live, [0])
