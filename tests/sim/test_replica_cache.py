"""The replica with a prefix cache: hits, eviction, tiers and preemption, against schedules made by hand.

A step of N tokens, K KV tokens, 2A double pairs and S sequences takes 110 + N + 2K + 3 * 2A / 2 + 7S picoseconds.
"""

from collections import Counter
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegate.perf.profile import EngineProfile
from tidegate.sim.events import SimRequest, Step
from tidegate.sim.kvtier import KvTier
from tidegate.sim.replica import ReplicaSim
from tidegate.sim.setup import CacheSetup

Engine = Callable[..., EngineProfile]
FOREVER_PS = 1 << 80
HBM_ONLY = CacheSetup(hash_block_tokens=32)
TIERED = CacheSetup(
    hash_block_tokens=32,
    cpu_blocks=8,
    cpu_load_ps_per_token=2,
    remote_blocks=8,
    remote_load_ps_per_token=5,
    load_base_ps=40,
    store_ps_per_token=3,
)


def request(key: int, prompt: int, output: int, *hashes: int) -> SimRequest:
    return SimRequest(key=key, prompt_tokens=prompt, output_tokens=output, hashes=hashes)


def replica(profile: EngineProfile, cache: CacheSetup = HBM_ONLY, remote: KvTier | None = None) -> ReplicaSim:
    return ReplicaSim(profile, cache=cache, remote=remote)


def alone(sim: ReplicaSim, asked: SimRequest, at_ps: int) -> list[Step]:
    sim.submit(asked, at_ps)
    return sim.step_until(FOREVER_PS)


def length_ps(step: Step) -> int:
    return step.ended_at_ps - step.began_at_ps


def test_hit_saves_its_compute_and_shares_its_blocks(engine: Engine) -> None:
    sim = replica(engine(token_budget=128))
    sim.submit(request(1, 70, 20, 1, 2), 0)
    sim.step_until(50)
    assert sim.kv_used_blocks == 5  # 71 tokens, four of the blocks shareable from now on
    sim.submit(request(2, 70, 20, 1, 2), 100)
    first, second = sim.step_until(7587)[0], sim.step_until(9066)[0]

    assert length_ps(first) == 110 + 70 + 3 * 70 * 70 // 2 + 7
    # Beside a decode over 71 tokens, the six that are not in the cache, after 64 that are.
    assert (second.decode_tokens, second.prefill_tokens, second.admitted) == (1, 6, (2,))
    assert length_ps(second) == 110 + 7 + 2 * 71 + 3 * 6 * (2 * 64 + 6) // 2 + 2 * 7
    assert sim.kv_used_blocks == 6
    assert (sim.hit_tokens, sim.looked_up_tokens) == (64, 140)


def test_block_computed_twice_stays_private(engine: Engine) -> None:
    sim = replica(engine(token_budget=128))
    for key in (1, 2):
        # The second block ends with the last prompt token, which is never a hit: each computes it.
        sim.submit(request(key, 64, 9, 1, 2), 0)
    sim.step_until(50)

    assert sim.kv_used_blocks == 4 + 1 + 3  # both shared ones, a block ahead, and the copy with a block ahead
    assert sim.cache is not None
    assert sim.cache.resident == {1: 2, 2: 1}
    assert sim.step_until(FOREVER_PS)[0].prefill_tokens == 64 + 32
    assert (sim.kv_used_blocks, sim.cache.unused) == (0, (2, 1))


def test_admission_forgets_the_oldest_cached_blocks_and_no_more_than_needed(engine: Engine) -> None:
    sim = replica(engine(kv_capacity_tokens=112))  # 7 blocks
    alone(sim, request(1, 64, 1, 1, 2), 0)
    assert sim.cache is not None
    before = sim.cache.unused
    alone(sim, request(2, 70, 1), 100_000)  # 5 blocks, 3 are free

    assert (before, sim.cache.unused) == ((2, 1), (1,))


def test_admission_does_not_count_its_own_hits_as_memory_to_be_had(engine: Engine) -> None:
    sim = replica(engine(kv_capacity_tokens=112, token_budget=128))
    alone(sim, request(1, 65, 1, 1, 2), 0)
    sim.submit(request(2, 33, 40), 100_000)  # takes the 3 blocks that are free, and later a cached one's two
    sim.submit(request(3, 79, 2, 1, 2), 100_001)  # needs a fifth block besides the four it would find
    steps = sim.step_until(FOREVER_PS)

    third = next(s for s in steps if 3 in s.admitted)
    assert third.began_at_ps == next(s for s in steps if 2 in s.finished).ended_at_ps
    assert (third.prefill_tokens, sim.hit_tokens) == (79 - 32, 32)


