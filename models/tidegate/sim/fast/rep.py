"""Cells of one replica in `State.memory`; a replica is named by where they begin. Its tables follow them.

Between two events a replica that only decodes is one flight of `STEPS` equal-sized steps, of which the j-th ends at
`BEGAN + j*FIRST + LONGER*j*(j-1)/2`: each step reads one token more per sequence than the one before.
"""

(
    MEMBER,  # index of the replica in the fleet
    SLOT,  # place on the board
    POOL,  # where its pool's cells begin
    GROWING,  # where a table begins: decoding sequences by the step, modulo the block size, in which they need a block
    END_KEYS,  # where the heap of ends begins: step, then order of joining
    END_ROWS,  # and whose ends these are
    HBM,  # where the store of its prefix cache begins
    CPU,  # where that of its CPU tier begins
    DRAINING,  # 1: ends with its last request
    STEP,  # counter of steps, the (first of the) one in flight included
    DECODING,  # sequences that decode
    KV_READ,  # tokens these hold, the (first of the) steps in flight included
    FREE,  # KV blocks nobody uses; growth of the first step in flight is taken off
    PREPAID,  # decoding sequences whose next step grows into a block they got at admission
    RUNNING,  # sequences that hold KV
    RUN_HEAD,  # of the list of these, oldest first
    RUN_TAIL,
    PARTIAL,  # the one whose prompt is computed in part; always the newest. -1: none
    COMPLETING,  # first of those whose prompt the step in flight completes; they follow each other. -1: none
    QUEUE_HEAD,  # of the list of those without KV: preempted ones first, then by the time they pass the front end
    QUEUE_TAIL,
    QUEUED,
    BLOCKED,  # 1: the head of the queue cannot be admitted before a sequence ends
    STEPS,  # steps in flight; 0: idle
    BEGAN,  # when the first of them began, in picoseconds
    FIRST,  # length of the first, in picoseconds
    LONGER,  # how much longer each is than the one before
    JOINED,  # sequences that ever began to decode
    FINISHING,  # entries in the heap of ends
    FINISHED,  # counters from here on, as in a sample
    PROMPT_DONE,
    OUTPUT_DONE,
    PREEMPTIONS,
    HIT,
    LOOKED_UP,
    SEEN_WAITING,  # at the last sample
    SEEN_BLOCKS,
    SENT,  # requests routed to it since
) = range(38)
WIDTH = 38
