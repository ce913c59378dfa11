"""One replica: the beginning and the end of its steps, by the rules of `sim/replica.py`."""

from tidegate.sim.fast import blocks, jump, pool, prefix, rep, seq, tot
from tidegate.sim.fast.compiled import compiled, inlined
from tidegate.sim.fast.ends import drop_end, next_end, pop_end, push_end
from tidegate.sim.fast.state import NEVER, State, link_after, set_next, unlink
from tidegate.sim.fast.verdict import emit, finish


@inlined
def begin(st: State, r: int, at_ps: int) -> None:
    """Plan the step that begins now, and those after it that are like it; none when there is nothing to do."""
    m = st.memory
    m[r + rep.STEP] += 1
    m[r + rep.BLOCKED] = 0
    preempted = _grow(st, r)
    m[r + rep.PREPAID] = 0
    m[r + rep.KV_READ] += m[r + rep.DECODING]
    m[r + rep.BEGAN] = at_ps
    m[r + rep.STEPS] = 1
    prompts_ps = _plan_prompts(st, r, at_ps, preempted)
    if prompts_ps > 0:
        m[r + rep.FIRST] = prompts_ps
        m[r + rep.LONGER] = 0
    elif m[r + rep.DECODING]:
        jump.set_decode_time(st, r)
        if not preempted and m[r + rep.PARTIAL] < 0:
            jump.plan_jump(st, r)
    else:
        m[r + rep.STEPS] = 0
        head = m[r + rep.QUEUE_HEAD]
        set_next(st, r, NEVER if head < 0 else st.sequences[head + seq.ELIGIBLE])
        return
    set_next(st, r, at_ps + jump.span_ps(m, r, m[r + rep.STEPS]))


@inlined
def _grow(st: State, r: int) -> bool:
    """Give every decoding sequence one token of KV, the oldest first; return whether any had to be preempted."""
    m = st.memory
    if not m[r + rep.DECODING]:
        return False
    size = m[m[r + rep.POOL] + pool.BLOCK_TOKENS]
    place = m[r + rep.STEP] % size
    needed = m[m[r + rep.GROWING] + place] - m[r + rep.PREPAID]
    if needed <= 0:
        return False
    if needed <= m[r + rep.FREE] or needed <= blocks.available(m, r):
        blocks.take(m, r, needed)
        return False
    row = m[r + rep.RUN_HEAD]
    while row >= 0 and row != m[r + rep.PARTIAL]:
        grows = st.sequences[row + seq.GROWS] == place and not _prepaid(st, r, row, size)
        if grows and not _one_more_block(st, r, row):
            break
        row = st.sequences[row + seq.NEXT]
    return True


@inlined
def _prepaid(st: State, r: int, row: int, size: int) -> bool:
    """Return whether a sequence begins to decode in this step with a block to spare from its admission."""
    q = st.sequences
    result: bool = q[row + seq.BEGAN] == st.memory[r + rep.STEP] - 1 and q[row + seq.NEED] % size == 0
    return result


@inlined
def _one_more_block(st: State, r: int, row: int) -> bool:
    """Take a block for a sequence, preempting the newest as needed; False when it was itself the newest."""
    m = st.memory
    while not blocks.available(m, r):
        victim = m[r + rep.RUN_TAIL]
        _preempt(st, r, victim)
        if victim == row:
            return False
    blocks.take(m, r, 1)
    return True


@inlined
def _preempt(st: State, r: int, row: int) -> None:
    """Send the newest running sequence, which has not got its token of this step, back to the head of the queue."""
    m, q = st.memory, st.sequences
    held = 0
    if row == m[r + rep.PARTIAL]:
        m[r + rep.PARTIAL] = -1
    else:
        if _prepaid(st, r, row, m[m[r + rep.POOL] + pool.BLOCK_TOKENS]):
            m[r + rep.PREPAID] -= 1
        made = m[r + rep.STEP] - 1 - q[row + seq.BEGAN]
        held = q[row + seq.NEED] + made
        q[row + seq.GENERATED] += 1 + made
        drop_end(m, r, row)
        _leave_decoding(st, r, row, held)
    m[r + rep.PREEMPTIONS] += 1
    _let_go(st, r, row, held)
    link_after(m, q, r + rep.QUEUE_HEAD, row, -1)
    m[r + rep.QUEUED] += 1


@compiled
def _leave_decoding(st: State, r: int, row: int, held: int) -> None:
    """Take a sequence that holds `held` tokens out of the sums over those that decode."""
    m = st.memory
    m[r + rep.DECODING] -= 1
    m[r + rep.KV_READ] -= held
    m[m[r + rep.GROWING] + st.sequences[row + seq.GROWS]] -= 1


@compiled
def _let_go(st: State, r: int, row: int, held: int) -> None:
    """Free the KV of a running sequence, which runs no more."""
    m = st.memory
    m[r + rep.FREE] += blocks.held_blocks(st, r, row, held)
    prefix.release(st, r, row)
    unlink(m, st.sequences, r + rep.RUN_HEAD, row)
    m[r + rep.RUNNING] -= 1


