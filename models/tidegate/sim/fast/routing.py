"""Which ready replica gets the next request; the rules of `sim/routing.py`."""

import numpy as np

from tidegate.sim.fast import pool, rep, req, tot
from tidegate.sim.fast.compiled import compiled, inlined
from tidegate.sim.fast.state import NEVER, READY, State, replica_at
from tidegate.sim.setup import Routing

RANDOM, ROUND_ROBIN, LEAST_REQUEST, PREFIX_HASH, KV_AWARE, WEIGHTED, LENGTH_SPLIT = range(7)
RULES = {
    Routing.RANDOM: RANDOM,
    Routing.ROUND_ROBIN: ROUND_ROBIN,
    Routing.LEAST_REQUEST: LEAST_REQUEST,
    Routing.PREFIX_HASH: PREFIX_HASH,
    Routing.KV_AWARE: KV_AWARE,
    Routing.WEIGHTED: WEIGHTED,
    Routing.LENGTH_SPLIT: LENGTH_SPLIT,
}


@compiled
def splitmix64(x: np.uint64) -> np.uint64:
    """Return a number that looks random, and is the same for the same `x`."""
    z = x + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def mixed(st: State, key: int, number: int) -> np.uint64:
    """Return a random-looking number for a key, a number and the fleet's seed."""
    spread = np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)
    return splitmix64(np.uint64(key) ^ spread ^ np.uint64(st.memory[tot.SEED]))


@inlined
def _signed(number: np.uint64) -> int:
    """Return a number that is small enough as one with a sign, so that nothing becomes a float."""
    return np.int64(number)  # type: ignore[return-value]


@inlined
def choose(st: State, request: int) -> int:
    """Return the slot that gets a request; there must be a ready one."""
    m = st.memory
    rule = m[tot.ROUTING]
    count = m[tot.READY]
    if rule == LEAST_REQUEST:
        place = least_request(st, READY, count, request)
    elif rule == ROUND_ROBIN:
        place = m[tot.ROUTED] % count
    elif rule == RANDOM:
        place = _signed(mixed(st, 0, request) % np.uint64(count))
    elif rule == PREFIX_HASH:
        place = _prefix_hash(st, request, count)
    elif rule == LENGTH_SPLIT:
        place = _length_split(st, request, count)
    else:
        place = _least_cost(st, request, count, rule)
    slot: int = st.board[READY * m[tot.SLOTS] + place]
    return slot


@compiled
def least_request(st: State, part: int, count: int, turn: int) -> int:
    """Return the place with the fewest requests in a list of slots; ties go to the first at or after `turn`."""
    b = st.board
    slots = part * st.memory[tot.SLOTS]
    place = turn % count
    best, least = place, NEVER
    for _ in range(count):
        live = b[b[slots + place]]
        if live < least:
            best, least = place, live
        place += 1
        if place == count:
            place = 0
    return best


@inlined
def _least_cost(st: State, turn: int, count: int, rule: int) -> int:
    """Return the place with the least queue and KV as last seen, or the fewest requests per weight."""
    m, b = st.memory, st.board
    place = turn % count
    best, least = place, NEVER
    for _ in range(count):
        slot = b[READY * m[tot.SLOTS] + place]
        r = replica_at(st, slot)
        p = m[r + rep.POOL]
        if rule == KV_AWARE:
            cost = 1000 * (m[r + rep.SEEN_WAITING] + m[r + rep.SENT])
            cost += 1000 * m[r + rep.SEEN_BLOCKS] // m[p + pool.BLOCKS]
        else:
            cost = b[slot] * 1_000_000 // m[p + pool.WEIGHT]
        if cost < least:
            best, least = place, cost
        place += 1
        if place == count:
            place = 0
    return best


@inlined
def _prefix_hash(st: State, request: int, count: int) -> int:
    """Return the place with the highest random weight for the prefix, of those not overloaded."""
    m, b = st.memory, st.board
    ready = READY * m[tot.SLOTS]
    key = st.requests[request * req.WIDTH + req.AFFINITY]
    total = 0
    for place in range(count):
        total += b[b[ready + place]]
    best, most = -1, np.uint64(0)
    for place in range(count):
        slot = b[ready + place]
        if 4 * b[slot] * count > 5 * (total + 1):
            continue
        weight = mixed(st, key, m[replica_at(st, slot) + rep.MEMBER])
        if best < 0 or weight > most:
            best, most = place, weight
    if best < 0:
        return least_request(st, READY, count, request)
    return best


@compiled
def _longest_prompt(st: State, place: int) -> int:
    """Return the prompt length up to which the pool of the ready replica at `place` is meant."""
    m = st.memory
    r = replica_at(st, st.board[READY * m[tot.SLOTS] + place])
    bound: int = m[m[r + rep.POOL] + pool.LONGEST_PROMPT]
    return bound


@inlined
def _length_split(st: State, request: int, count: int) -> int:
    """Return the place with the fewest requests, of the pools with the least sufficient prompt length."""
    m, b = st.memory, st.board
    prompt = st.requests[request * req.WIDTH + req.PROMPT]
    role = pool.PREFILL if m[tot.DISAGGREGATED] else pool.AGGREGATED
    bound = NEVER + 1
    for i in range(m[tot.POOL_COUNT]):
        p = m[tot.POOLS] + i * pool.WIDTH
        if m[p + pool.ROLE] == role and prompt <= m[p + pool.LONGEST_PROMPT] < bound:
            bound = m[p + pool.LONGEST_PROMPT]
    fitting = 0
    for place in range(count):
        if _longest_prompt(st, place) == bound:
            fitting += 1
    if not fitting:
        return least_request(st, READY, count, request)
    best, least, after = -1, NEVER, 0
    turn = request % fitting  # places of those that fit, from this one on
    for place in range(count):
        if _longest_prompt(st, place) != bound:
            continue
        live = b[b[READY * m[tot.SLOTS] + place]]
        if live < least or (live == least and turn <= 0 < after):
            best, least, after = place, live, turn
        turn -= 1
    return best
