"""From a trace and a setup to the state of a compiled fleet, and room for more of it."""

import numpy as np

from tidegate.sim.fast import layout, req, seq, tot
from tidegate.sim.fast.state import BOARD_PARTS, Int64s, State
from tidegate.sim.setup import FleetSetup, Routing
from tidegate.sim.trace import Trace

FIRST_ROWS = 1024  # requests in flight there is room for at first; doubled whenever they do not suffice
FIRST_SLOTS = 8  # replicas, likewise


def new_state(trace: Trace, setup: FleetSetup) -> State:
    """Return a fleet without replicas before the first arrival."""
    state = State(
        memory=layout.new_memory(setup, requests=len(trace), hash_tokens=trace.hash_block_tokens),
        board=np.zeros(BOARD_PARTS * 0, dtype=np.int64),
        sequences=_rows(FIRST_ROWS, 0),
        requests=_requests(trace, setup),
        hashes=_hashes(trace, setup),
    )
    return layout.with_slots(state, FIRST_SLOTS)


def with_rows(state: State) -> State:
    """Return the state with room for twice as many requests in flight."""
    cells = len(state.sequences)
    more = _rows(cells // seq.WIDTH, cells)
    more[-seq.WIDTH + seq.NEXT] = state.memory[tot.FREE_ROW]
    state.memory[tot.FREE_ROW] = cells
    return state._replace(sequences=np.concatenate([state.sequences, more]))


def _rows(count: int, first: int) -> Int64s:
    """Return rows that nobody uses, the first at cell `first`, each pointing to the next, the last to none."""
    rows = np.zeros((count, seq.WIDTH), dtype=np.int64)
    rows[:, seq.NEXT] = first + seq.WIDTH * np.arange(1, count + 1)
    rows[-1, seq.NEXT] = -1
    return rows.reshape(-1)


def _requests(trace: Trace, setup: FleetSetup) -> Int64s:
    rows = np.zeros((len(trace), req.WIDTH), dtype=np.int64)
    rows[:, req.ARRIVAL] = trace.arrival_ps
    rows[:, req.PROMPT] = trace.prompt_tokens
    rows[:, req.OUTPUT] = trace.output_tokens
    if len(trace.reusable_tokens):
        rows[:, req.CACHED] = trace.reusable_tokens
    if setup.routing is Routing.PREFIX_HASH:
        rows[:, req.AFFINITY] = _affinity(trace)
    rows[:, req.FIRST] = rows[:, req.ENDED] = rows[:, req.MEMBER] = -1
    return rows.reshape(-1)


def _affinity(trace: Trace) -> Int64s:
    if len(trace.prefix_id):
        return trace.prefix_id
    keys = np.arange(len(trace), dtype=np.int64)
    if len(trace.hashes):
        has = np.flatnonzero(np.diff(trace.hash_start))
        keys[has] = trace.hashes[trace.hash_start[has]]
    return keys


def _hashes(trace: Trace, setup: FleetSetup) -> Int64s:
    """Return where the hash blocks of each request begin, then the blocks as small even numbers."""
    if not any(p.cache for p in setup.pools):
        return np.zeros(0, dtype=np.int64)
    head = len(trace) + 1
    if not len(trace.hashes):
        return np.full(head, head, dtype=np.int64)
    _, small = np.unique(trace.hashes, return_inverse=True)
    return np.concatenate([trace.hash_start + head, small * 2]).astype(np.int64)