@inlined
def _plan_prompts(st: State, r: int, at_ps: int, preempted: bool) -> int:  # noqa: FBT001
    """Plan the chunks of prompts beside the decodes; return the time of the step, 0 without any chunk."""
    m = st.memory
    p = m[r + rep.POOL]
    budget = m[p + pool.BUDGET] - m[r + rep.DECODING]
    chunks, double_pairs, tiers_ps = 0, 0, 0
    if budget > 0 and m[r + rep.PARTIAL] >= 0:
        budget, double_pairs, tiers_ps = _chunk(st, r, m[r + rep.PARTIAL], budget)
        chunks = 1
    while not preempted:
        row = m[r + rep.QUEUE_HEAD]
        if row < 0 or st.sequences[row + seq.ELIGIBLE] > at_ps:
            break
        if budget <= 0 or not _fits(st, r, row):
            m[r + rep.BLOCKED] = 1
            break
        loads_ps = _admit(st, r, row)
        budget, pairs, stores_ps = _chunk(st, r, row, budget)
        double_pairs += pairs
        tiers_ps += loads_ps + stores_ps
        chunks += 1
    if not chunks:
        return 0
    took: int = m[m[p + pool.DENSE] + m[p + pool.BUDGET] - budget] + m[p + pool.KV_READ] * m[r + rep.KV_READ]
    took += m[p + pool.ATTENTION] * double_pairs // 2
    took += m[p + pool.HOST] * (m[r + rep.DECODING] + chunks)
    return took + tiers_ps


@inlined
def _fits(st: State, r: int, row: int) -> bool:
    """Return whether there is a place and KV for a request's tokens plus one; note its hits and the blocks it needs."""
    m, q = st.memory, st.sequences
    p = m[r + rep.POOL]
    if m[r + rep.RUNNING] >= m[p + pool.SEQUENCES]:
        return False
    count = (q[row + seq.PROMPT] + q[row + seq.GENERATED]) // m[p + pool.BLOCK_TOKENS] + 1
    q[row + seq.BLOCKS] = count
    per_hash = m[p + pool.CACHE]
    if not per_hash:
        q[row + seq.HITS] = 0
        plain: bool = count <= m[r + rep.FREE]
        return plain
    found, idle = prefix.hits(st, r, row)
    q[row + seq.HITS] = found
    result: bool = count - per_hash * found <= blocks.available(m, r) - per_hash * idle
    return result


@inlined
def _admit(st: State, r: int, row: int) -> int:
    """Move the head of the queue, which fits, into the batch; return what loading from below HBM costs."""
    m, q = st.memory, st.sequences
    per_hash = m[m[r + rep.POOL] + pool.CACHE]
    need = q[row + seq.PROMPT] + q[row + seq.GENERATED]
    q[row + seq.NEED] = need
    cost = 0
    if per_hash:
        prefix.refer(st, r, row, q[row + seq.HITS])
        found, cost = prefix.load(st, r, row)
        q[row + seq.HELD] = m[tot.HASH_TOKENS] * (q[row + seq.HITS] + found)
        prefix.count_hits(st, r, row)
    else:
        q[row + seq.SHARED] = 0
        q[row + seq.HELD] = min(q[row + seq.CACHED], q[row + seq.PROMPT], need - 1)
    blocks.take(m, r, q[row + seq.BLOCKS] - per_hash * q[row + seq.HITS])
    unlink(m, q, r + rep.QUEUE_HEAD, row)
    link_after(m, q, r + rep.RUN_HEAD, row, m[r + rep.RUN_TAIL])
    m[r + rep.QUEUED] -= 1
    m[r + rep.RUNNING] += 1
    return cost


@compiled
def _chunk(st: State, r: int, row: int, budget: int) -> tuple[int, int, int]:
    """Plan a chunk of one prompt; return the budget left, twice its attention pairs, and what storing it costs."""
    m, q = st.memory, st.sequences
    held = q[row + seq.HELD]
    left = q[row + seq.NEED] - held
    chunk = min(left, budget)
    q[row + seq.HELD] = held + chunk
    stores_ps = 0
    if chunk < left:
        m[r + rep.PARTIAL] = row
    else:
        m[r + rep.PARTIAL] = -1
        if m[r + rep.COMPLETING] < 0:
            m[r + rep.COMPLETING] = row
        if m[m[r + rep.POOL] + pool.CACHE]:
            stores_ps = prefix.enrol(st, r, row)
    return budget - chunk, chunk * (2 * held + chunk), stores_ps


@inlined
def end(st: State, r: int, at_ps: int) -> None:
    """Account for the steps in flight, which end now."""
    m, q = st.memory, st.sequences
    jump.settle(st, r)
    m[r + rep.OUTPUT_DONE] += m[r + rep.STEPS] * m[r + rep.DECODING]
    m[r + rep.STEPS] = 0
    step = m[r + rep.STEP]
    while m[r + rep.FINISHING] and next_end(m, r) == step:
        row = pop_end(m, r)
        held = q[row + seq.NEED] + step - q[row + seq.BEGAN]
        _leave_decoding(st, r, row, held)
        _let_go(st, r, row, held)
        finish(st, r, row, at_ps)
    row = m[r + rep.COMPLETING]
    m[r + rep.COMPLETING] = -1
    while row >= 0 and row != m[r + rep.PARTIAL]:
        after = q[row + seq.NEXT]
        m[r + rep.OUTPUT_DONE] += 1
        emit(st, r, row, at_ps)
        left = q[row + seq.OUTPUT] - q[row + seq.GENERATED] - 1
        if left:
            _join_decoding(st, r, row, left)
        else:
            _let_go(st, r, row, 0)
            finish(st, r, row, at_ps)
        row = after


@inlined
def _join_decoding(st: State, r: int, row: int, left: int) -> None:
    """Let a sequence whose prompt is computed decode from the next step on, `left` tokens."""
    m, q = st.memory, st.sequences
    step, need = m[r + rep.STEP], q[row + seq.NEED]
    size = m[m[r + rep.POOL] + pool.BLOCK_TOKENS]
    grows = (step + 1 - need) % size
    q[row + seq.BEGAN] = step
    q[row + seq.GROWS] = grows
    m[r + rep.DECODING] += 1
    m[r + rep.KV_READ] += need
    m[m[r + rep.GROWING] + grows] += 1
    if need % size == 0:
        m[r + rep.PREPAID] += 1
    push_end(m, r, step + left, row)
