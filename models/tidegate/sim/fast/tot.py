"""Cells at the beginning of `State.memory`: what there is once per fleet, settings first."""

(
    ROUTING,  # of `RULES` in routing.py
    SEED,
    DISAGGREGATED,  # 1: prefill replicas hand on to decode replicas
    LINK_BASE,  # picoseconds
    LINK_TOKEN,  # picoseconds per prompt token
    HASH_TOKENS,  # prompt tokens per hash block; 0: no hashes
    POOLS,  # where the rows of pool.py begin
    POOL_COUNT,
    TTFT,  # where the histograms begin: number of bounds, bounds, counts
    TPOT,
    E2E,
    REMOTE,  # where the remote pool's store begins
    REPLICAS,  # where the rows of rep.py begin
    REPLICA_WIDTH,  # cells of one of them with all its tables
    SLOTS,  # how many there is room for, a power of two
    REQUESTS,  # in the trace
    FREE_ROW,  # first free row of `sequences`, -1: none
    READY,  # replicas that take new requests
    DECODERS,  # replicas that take hand-offs
    ROUTED,  # counter of round robin
    ARRIVED,
    REFUSED,
    LOST,
    ANSWERED,
    PROMPT_TOKENS,
    OUTPUT_TOKENS,
    PENDING,  # prompt tokens in flight without a first token
    DRAINED,  # the replica whose drain ended, when `advance` says so
    DRAINED_AT,  # and when
) = range(29)
WIDTH = 29
