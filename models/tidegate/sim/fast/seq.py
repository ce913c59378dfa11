"""Cells of one row of `State.sequences`: a request inside a replica. Rows are named by where they begin, and reused."""

(
    REQUEST,  # index in the trace
    PROMPT,
    OUTPUT,  # tokens this replica makes of it
    CACHED,  # prompt tokens known to be cached, without a prefix cache
    TRIES,  # crashes survived
    GENERATED,  # tokens made before its present admission
    NEED,  # tokens to hold before the next one can be made
    HELD,  # of them: held, until they all are
    BLOCKS,  # KV blocks got at admission, shared ones included
    SHARED,  # hash blocks of the prefix cache it refers to
    HITS,  # of them: found at admission
    BEGAN,  # the step that completed its prompt
    GROWS,  # it needs a block in steps equal to this modulo the block size
    ELIGIBLE,  # when it passed the front end, in picoseconds
    NEXT,  # in the list it is in; of a free row: the next free one
    BEFORE,
) = range(16)
WIDTH = 16
