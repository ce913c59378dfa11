"""Each routing rule on cases made by hand."""

import itertools
from collections.abc import Sequence

import pytest
from tests.sim.worlds import Engine, hashed, load, pool, setup

from tidegate.sim.events import SimRequest
from tidegate.sim.members import Member
from tidegate.sim.replica import ReplicaSim
from tidegate.sim.routing import Router, least_request, splitmix64
from tidegate.sim.setup import Routing
from tidegate.sim.trace import Trace
from tidegate.terms.fleet import ReplicaState

PLAIN = load(*[(0, 10, 1)] * 64)
GOLDEN = 0x9E3779B97F4A7C15


def crew(engine: Engine, *lives: int, pools: Sequence[int] = ()) -> list[Member]:
    """Return ready members with so many requests each."""
    members = []
    for index, live in enumerate(lives):
        sim = ReplicaSim(engine())
        for key in range(live):
            sim.submit(SimRequest(key=key, prompt_tokens=1, output_tokens=1), 0)
        members.append(
            Member(index=index, pool=pools[index] if pools else 0, engine=sim, state=ReplicaState.READY, ordered_ps=0)
        )
    return members


def router(engine: Engine, rule: Routing, trace: Trace = PLAIN, seed: int = 0) -> Router:
    return Router(trace, setup(pool(engine()), routing=rule, seed=seed))


def test_splitmix64_gives_its_published_numbers() -> None:
    assert splitmix64(0) == 0xE220A8397B1DCDAF
    assert splitmix64(1234567) == 6457827717110365317
    assert splitmix64(1 << 64) == splitmix64(0)


def test_least_request_takes_the_emptiest_and_rotates_among_equals(engine: Engine) -> None:
    assert least_request([3, 1, 2], turn=0) == 1
    assert [least_request([0, 0, 0], turn=t) for t in range(4)] == [0, 1, 2, 0]
    assert least_request([0, 1, 0], turn=1) == 2
    one = router(engine, Routing.LEAST_REQUEST)
    assert [one.pick(t, crew(engine, 1, 0, 0)).index for t in range(4)] == [1, 1, 2, 1]


def test_random_depends_on_request_and_seed_alone(engine: Engine) -> None:
    members = crew(engine, 5, 0, 0)
    picks = [router(engine, Routing.RANDOM, seed=3).pick(r, members).index for r in range(64)]
    assert picks == [splitmix64(3 ^ (r * GOLDEN % 2**64)) % 3 for r in range(64)]
    assert min(picks.count(i) for i in range(3)) > 10
    assert picks != [router(engine, Routing.RANDOM, seed=4).pick(r, members).index for r in range(64)]


def test_round_robin_counts_what_it_routed(engine: Engine) -> None:
    one = router(engine, Routing.ROUND_ROBIN)
    picks = [one.pick(request, crew(engine, 9, 0, 0)).index for request in (7, 8, 9)]
    assert picks == [0, 1, 2]
    assert one.pick(8, crew(engine, 0, 0)).index == 1  # the fourth, of two


def test_weighted_takes_the_fewest_requests_per_weight(engine: Engine) -> None:
    fleet = setup(pool(engine(), weight=1), pool(engine(), weight=3), routing=Routing.WEIGHTED)
    one = Router(PLAIN, fleet)
    for lives, turn, picked in (
        ((0, 0), 0, 0),
        ((0, 0), 1, 1),
        ((1, 0), 0, 1),
        ((1, 2), 0, 1),
        ((1, 3), 0, 0),
        ((1, 4), 0, 0),
    ):
        assert one.pick(turn, crew(engine, *lives, pools=(0, 1))).index == picked, lives


def test_prefix_hash_sends_equal_prefixes_to_one_replica(engine: Engine) -> None:
    trace = load(*[(0, 10, 1)] * 40, prefix_id=[i % 20 for i in range(40)])
    one = router(engine, Routing.PREFIX_HASH, trace)
    members = crew(engine, 0, 0, 0, 0)
    picks = [one.pick(r, members).index for r in range(40)]
    assert picks[:20] == picks[20:]
    assert set(picks) == {0, 1, 2, 3}
    weights = [splitmix64(7 ^ (i * GOLDEN % 2**64)) for i in range(4)]
    assert picks[7] == weights.index(max(weights))


