"""The heap of ends of one replica: which decoding sequence emits its last token at which step."""

from tidegate.sim.fast import rep
from tidegate.sim.fast.compiled import compiled, inlined
from tidegate.sim.fast.state import Int64s

STEP_SHIFT = 32  # a key is the step, then the order of joining, so that ends of one step come oldest first


@inlined
def push_end(m: Int64s, r: int, step: int, row: int) -> None:
    """Note that `row`, which now joins the decoding sequences, ends with step `step`."""
    key = (step << STEP_SHIFT) | m[r + rep.JOINED]
    m[r + rep.JOINED] += 1
    place = m[r + rep.FINISHING]
    m[r + rep.FINISHING] += 1
    _rise(m, r, place, key, row)


@compiled
def _rise(m: Int64s, r: int, place: int, key: int, row: int) -> None:
    """Put an entry in at `place` or above it."""
    keys, rows = m[r + rep.END_KEYS], m[r + rep.END_ROWS]
    while place > 0:
        parent = (place - 1) >> 1
        if m[keys + parent] <= key:
            break
        m[keys + place] = m[keys + parent]
        m[rows + place] = m[rows + parent]
        place = parent
    m[keys + place] = key
    m[rows + place] = row


@inlined
def next_end(m: Int64s, r: int) -> int:
    """Return the step at which the next sequence ends; there must be one."""
    step: int = m[m[r + rep.END_KEYS]] >> STEP_SHIFT
    return step


@inlined
def pop_end(m: Int64s, r: int) -> int:
    """Take out and return the row that ends next."""
    row: int = m[m[r + rep.END_ROWS]]
    _remove_at(m, r, 0)
    return row


@inlined
def drop_end(m: Int64s, r: int, row: int) -> None:
    """Take out the entry of a row, wherever it is: for preemption, which is rare."""
    place = 0
    while m[m[r + rep.END_ROWS] + place] != row:
        place += 1
    _remove_at(m, r, place)


@compiled
def _remove_at(m: Int64s, r: int, place: int) -> None:
    """Take out the entry at `place` and mend the heap."""
    keys, rows = m[r + rep.END_KEYS], m[r + rep.END_ROWS]
    last = m[r + rep.FINISHING] - 1
    m[r + rep.FINISHING] = last
    if place == last:
        return
    key, row = m[keys + last], m[rows + last]
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        if child + 1 < last and m[keys + child + 1] < m[keys + child]:
            child += 1
        if m[keys + child] >= key:
            break
        m[keys + place] = m[keys + child]
        m[rows + place] = m[rows + child]
        place = child
    _rise(m, r, place, key, row)