def test_last_token_of_a_wholly_cached_prompt_is_computed(engine: Engine) -> None:
    sim = replica(engine())
    alone(sim, request(1, 64, 1, 1, 2), 0)
    assert alone(sim, request(2, 64, 1, 1, 2), 100_000)[0].prefill_tokens == 32
    assert alone(sim, request(3, 65, 1, 1, 2), 200_000)[0].prefill_tokens == 1


def test_chunked_prompt_is_shared_once_it_is_whole(engine: Engine) -> None:
    sim = replica(engine(token_budget=40))
    sim.submit(request(1, 70, 1, 1, 2), 0)
    sim.step_until(50)
    assert sim.cache is not None
    assert sim.cache.resident == {}
    sim.step_until(3000)
    assert sim.cache.resident == {1: 1, 2: 1}


def test_preempted_sequence_finds_its_prompt_again(engine: Engine) -> None:
    # Six blocks. Both prompts outgrow three blocks at once; the older takes the newer one's.
    sim = replica(engine(kv_capacity_tokens=96, max_context_tokens=96), CacheSetup(hash_block_tokens=16))
    sim.submit(request(1, 17, 40, 1), 0)
    sim.submit(request(2, 17, 40, 2), 0)
    steps = sim.step_until(FOREVER_PS)

    (preempting,) = [s for s in steps if s.preempted]
    back = next(s for s in steps if s.began_at_ps > preempting.began_at_ps and 2 in s.admitted)
    # 48 tokens were held and 32 generated: 49 to hold, 16 of them still in the cache.
    assert (preempting.preempted, back.prefill_tokens) == ((2,), 49 - 16)
    assert (sim.hit_tokens, sim.looked_up_tokens, sim.preemptions) == (16, 3 * 17, 1)
    assert Counter(k for s in steps for k in s.emitted) == {1: 40, 2: 40}


def test_decode_forgets_cached_blocks_before_it_preempts(engine: Engine) -> None:
    sim = replica(engine(kv_capacity_tokens=96, max_context_tokens=96), CacheSetup(hash_block_tokens=16))
    alone(sim, request(1, 33, 1, 1, 2), 0)
    steps = alone(sim, request(2, 17, 70, 9), 100_000)  # 87 tokens: all six blocks

    assert sim.preemptions == 0
    assert len(steps) == 70
    assert sim.cache is not None
    assert sim.cache.unused == (9,)


def test_store_makes_a_new_prompt_slower_and_a_known_one_not(engine: Engine) -> None:
    plain = alone(replica(engine(token_budget=128)), request(1, 70, 1, 1, 2), 0)
    sim = replica(engine(token_budget=128), TIERED, KvTier(8))
    (first,) = alone(sim, request(1, 70, 1, 1, 2), 0)
    (again,) = alone(sim, request(2, 70, 1, 1, 2), 100_000)

    assert length_ps(first) == length_ps(plain[0]) + 64 * 3
    assert (first.stored_tokens, again.stored_tokens) == (64, 0)
    assert length_ps(again) == 110 + 6 + 3 * 6 * (2 * 64 + 6) // 2 + 7  # from HBM: nothing to load


def test_loading_from_the_shared_pool_takes_less_time_than_computing(engine: Engine) -> None:
    pool = KvTier(8)
    (computed,) = alone(replica(engine(token_budget=128), TIERED, pool), request(1, 70, 1, 1, 2), 0)
    sim = replica(engine(token_budget=128), TIERED, pool)
    (loaded,) = alone(sim, request(2, 70, 1, 1, 2), 0)

    assert (loaded.prefill_tokens, loaded.loaded_tokens) == (6, 64)
    # Load once and per token; then both blocks are new to this replica's CPU memory.
    assert length_ps(loaded) == 110 + 6 + 3 * 6 * (2 * 64 + 6) // 2 + 7 + (40 + 64 * 5) + 64 * 3
    assert length_ps(loaded) < length_ps(computed)
    assert sim.hit_tokens == 0  # the engine's own counter knows HBM alone
    assert sim.kv_used_blocks == 0


