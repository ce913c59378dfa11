"""What holds of any load on any fleet: requests are conserved, memory comes back, two runs are equal."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sim.worlds import FAR_PS, LINK, Engine, hashed, load, pool, setup

from tidegate.sim.fleet import FleetSim
from tidegate.sim.setup import CacheSetup, FleetSetup, Routing
from tidegate.sim.trace import Trace
from tidegate.terms.fleet import Role

Rows = list[tuple[int, int, int, int]]
Moves = list[tuple[int, str, int, int]]

rows = st.lists(
    st.tuples(st.integers(0, 20_000), st.integers(1, 140), st.integers(1, 30), st.integers(0, 8)), max_size=25
)
moves = st.lists(
    st.tuples(
        st.integers(0, 30_000),
        st.sampled_from(["scale", "drain", "crash", "look"]),
        st.integers(0, 3),
        st.integers(0, 6),
    ),
    max_size=6,
)


def trace_of_rows(given_rows: Rows) -> Trace:
    """Return requests that share the beginning of their prompts."""
    ordered = sorted(given_rows)
    plain = load(*[row[:3] for row in ordered])
    own = [[k if k < row[3] else 1000 * i + 1000 + k for k in range(row[1] // 16)] for i, row in enumerate(ordered)]
    return hashed(plain, 16, *own)


def fleet_of(engine: Engine, shape: str, routing: Routing) -> FleetSetup:
    small, large = engine(kv_capacity_tokens=200, max_sequences=3), engine(kv_capacity_tokens=320, token_budget=40)
    cache = CacheSetup(
        hash_block_tokens=16,
        cpu_blocks=3,
        cpu_load_ps_per_token=1,
        remote_blocks=5,
        load_base_ps=9,
        store_ps_per_token=2,
    )
    if shape == "apart":
        pools = (pool(small, 2, role=Role.PREFILL, cache=cache), pool(large, 2, role=Role.DECODE))
    else:
        pools = (pool(small, 2, cache=cache), pool(large, 1, weight=2, longest_prompt_tokens=90))
    return setup(*pools, routing=routing, link=LINK, ttft_bounds_ps=(1000,), e2e_bounds_ps=(5000,))


def play(fleet: FleetSim, script: Moves) -> FleetSim:
    for at_ps, what, number, asked in sorted(script):
        fleet.run_until(at_ps)
        here = [m.index for m in fleet.members()]
        if what == "scale":
            fleet.scale_to(number % 2, asked)
        elif what == "drain" and here:
            fleet.drain(here[number % len(here)])
        elif what == "crash" and here:
            fleet.crash(here[number % len(here)])
        sample = fleet.sample()
        assert sample.in_flight == sample.live.sum()
        assert sample.arrived == sample.answered + sample.refused + sample.lost + sample.in_flight
    fleet.run_until(FAR_PS)
    return fleet


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=rows, script=moves, shape=st.sampled_from(["together", "apart"]), routing=st.sampled_from(list(Routing)))
def test_every_request_ends_once_and_memory_comes_back(
    engine: Engine, rows: Rows, script: Moves, shape: str, routing: Routing
) -> None:
    trace = trace_of_rows(rows)
    fleet = play(FleetSim(trace, fleet_of(engine, shape, routing)), script)
    sample, outcomes = fleet.sample(), fleet.outcomes()

    assert fleet.idle
    assert (sample.answered + sample.refused + sample.lost, sample.in_flight) == (len(rows), 0)
    assert sample.answered == (outcomes.ended_ps >= 0).sum()
    assert (sample.pending_prompt_tokens, sample.kv_used_blocks.sum(), sample.context_tokens.sum()) == (0, 0, 0)
    assert sample.ttft_counts.sum() == (outcomes.first_ps >= 0).sum()
    assert sample.e2e_counts.sum() == sample.answered
    answered = outcomes.ended_ps >= 0
    assert (outcomes.first_ps[answered] > trace.arrival_ps[answered]).all()
    assert (outcomes.ended_ps[answered] >= outcomes.first_ps[answered]).all()
    assert all(m.draining_since_ps is None for m in fleet.members())  # whoever drains has ended

    again = play(FleetSim(trace, fleet_of(engine, shape, routing)), script)
    assert again.events() == fleet.events()
    for column in ("first_ps", "ended_ps", "member"):
        assert getattr(again.outcomes(), column).tolist() == getattr(outcomes, column).tolist()


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=rows, looks=st.lists(st.integers(0, 30_000), max_size=8), routing=st.sampled_from(list(Routing)))
def test_stopping_on_the_way_changes_nothing(engine: Engine, rows: Rows, looks: list[int], routing: Routing) -> None:
    trace = trace_of_rows(rows)
    through, halting = (FleetSim(trace, fleet_of(engine, "together", routing)) for _ in range(2))
    for at_ps in sorted(looks):
        halting.run_until(at_ps)
        halting.members()
    for fleet in (through, halting):
        fleet.run_until(FAR_PS)
    assert through.outcomes().ended_ps.tolist() == halting.outcomes().ended_ps.tolist()
