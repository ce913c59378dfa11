"""Many steps at once: a replica that only decodes repeats one step, each a little longer than the one before.

The j-th of such steps ends `j*first + longer*j*(j-1)/2` after the first began, in whole numbers, so nothing is lost.
"""

import math

from tidegate.sim.fast import blocks, pool, rep, seq
from tidegate.sim.fast.compiled import compiled, inlined
from tidegate.sim.fast.ends import next_end
from tidegate.sim.fast.state import Int64s, State, set_next


@compiled
def span_ps(m: Int64s, r: int, steps: int) -> int:
    """Return how long the first `steps` steps in flight take together."""
    result: int = steps * m[r + rep.FIRST] + m[r + rep.LONGER] * (steps * (steps - 1) // 2)
    return result


@inlined
def steps_ended(m: Int64s, r: int, at_ps: int) -> int:
    """Return how many of the steps in flight have ended at or before `at_ps`, all of them at most."""
    return _first_end(m, r, at_ps + 1 - m[r + rep.BEGAN], m[r + rep.STEPS]) - 1


@compiled
def _first_end(m: Int64s, r: int, wanted_ps: int, most: int) -> int:
    """Return the least j >= 1 with `span_ps(j) >= wanted_ps`, `most + 1` if it is more than `most`."""
    first, longer = float(m[r + rep.FIRST]), float(m[r + rep.LONGER])
    # j*first + longer*j*(j-1)/2 = wanted, solved in the form that also holds when no step is longer than another.
    half = first - 0.5 * longer
    guess = 2.0 * float(wanted_ps) / (half + math.sqrt(max(0.0, half * half + 2.0 * longer * float(wanted_ps))))
    steps = max(1, min(most + 1, int(guess)))
    while steps > 1 and span_ps(m, r, steps - 1) >= wanted_ps:
        steps -= 1
    while steps <= most and span_ps(m, r, steps) < wanted_ps:
        steps += 1
    return steps


@inlined
def plan_jump(st: State, r: int) -> None:
    """Extend the decode step that has just begun up to the first one that is not like it."""
    m = st.memory
    step = m[r + rep.STEP]
    steps = next_end(m, r) - step + 1
    if steps > 1:
        steps = 1 + blocks.steps_within(m, r, step, steps - 1)
    m[r + rep.STEPS] = steps
    if steps > 1 and not m[r + rep.BLOCKED] and m[r + rep.QUEUE_HEAD] >= 0:
        _stop_for(st, r, m[r + rep.QUEUE_HEAD])


@compiled
def _stop_for(st: State, r: int, row: int) -> None:
    """End the flight with the first step that ends once `row` may be admitted."""
    m = st.memory
    wanted = st.sequences[row + seq.ELIGIBLE] - m[r + rep.BEGAN]
    steps = m[r + rep.STEPS]
    if span_ps(m, r, steps - 1) >= wanted:
        m[r + rep.STEPS] = _first_end(m, r, wanted, steps)


@inlined
def note_arrival(st: State, r: int, row: int) -> None:
    """Bring forward what happens next in a replica whose queue has just got a new head, `row`."""
    m = st.memory
    before = m[r + rep.STEPS]
    if not before:
        set_next(st, r, st.sequences[row + seq.ELIGIBLE])
    elif before > 1 and not m[r + rep.BLOCKED]:
        _stop_for(st, r, row)
        if m[r + rep.STEPS] != before:
            set_next(st, r, m[r + rep.BEGAN] + span_ps(m, r, m[r + rep.STEPS]))


@inlined
def settle(st: State, r: int) -> None:
    """Apply the steps in flight but the first, which was applied when it began."""
    m = st.memory
    more = m[r + rep.STEPS] - 1
    if more > 0:
        blocks.take(m, r, blocks.growth(m, r, m[r + rep.STEP], more))
        m[r + rep.STEP] += more
        m[r + rep.KV_READ] += more * m[r + rep.DECODING]


@inlined
def set_decode_time(st: State, r: int) -> None:
    """Set the length of the decode step that has just begun, and how much longer each one after it is."""
    m = st.memory
    p = m[r + rep.POOL]
    decoding = m[r + rep.DECODING]
    dense = m[m[p + pool.DENSE] + decoding]
    m[r + rep.FIRST] = dense + m[p + pool.KV_READ] * m[r + rep.KV_READ] + m[p + pool.HOST] * decoding
    m[r + rep.LONGER] = m[p + pool.KV_READ] * decoding
