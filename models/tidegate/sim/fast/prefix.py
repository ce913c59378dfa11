"""The prefix cache of a replica and the tiers below it, as far as one sequence touches them."""

from tidegate.sim.fast import pool, rep, seq, store, tot
from tidegate.sim.fast.compiled import compiled, inlined
from tidegate.sim.fast.state import State


@compiled
def span(st: State, row: int, tokens: int) -> tuple[int, int]:
    """Return where a request's hash blocks begin, and where those end that lie whole in its first `tokens` tokens."""
    request = st.sequences[row + seq.REQUEST]
    start: int = st.hashes[request]
    end: int = min(st.hashes[request + 1], start + tokens // st.memory[tot.HASH_TOKENS])
    return start, end


@inlined
def block_at(st: State, k: int) -> int:
    """Return the hash block in a place of `hashes`."""
    word = st.hashes[k]
    block: int = st.memory[(word >> 1) + store.ID] if word & 1 else word >> 1
    return block


@inlined
def hits(st: State, r: int, row: int) -> tuple[int, int]:
    """Return how many leading hash blocks are in HBM, and how many of these nobody uses."""
    m = st.memory
    hbm = m[r + rep.HBM]
    start, end = span(st, row, st.sequences[row + seq.PROMPT] - 1)
    found, idle = 0, 0
    for k in range(start, end):
        entry = store.find(m, hbm, st.hashes[k] >> 1)
        if entry < 0:
            break
        found += 1
        if m[entry + store.REFERENCES] == 0:
            idle += 1
    return found, idle


@inlined
def refer(st: State, r: int, row: int, count: int) -> None:
    """Hold the first `count` hash blocks, which are in HBM."""
    m = st.memory
    hbm = m[r + rep.HBM]
    start = st.hashes[st.sequences[row + seq.REQUEST]]
    for k in range(start, start + count):
        entry = store.find(m, hbm, st.hashes[k] >> 1)
        if m[entry + store.REFERENCES] == 0:
            store.withdraw(m, hbm, entry)
        m[entry + store.REFERENCES] += 1
        st.hashes[k] = 2 * entry + 1
    st.sequences[row + seq.SHARED] = count


@compiled
def release(st: State, r: int, row: int) -> None:
    """Let go of the hash blocks a sequence holds, the last first; those nobody holds any more become the newest."""
    left = st.sequences[row + seq.SHARED]
    if not left:
        return
    m = st.memory
    hbm = m[r + rep.HBM]
    k = st.hashes[st.sequences[row + seq.REQUEST] + 1]
    while left:
        k -= 1
        if st.hashes[k] & 1:
            entry = st.hashes[k] >> 1
            st.hashes[k] = 2 * m[entry + store.ID]
            left -= 1
            m[entry + store.REFERENCES] -= 1
            if m[entry + store.REFERENCES] == 0:
                store.append(m, hbm, entry)
    st.sequences[row + seq.SHARED] = 0


@inlined
def load(st: State, r: int, row: int) -> tuple[int, int]:
    """Return the hash blocks found below HBM right after the hits, and what loading them costs in picoseconds."""
    m = st.memory
    p = m[r + rep.POOL]
    start, end = span(st, row, st.sequences[row + seq.PROMPT] - 1)
    found, cost = 0, 0
    size = m[tot.HASH_TOKENS]
    for k in range(start + st.sequences[row + seq.HITS], end):
        block = st.hashes[k] >> 1
        entry = store.find(m, m[r + rep.CPU], block) if m[p + pool.CPU] else -1
        if entry >= 0:
            store.touch(m, m[r + rep.CPU], entry)
            cost += size * m[p + pool.CPU_LOAD]
        else:
            entry = store.find(m, m[tot.REMOTE], block) if m[p + pool.REMOTE] else -1
            if entry < 0:
                break
            store.touch(m, m[tot.REMOTE], entry)
            cost += size * m[p + pool.REMOTE_LOAD]
        found += 1
    if found:
        cost += m[p + pool.LOAD_BASE]
    return found, cost


@inlined
def enrol(st: State, r: int, row: int) -> int:
    """Make the whole hash blocks of a prompt, now computed, findable; return what storing them costs."""
    m = st.memory
    p, hbm = m[r + rep.POOL], m[r + rep.HBM]
    start, end = span(st, row, st.sequences[row + seq.PROMPT])
    for k in range(start + st.sequences[row + seq.HITS], end):
        block = st.hashes[k] >> 1
        if store.find(m, hbm, block) < 0:
            st.hashes[k] = 2 * store.put(m, hbm, block, 1) + 1
            st.sequences[row + seq.SHARED] += 1
    written = 0
    for k in range(start, end if m[p + pool.CPU] or m[p + pool.REMOTE] else start):
        block = block_at(st, k)
        new = store.keep(m, m[r + rep.CPU], block) if m[p + pool.CPU] else False
        if m[p + pool.REMOTE] and store.keep(m, m[tot.REMOTE], block):
            new = True
        if new:
            written += 1
    cost: int = written * m[tot.HASH_TOKENS] * m[p + pool.STORE]
    return cost


@inlined
def count_hits(st: State, r: int, row: int) -> None:
    """Count a request that has just been admitted as looked up, and what was found in HBM."""
    m = st.memory
    request = st.sequences[row + seq.REQUEST]
    if st.hashes[request + 1] > st.hashes[request]:
        m[r + rep.LOOKED_UP] += st.sequences[row + seq.PROMPT]
        m[r + rep.HIT] += st.sequences[row + seq.HITS] * m[tot.HASH_TOKENS]