def test_what_memory_forgot_is_loaded_from_below(engine: Engine) -> None:
    sim = replica(engine(kv_capacity_tokens=96, token_budget=128), TIERED, KvTier(8))
    alone(sim, request(1, 70, 1, 1, 2), 0)
    alone(sim, request(2, 80, 1), 100_000)  # all six blocks
    assert sim.cache is not None
    assert sim.cache.resident == {}
    (step,) = alone(sim, request(3, 70, 1, 1, 2), 200_000)

    assert length_ps(step) == 110 + 6 + 1206 + 7 + (40 + 64 * 2)  # CPU is nearer than the pool; nothing new to store
    assert sim.cache.resident == {1: 0, 2: 0}


def test_known_hits_count_without_a_cache_and_hashes_with_one(engine: Engine) -> None:
    asked = SimRequest(key=1, prompt_tokens=50, output_tokens=1, cached_tokens=48, hashes=(1,))
    assert alone(ReplicaSim(engine()), asked, 0)[0].prefill_tokens == 2
    sim = replica(engine())
    assert alone(sim, asked, 0)[0].prefill_tokens == 50
    assert alone(sim, asked, 100_000)[0].prefill_tokens == 18


def test_abort_gives_back_shared_and_private_blocks(engine: Engine) -> None:
    sim = replica(engine(token_budget=128))
    sim.submit(request(1, 70, 20, 1, 2), 0)
    sim.step_until(50)
    sim.abort(1)
    assert sim.cache is not None
    assert (sim.kv_used_blocks, sim.cache.resident) == (0, {1: 0, 2: 0})


def test_front_end_takes_longer_the_more_requests_are_live(engine: Engine) -> None:
    sim = ReplicaSim(engine(front_end_ps_per_live=10))
    sim.submit(request(1, 10, 1), 0)
    sim.submit(request(2, 10, 1), 0)
    assert [(sim.waiting(t)) for t in (49, 50, 59, 60)] == [0, 1, 1, 2]


families = st.lists(
    st.tuples(st.integers(0, 20_000), st.integers(1, 150), st.integers(1, 40), st.integers(0, 2), st.integers(0, 9)),
    min_size=1,
    max_size=20,
)
shapes = st.fixed_dictionaries(
    {
        "kv_capacity_tokens": st.integers(64, 500),
        "token_budget": st.integers(8, 128),
        "max_sequences": st.integers(1, 8),
        "block_tokens": st.sampled_from([4, 16]),
    }
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(load=families, shape=shapes, cpu=st.integers(0, 6), pace=st.integers(7, 5000))
def test_replica_with_a_cache_makes_every_token_and_loses_no_block(
    engine: Engine, load: list[tuple[int, int, int, int, int]], shape: dict[str, int], cpu: int, pace: int
) -> None:
    profile = engine(**shape)
    setup = CacheSetup(hash_block_tokens=16, cpu_blocks=cpu, cpu_load_ps_per_token=1, store_ps_per_token=1)
    asked = [
        # A common beginning of `depth` blocks per family, then blocks of its own.
        request(key, p, o, *(100 * family + k if k < depth else 10_000 + 100 * key + k for k in range(-(-p // 16))))
        for key, (_, p, o, family, depth) in enumerate(load)
    ]
    sim, paced = replica(profile, setup), replica(profile, setup)
    taken = [r.key for r in asked if sim.submit(r, load[r.key][0]) and paced.submit(r, load[r.key][0])]
    made: Counter[int] = Counter()
    steps: list[Step] = []
    while (next_ps := sim.next_at_ps()) is not None:
        steps += sim.step_until(next_ps)
        assert sim.cache is not None
        shared = sim.cache.engine_blocks * sum(1 for n in sim.cache.resident.values() if n)
        assert shared <= sim.kv_used_blocks <= profile.kv_blocks
    for step in steps:
        made.update(step.emitted)
    assert made == {key: asked[key].output_tokens for key in taken}
    assert sim.cache is not None
    assert sim.kv_used_blocks == 0
    assert set(sim.cache.unused) == set(sim.cache.resident)
    now_ps, seen = 0, []
    while paced.next_at_ps() is not None:
        seen += paced.step_until(now_ps)
        now_ps += pace
    assert seen == steps
