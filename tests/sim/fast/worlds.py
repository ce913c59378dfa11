"""Small random fleets, loads and courses of events, and the comparison of two simulators on them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from hypothesis import strategies as st

from tidegate.perf.profile import PS_PER_S, EngineProfile
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.fast.fleet import FastFleet
from tidegate.sim.fleet import FleetSim
from tidegate.sim.fleet_protocol import Fleet
from tidegate.sim.setup import CacheSetup, FleetSetup, KvLink, PoolSetup, Routing
from tidegate.sim.trace import Trace
from tidegate.terms.fleet import PoolKey, ReplicaState, Role

MS = PS_PER_S // 1000
BOUNDS_PS = (20 * MS, 45 * MS, 80 * MS, 200 * MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """Something done to a fleet `after_ps` after the one before."""

    after_ps: int
    kind: str  # "sample", "scale", "drain", "crash"
    pool: int = 0
    number: int = 0  # replicas asked for, or which of the living is meant


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A fleet, its load, and what is done to it."""

    trace: Trace
    setup: FleetSetup
    deeds: tuple[Deed, ...]


@st.composite
def profiles(draw: st.DrawFn, *, block_tokens: list[int]) -> EngineProfile:
    """Draw an engine so small that a few requests fill it."""
    sequences = draw(st.sampled_from([9, 4, 2, 1]))
    return EngineProfile(
        name="small",
        model="m",
        accelerator="a",
        engine="vllm",
        engine_version="1",
        tensor_parallel=1,
        source="invented",
        dated="2026-01-01",
        step_base_ps=draw(st.sampled_from([1, 7 * MS])),
        weight_read_ps=4_726_310_123,
        compute_ps_per_token=54_998_901,
        smooth_max_power=2.0,
        compute_factor_ratio=1.0,
        kv_read_ps_per_token=draw(st.sampled_from([0, 82_701, 9_000_001])),
        attention_ps_per_pair=3_073,
        host_fixed_ps=0,
        host_ps_per_sequence=50_000_003,
        front_end_ps=draw(st.sampled_from([0, 12 * MS])),
        front_end_ps_per_live=draw(st.sampled_from([0, 3 * MS])),
        kv_capacity_tokens=draw(st.sampled_from([24, 64, 100, 150, 2000])),
        block_tokens=draw(st.sampled_from(block_tokens)),
        token_budget=max(sequences, draw(st.sampled_from([100, 20, 8, 1]))),
        max_sequences=sequences,
        max_context_tokens=draw(st.sampled_from([50, 1000])),
    )


@st.composite
def traces(draw: st.DrawFn, *, hash_tokens: int = 0, most: int = 60) -> Trace:
    """Draw a load; with `hash_tokens`, prompts of one family begin alike."""
    count = draw(st.integers(0, most))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    gap_ps = draw(st.sampled_from([1, 9 * MS, 60 * MS]))
    longest, most_output = draw(st.sampled_from([2, 12, 40])), draw(st.sampled_from([1, 3, 24]))
    gaps_ps = gap_ps * rng.integers(0, 5, count)
    prompts, outputs = rng.integers(1, longest + 1, count), rng.integers(1, most_output + 1, count)
    families, common = rng.integers(0, 3, count), rng.integers(0, 9, count)
    blocks: list[list[int]] = []
    for i in range(count if hash_tokens else 0):
        whole = int(prompts[i]) // hash_tokens
        shared = min(int(common[i]), whole)
        known = [1000 * int(families[i]) + k for k in range(shared)]
        blocks.append(known + [-7 - 1000 * i - k for k in range(shared, whole)])
    reusable = draw(st.booleans()) and not hash_tokens
    affinity = draw(st.booleans())
    return Trace(
        name="random",
        arrival_ps=np.cumsum(gaps_ps),
        prompt_tokens=prompts,
        output_tokens=outputs,
        hash_block_tokens=hash_tokens,
        hash_start=np.cumsum([0, *[len(b) for b in blocks]], dtype=np.int64) if hash_tokens else _none(),
        hashes=np.array([b for bs in blocks for b in bs], dtype=np.int64),
        reusable_tokens=3 * common if reusable else _none(),
        prefix_id=families if affinity else _none(),
    )


def _none() -> np.typing.NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64)


