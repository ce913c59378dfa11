"""The state of a compiled fleet, as few flat arrays, so that a kernel hands it on in a dozen registers.

Whatever has cells of its own is named by where these begin in its array, and its cells by the constants of `rep`,
`seq`, `pool`, `tot` and `req`: `memory[r + rep.FREE]` are the free blocks of replica `r`. Times are picoseconds.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.sim.fast import rep, seq, tot
from tidegate.sim.fast.compiled import compiled, inlined

Int64s = npt.NDArray[np.int64]

NEVER = (1 << 63) - 2  # 106 days; one more must still be a number of 64 bits

LIVE, NEXT_AT, WINNER, READY, DECODER = range(5)  # parts of the board, each one cell per slot
BOARD_PARTS = 5


class State(NamedTuple):
    """All of it."""

    memory: Int64s  # tot.py, pools, histograms, the remote store, then the replicas with their tables
    board: Int64s  # what is searched over all slots: requests in flight, next event, tournament, who is ready
    sequences: Int64s  # rows of seq.py
    requests: Int64s  # rows of req.py
    # Where each request's hash blocks begin, one more for the end; then the blocks: 2 * block, or 2 * entry + 1 while
    # the request holds it in HBM.
    hashes: Int64s


@inlined
def take_row(st: State) -> int:
    """Return a free row of `sequences`; there must be one."""
    row: int = st.memory[tot.FREE_ROW]
    st.memory[tot.FREE_ROW] = st.sequences[row + seq.NEXT]
    return row


@inlined
def free_row(st: State, row: int) -> None:
    """Give a row back."""
    st.sequences[row + seq.NEXT] = st.memory[tot.FREE_ROW]
    st.memory[tot.FREE_ROW] = row


@compiled
def link_after(m: Int64s, q: Int64s, head: int, row: int, before: int) -> None:
    """Put a row into the list whose ends are the cells `head` and `head + 1` of memory, after `before` (-1: first)."""
    after = m[head] if before < 0 else q[before + seq.NEXT]
    q[row + seq.BEFORE] = before
    q[row + seq.NEXT] = after
    if before < 0:
        m[head] = row
    else:
        q[before + seq.NEXT] = row
    if after < 0:
        m[head + 1] = row
    else:
        q[after + seq.BEFORE] = row


@compiled
def unlink(m: Int64s, q: Int64s, head: int, row: int) -> None:
    """Take a row out of the list whose ends are the cells `head` and `head + 1` of memory."""
    before = q[row + seq.BEFORE]
    after = q[row + seq.NEXT]
    if before < 0:
        m[head] = after
    else:
        q[before + seq.NEXT] = after
    if after < 0:
        m[head + 1] = before
    else:
        q[after + seq.BEFORE] = before


@inlined
def replica_at(st: State, slot: int) -> int:
    """Return where the cells of the replica in a slot begin."""
    at: int = st.memory[tot.REPLICAS] + slot * st.memory[tot.REPLICA_WIDTH]
    return at


@inlined
def live(st: State, r: int) -> int:
    """Return the requests a replica has and has not finished."""
    count: int = st.board[st.memory[r + rep.SLOT]]
    return count


@compiled
def set_next(st: State, r: int, at_ps: int) -> None:
    """Say when something happens next in a replica, and play its way up the tournament of all again."""
    b = st.board
    slots = st.memory[tot.SLOTS]
    times, winners = NEXT_AT * slots, WINNER * slots
    slot = st.memory[r + rep.SLOT]
    b[times + slot] = at_ps
    node = (slot + slots) >> 1
    while node:
        left, right = 2 * node, 2 * node + 1
        left = left - slots if left >= slots else b[winners + left]
        right = right - slots if right >= slots else b[winners + right]
        left_at, right_at = b[times + left], b[times + right]
        if left_at < right_at or (left_at == right_at and _elder(st, left, right)):
            b[winners + node] = left
        else:
            b[winners + node] = right
        node >>= 1


@compiled
def _elder(st: State, left: int, right: int) -> bool:
    """Return whether the replica in slot `left` was born before the one in slot `right`."""
    result: bool = st.memory[replica_at(st, left) + rep.MEMBER] < st.memory[replica_at(st, right) + rep.MEMBER]
    return result
