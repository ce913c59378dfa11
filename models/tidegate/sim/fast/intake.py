"""How a request gets into a replica: from the gateway, or from the replica that computed its prompt."""

from tidegate.sim.fast import jump, pool, rep, req, seq, tot
from tidegate.sim.fast.compiled import compiled, inlined
from tidegate.sim.fast.routing import choose, least_request
from tidegate.sim.fast.state import DECODER, State, free_row, link_after, replica_at, take_row


@compiled
def _submit(st: State, r: int, row: int, arrived_ps: int) -> bool:
    """Queue a request by the time it passes the front end; False, and nothing done, if it can never fit."""
    m, q = st.memory, st.sequences
    p = m[r + rep.POOL]
    if q[row + seq.PROMPT] + q[row + seq.OUTPUT] > m[p + pool.LONGEST]:
        return False
    slot = m[r + rep.SLOT]
    eligible = arrived_ps + m[p + pool.FRONT_END] + m[p + pool.FRONT_END_LIVE] * st.board[slot]
    st.board[slot] += 1
    q[row + seq.ELIGIBLE] = eligible
    q[row + seq.GENERATED] = 0
    before = m[r + rep.QUEUE_TAIL]
    while before >= 0 and q[before + seq.ELIGIBLE] > eligible:
        before = q[before + seq.BEFORE]
    link_after(m, q, r + rep.QUEUE_HEAD, row, before)
    m[r + rep.QUEUED] += 1
    st.requests[q[row + seq.REQUEST] * req.WIDTH + req.MEMBER] = m[r + rep.MEMBER]
    if before < 0:
        jump.note_arrival(st, r, row)
    return True


@inlined
def _refuse(st: State, row: int) -> None:
    """Count a request that nobody takes, and forget it."""
    st.memory[tot.REFUSED] += 1
    st.memory[tot.PENDING] -= st.requests[st.sequences[row + seq.REQUEST] * req.WIDTH + req.PROMPT]
    free_row(st, row)


@compiled
def route(st: State, request: int, tries: int, now_ps: int) -> None:
    """Give a request to a ready replica of the first stage, or refuse it. A free row is needed."""
    m, q = st.memory, st.sequences
    row = take_row(st)
    q[row + seq.REQUEST] = request
    q[row + seq.TRIES] = tries
    if not m[tot.READY]:
        _refuse(st, row)
        return
    r = replica_at(st, choose(st, request))
    m[tot.ROUTED] += 1
    m[r + rep.SENT] += 1
    at = request * req.WIDTH
    q[row + seq.PROMPT] = st.requests[at + req.PROMPT]
    q[row + seq.OUTPUT] = 1 if m[tot.DISAGGREGATED] else st.requests[at + req.OUTPUT]
    q[row + seq.CACHED] = st.requests[at + req.CACHED]
    if not _submit(st, r, row, now_ps):
        _refuse(st, row)


@inlined
def arrive(st: State) -> None:
    """Take the next request of the trace."""
    m = st.memory
    request = m[tot.ARRIVED]
    at = request * req.WIDTH
    m[tot.ARRIVED] += 1
    m[tot.PROMPT_TOKENS] += st.requests[at + req.PROMPT]
    m[tot.OUTPUT_TOKENS] += st.requests[at + req.OUTPUT]
    m[tot.PENDING] += st.requests[at + req.PROMPT]
    route(st, request, 0, st.requests[at + req.ARRIVAL])


@inlined
def hand_off(st: State, row: int, at_ps: int) -> None:
    """Give a request whose prompt is computed to a decode replica, or refuse it."""
    m, q = st.memory, st.sequences
    count = m[tot.DECODERS]
    if not count:
        _refuse(st, row)
        return
    request = q[row + seq.REQUEST]
    place = least_request(st, DECODER, count, request)
    r = replica_at(st, st.board[DECODER * m[tot.SLOTS] + place])
    m[r + rep.SENT] += 1
    q[row + seq.OUTPUT] = st.requests[request * req.WIDTH + req.OUTPUT]
    q[row + seq.CACHED] = q[row + seq.PROMPT]
    if not _submit(st, r, row, at_ps + m[tot.LINK_BASE] + m[tot.LINK_TOKEN] * q[row + seq.PROMPT]):
        _refuse(st, row)
