"""The prefix cache by itself: what it finds, in which order it forgets, what goes to the tiers."""

import pytest

from tidegate.sim.kvtier import KvTier
from tidegate.sim.prefix import PrefixCache
from tidegate.sim.setup import CacheSetup

SETUP = CacheSetup(
    hash_block_tokens=32,
    cpu_blocks=2,
    cpu_load_ps_per_token=2,
    remote_blocks=4,
    remote_load_ps_per_token=5,
    load_base_ps=40,
    store_ps_per_token=3,
)


def cache(remote: KvTier | None = None, setup: CacheSetup = SETUP) -> PrefixCache:
    return PrefixCache(setup, block_tokens=16, remote=remote)


def filled(*hashes: int) -> PrefixCache:
    one = cache()
    one.release(one.enrol(hashes, 32 * len(hashes), 0))
    return one


def test_cache_finds_the_leading_blocks_only() -> None:
    one = filled(1, 2, 3)
    assert one.hits((1, 2, 9, 3), 200) == (2, 2)
    assert one.hits((2, 3), 200) == (2, 2)
    assert one.hits((9, 1), 200) == (0, 0)


@pytest.mark.parametrize(("prompt", "found"), [(32, 0), (33, 1), (64, 1), (65, 2), (96, 2), (97, 3)])
def test_cache_never_finds_the_block_of_the_last_prompt_token(prompt: int, found: int) -> None:
    assert filled(1, 2, 3).hits((1, 2, 3), prompt)[0] == found


def test_cache_enrols_whole_blocks_of_the_prompt_only() -> None:
    one = cache()
    assert one.enrol((1, 2, 3), 95, 0) == [1, 2]
    assert one.resident == {1: 1, 2: 1}


def test_cache_keeps_referenced_blocks_out_of_the_order() -> None:
    one = filled(1, 2)
    one.refer((1,))
    assert one.hits((1, 2), 100) == (2, 1)
    assert (one.unused, one.unused_engine_blocks) == ((2,), 2)


def test_cache_forgets_the_end_of_a_prompt_before_its_beginning() -> None:
    one = filled(1, 2, 3)
    assert one.unused == (3, 2, 1)
    assert one.forget_oldest() == 2
    assert one.resident == {1: 0, 2: 0}


def test_cache_forgets_what_was_released_longest_ago() -> None:
    one = filled(1, 2)
    one.release(one.enrol((5,), 32, 0))
    one.refer((1,))
    one.release((1,))
    assert one.unused == (2, 5, 1)


def test_cache_leaves_a_block_shared_until_the_last_lets_go() -> None:
    one = filled(1)
    one.refer((1,))
    one.refer((1,))
    one.release((1,))
    assert (one.resident, one.unused) == ({1: 1}, ())
    one.release((1,))
    assert (one.resident, one.unused) == ({1: 0}, (1,))


def test_cache_does_not_take_a_second_copy_of_a_block() -> None:
    one = cache()
    one.enrol((1, 2), 64, 0)
    assert one.enrol((1, 2), 64, 1) == []
    assert one.resident == {1: 1, 2: 1}


def test_cache_loads_from_the_nearest_tier_and_stops_at_the_first_gap() -> None:
    remote = KvTier(4)
    one = cache(remote)
    one.store((1, 2, 3), 96)  # CPU holds two: 2 and 3
    remote.keep(4)
    # 1 from the remote pool, 2 and 3 from CPU, 4 from the pool, 5 nowhere, 6 is not looked for.
    assert one.load((1, 2, 3, 4, 5, 6), 200, 0) == (128, 40 + 32 * (5 + 2 + 2 + 5))
    assert one.load((1, 2, 3, 4), 200, 3) == (32, 40 + 32 * 5)
    assert one.load((5, 1), 200, 0) == (0, 0)
    assert one.load((2,), 32, 0) == (0, 0)  # the block of the last token


def test_cache_makes_what_it_loads_most_recent_in_the_tier_it_came_from_alone() -> None:
    remote = KvTier(4)
    one = cache(remote)
    one.store((1, 2), 64)
    one.load((1,), 200, 0)  # found in CPU: the pool is not asked
    assert remote.kept == (1, 2)
    one.store((3,), 32)
    assert one.load((1,), 200, 0) == (32, 40 + 32 * 2)
    assert one.load((2,), 200, 0) == (32, 40 + 32 * 5)


def test_cache_pays_once_for_a_block_new_to_any_tier() -> None:
    remote = KvTier(4)
    one, other = cache(remote), cache(remote)
    assert one.store((1, 2), 70) == 64
    assert one.store((1, 2), 70) == 0
    assert other.store((1, 2), 70) == 64  # its own CPU memory had them not
    assert one.store_ps(64) == 192


def test_cache_without_tiers_stores_nothing() -> None:
    assert cache(setup=CacheSetup(hash_block_tokens=32, store_ps_per_token=9)).store((1, 2), 64) == 0


@pytest.mark.parametrize(
    ("setup", "text"),
    [
        (CacheSetup(hash_block_tokens=24), "cache.hash_block_tokens must be a multiple of the engine's block of 16"),
        (CacheSetup(hash_block_tokens=0), "cache.hash_block_tokens must be a multiple"),
        (CacheSetup(hash_block_tokens=16, cpu_blocks=-1), "cache.cpu_blocks must be >= 0, got -1"),
    ],
)
def test_cache_refuses_sizes_that_make_no_sense(setup: CacheSetup, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        cache(setup=setup)