@st.composite
def _pools(draw: st.DrawFn, name: str, role: Role, cached_tokens: int) -> PoolSetup:
    profile = draw(profiles(block_tokens=[1, 2, 4] if cached_tokens else [1, 2, 3, 4]))
    cache = None
    if cached_tokens and (role is Role.PREFILL or draw(st.booleans())):
        tokens = cached_tokens
        cache = CacheSetup(
            hash_block_tokens=tokens,
            cpu_blocks=draw(st.sampled_from([0, 3, 50])),
            cpu_load_ps_per_token=11_001,
            remote_blocks=draw(st.sampled_from([0, 7])),
            remote_load_ps_per_token=70_003,
            load_base_ps=5_000_001,
            store_ps_per_token=40_007,
        )
    return PoolSetup(
        key=PoolKey(service="s", pool=name),
        role=role,
        profile=profile,
        cold_start=ColdStart(
            samples_s=tuple(draw(st.lists(st.sampled_from([0.0, 0.31, 2.0]), min_size=1, max_size=3)))
        ),
        initial=draw(st.sampled_from([1, 2, 3, 0])),
        cache=cache,
        weight=draw(st.integers(1, 3)),
        longest_prompt_tokens=draw(st.sampled_from([None, 5, 20])),
    )


@st.composite
def worlds(draw: st.DrawFn, *, disaggregated: bool = False, cached: bool = False) -> World:
    """Draw a fleet, its load, and what is done to it."""
    # A multiple of every block size an engine here may have.
    hash_tokens = draw(st.sampled_from([4, 12])) if cached else 0
    roles = [Role.PREFILL, Role.DECODE] if disaggregated else [Role.AGGREGATED]
    roles += draw(st.lists(st.sampled_from(roles), max_size=1))
    pools = tuple(
        draw(_pools(f"p{i}", role, hash_tokens if role is not Role.DECODE else 0)) for i, role in enumerate(roles)
    )
    setup = FleetSetup(
        pools=pools,
        routing=draw(st.sampled_from(list(Routing))),
        link=KvLink(
            name="rdma", base_ps=draw(st.sampled_from([0, 4 * MS])), ps_per_token=draw(st.sampled_from([0, MS]))
        )
        if disaggregated
        else None,
        seed=draw(st.sampled_from([0, 1, 2**63 + 5])),
        sweep_s=draw(st.sampled_from([0.001, 0.25])),
        crash_retries=draw(st.integers(0, 2)),
        ttft_bounds_ps=BOUNDS_PS,
        tpot_bounds_ps=BOUNDS_PS[:2],
        e2e_bounds_ps=(),
    )
    deeds = draw(
        st.lists(
            st.builds(
                Deed,
                after_ps=st.sampled_from([0, 1, 50 * MS]) | st.integers(0, 400 * MS),
                kind=st.sampled_from(["sample", "sample", "scale", "drain", "crash"]),
                pool=st.integers(0, len(pools) - 1),
                number=st.integers(0, 4),
            ),
            max_size=12,
        )
    )
    return World(trace=draw(traces(hash_tokens=hash_tokens)), setup=setup, deeds=tuple(deeds))


def do(fleet: Fleet, deed: Deed) -> None:
    """Do something to a fleet."""
    living = [m for m in fleet.members() if m.pool == deed.pool]
    fleet.run_until(fleet.now_ps + deed.after_ps)
    if deed.kind == "scale":
        fleet.scale_to(deed.pool, deed.number, [m.index for m in living[:1]])
    elif living and deed.kind == "drain":
        fleet.drain(living[deed.number % len(living)].index)
    elif living and deed.kind == "crash":
        fleet.crash(living[deed.number % len(living)].index)


def assert_same(plain: Fleet, fast: Fleet) -> None:
    """Fail unless two fleets show the same in every number."""
    assert fast.now_ps == plain.now_ps
    assert fast.idle == plain.idle
    assert fast.members() == plain.members()
    assert fast.events() == plain.events()
    _assert_columns_equal(plain.sample(), fast.sample())
    _assert_columns_equal(plain.outcomes(), fast.outcomes())
    for pool in range(len(plain.setup.pools)):
        assert fast.replica_ps(pool, plain.now_ps) == plain.replica_ps(pool, plain.now_ps)


def _assert_columns_equal(plain: object, fast: object) -> None:
    for field in fields(plain):  # type: ignore[arg-type]
        expected, got = getattr(plain, field.name), getattr(fast, field.name)
        if field.name != "trace":
            assert np.array_equal(expected, got), f"{field.name}: expected {expected}, got {got}"


def assert_same_course(world: World) -> FastFleet:
    """Run both simulators through a world and fail at the first difference; return the compiled one at the end."""
    plain, fast = FleetSim(world.trace, world.setup), FastFleet(world.trace, world.setup)
    for deed in world.deeds:
        do(plain, deed)
        do(fast, deed)
        assert_same(plain, fast)
    _finish((plain, fast))
    assert_same(plain, fast)
    return fast


def _finish(fleets: Sequence[Fleet]) -> None:
    """Let everything come to its end, with a replica in every pool."""
    for fleet in fleets:
        for pool in range(len(fleet.setup.pools)):
            states = [m.state for m in fleet.members() if m.pool == pool]
            if ReplicaState.READY not in states:
                fleet.scale_to(pool, len(states) + 1)
    for _ in range(40):
        for fleet in fleets:
            fleet.run_until(fleet.now_ps + PS_PER_S)
