"""What can be read off a simulated fleet at one moment, and what became of its requests; columns throughout."""

from dataclasses import dataclass

from tidegate.sim.trace import Int64Array, Trace
from tidegate.terms.fleet import ReplicaState


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetSample:
    """Counters since 0 and gauges at `at_ps`; row i of the member columns is one replica that is ready or draining.

    The state is the one after every event at or before `at_ps`: a step in progress holds its KV, its tokens are not
    counted yet.
    """

    at_ps: int
    arrived: int  # requests that have reached the gateway
    refused: int  # of them: no ready replica, or too long for the engine
    lost: int  # of them: cut by a crash
    answered: int
    prompt_tokens: int  # of requests arrived
    output_tokens: int  # asked for, by requests arrived
    pending_prompt_tokens: int  # of requests in flight that have no first token yet
    in_flight: int
    ttft_counts: Int64Array  # (bounds + 1,) requests per bucket, at first token
    tpot_counts: Int64Array  # (bounds + 1,) at the end of answers of >= 2 tokens
    e2e_counts: Int64Array  # (bounds + 1,)
    member: Int64Array  # index of the replica, ascending
    live: Int64Array  # requests it has and has not finished
    running: Int64Array  # that hold KV
    waiting: Int64Array  # past the front end, without KV
    kv_used_blocks: Int64Array  # referenced blocks; cached ones that nobody uses are free
    waiting_prompt_tokens: Int64Array  # uncomputed prompt tokens of waiting and running requests
    context_tokens: Int64Array  # tokens whose KV running requests hold
    finished: Int64Array  # counter
    prompt_done_tokens: Int64Array  # counter: prompts whose first token came
    output_done_tokens: Int64Array  # counter
    preemptions: Int64Array  # counter
    hit_tokens: Int64Array  # counter: prompt tokens found in HBM at admission
    looked_up_tokens: Int64Array  # counter: prompt tokens looked up at admission


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """One replica that exists."""

    index: int  # in order of birth over the whole fleet, from 0
    pool: int  # index into the setup's pools
    state: ReplicaState
    live: int
    ordered_ps: int
    ready_ps: int | None
    draining_since_ps: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberEvent:
    """A replica was ordered, became ready, was taken out of service, crashed, or ended."""

    at_ps: int
    kind: str  # "ordered", "ready", "draining", "crashed", "ended"
    member: int
    pool: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcomes:
    """What became of each request of a trace; row i is request i, -1 where it never came that far.

    TTFT is `first_ps - arrival_ps` (for a disaggregated request at the decode replica), TPOT
    `(ended_ps - first_ps) / (output_tokens - 1)`. A request that was refused or cut has `ended_ps` -1.
    """

    trace: Trace
    first_ps: Int64Array  # (n,)
    ended_ps: Int64Array  # (n,)
    member: Int64Array  # (n,) the replica that answered, or the last that tried
