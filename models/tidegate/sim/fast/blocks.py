"""KV blocks of one replica: how many the decoding sequences will need, and where they come from."""

from tidegate.sim.fast import pool, rep, seq, store
from tidegate.sim.fast.compiled import compiled, inlined
from tidegate.sim.fast.state import Int64s, State


@compiled
def available(m: Int64s, r: int) -> int:
    """Return the blocks that can be had without preemption: free ones and cached ones nobody uses."""
    free: int = m[r + rep.FREE]
    per_hash = m[m[r + rep.POOL] + pool.CACHE]
    if per_hash:
        free += per_hash * m[m[r + rep.HBM] + store.UNUSED]
    return free


@compiled
def take(m: Int64s, r: int, blocks: int) -> None:
    """Use `blocks` of the available ones, forgetting the oldest cached blocks only as far as needed."""
    free = m[r + rep.FREE]
    while free < blocks:
        store.forget_oldest(m, m[r + rep.HBM])
        free += m[m[r + rep.POOL] + pool.CACHE]
    m[r + rep.FREE] = free - blocks


@compiled
def growth(m: Int64s, r: int, step: int, steps: int) -> int:
    """Return the blocks that the present decoding sequences need in the `steps` steps after `step`."""
    size = m[m[r + rep.POOL] + pool.BLOCK_TOKENS]
    rounds = steps // size
    needed: int = rounds * m[r + rep.DECODING]
    rest = steps - rounds * size
    if rest:
        place = step % size
        growing = m[r + rep.GROWING]
        for _ in range(rest):
            place += 1
            if place == size:
                place = 0
            needed += m[growing + place]
    return needed


@inlined
def steps_within(m: Int64s, r: int, step: int, most: int) -> int:
    """Return how many of the `most` steps after `step` the available blocks suffice for."""
    decoding = m[r + rep.DECODING]
    size = m[m[r + rep.POOL] + pool.BLOCK_TOKENS]
    free = available(m, r)
    if decoding * (most // size + 1) <= free:
        return most
    rounds = free // decoding
    steps: int = rounds * size
    if steps >= most:
        return most
    free -= rounds * decoding
    place = step % size
    while steps < most:
        place += 1
        if place == size:
            place = 0
        free -= m[m[r + rep.GROWING] + place]
        if free < 0:
            break
        steps += 1
    return steps


@compiled
def held_blocks(st: State, r: int, row: int, held: int) -> int:
    """Return the KV blocks of a running sequence that holds `held` tokens, shared ones not counted."""
    m, q = st.memory, st.sequences
    p = m[r + rep.POOL]
    size = m[p + pool.BLOCK_TOKENS]
    blocks = max(q[row + seq.BLOCKS], (held + size - 1) // size)
    own: int = blocks - m[p + pool.CACHE] * q[row + seq.SHARED]
    return own
