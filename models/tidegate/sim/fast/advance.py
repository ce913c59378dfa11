"""The kernels that Python calls."""

from tidegate.sim.fast import blocks, intake, jump, pool, prefix, rep, req, seq, store, tot
from tidegate.sim.fast.compiled import entry, inlined
from tidegate.sim.fast.state import NEVER, NEXT_AT, WINNER, Int64s, State, free_row, live, replica_at, set_next
from tidegate.sim.fast.steps import begin, end

DONE, NEEDS_ROWS, DRAINED = range(3)  # why `advance` returned
GAUGES = 12  # columns that `look` writes


@entry
def advance(st: State, until_ps: int) -> int:
    """Process every event at or before `until_ps`, as far as Python is not needed in between.

    Returns:
        DONE; NEEDS_ROWS when `sequences` is full; DRAINED when a drain has ended, of the replica in `totals`.
    """
    m, b = st.memory, st.board
    slots = m[tot.SLOTS]
    while True:
        request = m[tot.ARRIVED]
        arrival = st.requests[request * req.WIDTH + req.ARRIVAL] if request < m[tot.REQUESTS] else NEVER
        slot = b[WINNER * slots + 1]
        at_ps = b[NEXT_AT * slots + slot]
        if min(arrival, at_ps) > until_ps:
            return DONE
        if arrival <= at_ps:
            if m[tot.FREE_ROW] < 0:
                return NEEDS_ROWS
            intake.arrive(st)
            continue
        r = replica_at(st, slot)
        if m[r + rep.STEPS]:
            end(st, r, at_ps)
        begin(st, r, at_ps)
        if m[r + rep.DRAINING] and not b[slot]:
            m[tot.DRAINED] = r
            m[tot.DRAINED_AT] = at_ps
            return DRAINED


@entry
def route_again(st: State, request: int, tries: int, now_ps: int) -> None:
    """Route a request that a crash cut before its first token. A free row is needed."""
    intake.route(st, request, tries, now_ps)


@entry
def vacate(st: State, slot: int, requests: Int64s, tries: Int64s) -> None:
    """Empty a slot whose replica is gone, and list what it had: request and crashes survived, `live` of them."""
    m, q = st.memory, st.sequences
    r = replica_at(st, slot)
    found = 0
    for head in (rep.QUEUE_HEAD, rep.RUN_HEAD):
        row = m[r + head]
        while row >= 0:
            after = q[row + seq.NEXT]
            request = q[row + seq.REQUEST]
            requests[found], tries[found] = request, q[row + seq.TRIES]
            found += 1
            if head == rep.RUN_HEAD and m[m[r + rep.POOL] + pool.CACHE]:
                for k in range(st.hashes[request], st.hashes[request + 1]):
                    st.hashes[k] = 2 * prefix.block_at(st, k)
            free_row(st, row)
            row = after
    st.board[slot] = 0
    set_next(st, r, NEVER)


@entry
def look(st: State, slots: Int64s, now_ps: int, out: Int64s) -> None:
    """Write the gauges and counters of each slot to a column of `out`, in the order of a sample; the router sees them.

    Steps in flight are counted as far as they have ended by `now_ps`.
    """
    m = st.memory
    for i in range(len(slots)):
        r = replica_at(st, slots[i])
        ended = jump.steps_ended(m, r, now_ps) if m[r + rep.STEPS] else 0
        per_hash = m[m[r + rep.POOL] + pool.CACHE]
        unused = per_hash * m[m[r + rep.HBM] + store.UNUSED] if per_hash else 0
        used = m[m[r + rep.POOL] + pool.BLOCKS] - m[r + rep.FREE] - unused
        used += blocks.growth(m, r, m[r + rep.STEP], ended)
        waiting, uncomputed = _queue(st, r, now_ps)
        out[0, i] = live(st, r)
        out[1, i] = m[r + rep.RUNNING]
        out[2, i] = waiting
        out[3, i] = used
        out[4, i] = uncomputed
        out[5, i] = _context(st, r) + ended * m[r + rep.DECODING]
        out[6, i] = m[r + rep.FINISHED]
        out[7, i] = m[r + rep.PROMPT_DONE]
        out[8, i] = m[r + rep.OUTPUT_DONE] + ended * m[r + rep.DECODING]
        out[9, i] = m[r + rep.PREEMPTIONS]
        out[10, i] = m[r + rep.HIT]
        out[11, i] = m[r + rep.LOOKED_UP]
        m[r + rep.SEEN_WAITING] = waiting
        m[r + rep.SEEN_BLOCKS] = used
        m[r + rep.SENT] = 0


@inlined
def _queue(st: State, r: int, now_ps: int) -> tuple[int, int]:
    """Return the requests past the front end without KV, their prompts and what is left of the one computed in part."""
    m, q = st.memory, st.sequences
    waiting, uncomputed = 0, 0
    row = m[r + rep.QUEUE_HEAD]
    while row >= 0 and q[row + seq.ELIGIBLE] <= now_ps:
        waiting += 1
        uncomputed += q[row + seq.PROMPT]
        row = q[row + seq.NEXT]
    row = m[r + rep.PARTIAL]
    if row >= 0:
        uncomputed += q[row + seq.NEED] - q[row + seq.HELD]
    return waiting, uncomputed


@inlined
def _context(st: State, r: int) -> int:
    """Return the tokens whose KV running sequences hold, the first step in flight included."""
    m, q = st.memory, st.sequences
    tokens: int = m[r + rep.KV_READ]
    row = m[r + rep.COMPLETING] if m[r + rep.COMPLETING] >= 0 else m[r + rep.PARTIAL]
    while row >= 0:
        tokens += q[row + seq.HELD]
        row = q[row + seq.NEXT]
    return tokens