def test_prefix_hash_moves_only_the_prefixes_of_a_replica_that_is_gone(engine: Engine) -> None:
    trace = load(*[(0, 10, 1)] * 40, prefix_id=list(range(40)))
    one = router(engine, Routing.PREFIX_HASH, trace)
    members = crew(engine, 0, 0, 0, 0)
    before = [one.pick(r, members).index for r in range(40)]
    after = [one.pick(r, [m for m in members if m.index != 2]).index for r in range(40)]
    assert [a for a, b in zip(after, before, strict=True) if b != 2] == [b for b in before if b != 2]
    assert 2 in before


def test_prefix_hash_passes_over_a_replica_with_more_than_its_bound(engine: Engine) -> None:
    trace = load(*[(0, 10, 1)] * 2, prefix_id=[5, 5])
    one = router(engine, Routing.PREFIX_HASH, trace)
    home = one.pick(0, crew(engine, 0, 0)).index

    def picked(live: int) -> int:
        lives = [0, 0]
        lives[home] = live
        return one.pick(1, crew(engine, *lives)).index

    # 4 * live * 2 <= 5 * (live + 1) holds up to 1.
    assert [picked(live) == home for live in (0, 1, 2, 3)] == [True, True, False, False]


def test_prefix_hash_takes_the_first_block_or_else_the_request_for_a_prefix(engine: Engine) -> None:
    members = crew(engine, 0, 0, 0, 0)
    trace = hashed(load(*[(0, 40, 1)] * 3), 16, (77, 1), (77, 2), ())
    one = router(engine, Routing.PREFIX_HASH, trace)

    def home(key: int) -> int:
        return max(range(4), key=lambda i: splitmix64(key ^ (i * GOLDEN % 2**64)))

    assert [one.pick(r, members).index for r in range(3)] == [home(77), home(77), home(2)]


def test_kv_aware_adds_what_was_sent_to_what_was_last_seen(engine: Engine) -> None:
    one = router(engine, Routing.KV_AWARE)
    members = crew(engine, 9, 9, 9)  # requests in flight do not enter
    first, second, third = members
    first.sampled_waiting = 2
    second.sent_since_sample = 1
    second.sampled_kv_used_blocks = 50  # of 100
    third.sampled_kv_used_blocks = 99
    assert one.pick(0, members) is third  # 2000, 1500, 990
    third.sent_since_sample = 1
    assert one.pick(0, members) is second  # 2000, 1500, 1990
    second.sent_since_sample = third.sent_since_sample = 2
    assert one.pick(0, members) is first


def test_length_split_takes_the_pool_with_the_least_sufficient_length(engine: Engine) -> None:
    fleet = setup(
        pool(engine(), longest_prompt_tokens=100),
        pool(engine(), longest_prompt_tokens=500),
        pool(engine()),
        routing=Routing.LENGTH_SPLIT,
    )
    one = Router(load((0, 100, 1), (0, 101, 1), (0, 501, 1)), fleet)
    members = crew(engine, 9, 9, 9, 8, pools=(0, 1, 2, 1))
    assert [one.pick(r, members).index for r in range(3)] == [0, 3, 2]
    without = [members[0], members[2]]
    assert one.pick(1, without).index == 2  # the right pool has none ready: the emptiest, ties by turn
    assert one.pick(0, [members[2]]).index == 2


def test_length_split_uses_everyone_for_a_prompt_too_long_for_all(engine: Engine) -> None:
    fleet = setup(
        pool(engine(), longest_prompt_tokens=100),
        pool(engine(), longest_prompt_tokens=200),
        routing=Routing.LENGTH_SPLIT,
    )
    assert Router(load((0, 900, 1)), fleet).pick(0, crew(engine, 0, 1, pools=(0, 1))).index == 0


@pytest.mark.parametrize("rule", list(Routing))
def test_every_rule_takes_the_only_candidate(engine: Engine, rule: Routing) -> None:
    one = router(engine, rule)
    for request, live in itertools.product(range(3), (0, 5)):
        (member,) = crew(engine, live)
        assert one.pick(request, [member]) is member
