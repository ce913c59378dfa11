"""Cells of one pool in `State.memory`: its engine and its caches, times in picoseconds."""

(
    ROLE,  # AGGREGATED, PREFILL, DECODE
    DENSE,  # where its table of step times by tokens begins
    KV_READ,
    ATTENTION,
    HOST,
    FRONT_END,
    FRONT_END_LIVE,  # more per request the replica already has
    BLOCKS,
    BLOCK_TOKENS,
    BUDGET,
    SEQUENCES,
    LONGEST,  # most tokens, prompt and output, of one request
    WEIGHT,
    LONGEST_PROMPT,  # of requests it is meant for
    CACHE,  # engine blocks per hash block; 0: no prefix cache
    CPU,  # hash blocks of the CPU tier; 0: none
    CPU_LOAD,
    REMOTE,  # 1: it uses the remote pool
    REMOTE_LOAD,
    LOAD_BASE,
    STORE,
) = range(21)
WIDTH = 21
AGGREGATED, PREFILL, DECODE = range(3)
