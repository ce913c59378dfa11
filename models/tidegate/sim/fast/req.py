"""Cells of one row of `State.requests`: a request of the trace and what became of it; -1: not yet."""

ARRIVAL, PROMPT, OUTPUT, CACHED, AFFINITY, FIRST, ENDED, MEMBER = range(8)
WIDTH = 8  # one line of a processor's cache
