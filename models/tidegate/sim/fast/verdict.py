"""First and last tokens: what becomes of a request, and the counters a gateway and an engine keep of it."""

from tidegate.sim.fast import pool, rep, req, seq, tot
from tidegate.sim.fast.compiled import compiled, inlined
from tidegate.sim.fast.intake import hand_off
from tidegate.sim.fast.state import Int64s, State, free_row


@compiled
def _count(m: Int64s, histogram: int, value: int) -> None:
    """Count a value in the bucket of the first bound it does not exceed."""
    bounds = m[histogram]
    low, high = 0, bounds
    while low < high:
        middle = (low + high) >> 1
        if m[histogram + 1 + middle] < value:
            low = middle + 1
        else:
            high = middle
    m[histogram + 1 + bounds + low] += 1


@inlined
def _hands_on(st: State, r: int, at: int) -> bool:
    """Return whether the token just made is a prefill replica's, of a request that goes on elsewhere."""
    m = st.memory
    result: bool = m[m[r + rep.POOL] + pool.ROLE] == pool.PREFILL and st.requests[at + req.OUTPUT] > 1
    return result


@inlined
def emit(st: State, r: int, row: int, at_ps: int) -> None:
    """Note the token that a completed prompt gives, which may be the first of its request."""
    m = st.memory
    at = st.sequences[row + seq.REQUEST] * req.WIDTH
    if st.requests[at + req.FIRST] >= 0 or _hands_on(st, r, at):
        return
    prompt = st.requests[at + req.PROMPT]
    st.requests[at + req.FIRST] = at_ps
    m[tot.PENDING] -= prompt
    m[r + rep.PROMPT_DONE] += prompt
    _count(m, m[tot.TTFT], at_ps - st.requests[at + req.ARRIVAL])


@compiled
def finish(st: State, r: int, row: int, at_ps: int) -> None:
    """Note the last token a replica makes of a request, and hand the request on if it is not the last of all."""
    m = st.memory
    at = st.sequences[row + seq.REQUEST] * req.WIDTH
    st.board[m[r + rep.SLOT]] -= 1
    m[r + rep.FINISHED] += 1
    if _hands_on(st, r, at):
        hand_off(st, row, at_ps)
        return
    free_row(st, row)
    st.requests[at + req.ENDED] = at_ps
    m[tot.ANSWERED] += 1
    _count(m, m[tot.E2E], at_ps - st.requests[at + req.ARRIVAL])
    gaps = st.requests[at + req.OUTPUT] - 1
    if gaps:
        _count(m, m[tot.TPOT], (at_ps - st.requests[at + req.FIRST]) // gaps)
