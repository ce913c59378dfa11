"""One look at a simulated fleet: gateway counters, and a row for each replica in service."""

from collections.abc import Callable, Sequence

import numpy as np

from tidegate.sim.ledger import Ledger
from tidegate.sim.members import Member
from tidegate.sim.sample import FleetSample
from tidegate.sim.trace import Int64Array
from tidegate.terms.fleet import ReplicaState


def sample_of(ledger: Ledger, living: Sequence[Member], now_ps: int) -> FleetSample:
    """Return the fleet as it is now, and let each member's router-side view start afresh from it."""
    rows = [m for m in living if m.state in {ReplicaState.READY, ReplicaState.DRAINING}]
    for member in rows:
        member.sampled_waiting = member.engine.waiting(now_ps)
        member.sampled_kv_used_blocks = member.engine.kv_used_blocks
        member.sent_since_sample = 0

    def column(read: Callable[[Member], int]) -> Int64Array:
        return np.array([read(m) for m in rows], dtype=np.int64)

    return FleetSample(
        at_ps=now_ps,
        arrived=ledger.arrived,
        refused=ledger.refused,
        lost=ledger.lost,
        answered=ledger.answered,
        prompt_tokens=ledger.prompt_tokens,
        output_tokens=ledger.output_tokens,
        pending_prompt_tokens=ledger.pending_prompt_tokens,
        in_flight=ledger.in_flight,
        ttft_counts=np.array(ledger.ttft_counts, dtype=np.int64),
        tpot_counts=np.array(ledger.tpot_counts, dtype=np.int64),
        e2e_counts=np.array(ledger.e2e_counts, dtype=np.int64),
        member=column(lambda m: m.index),
        live=column(lambda m: m.engine.live),
        running=column(lambda m: m.engine.running),
        waiting=column(lambda m: m.sampled_waiting),
        kv_used_blocks=column(lambda m: m.sampled_kv_used_blocks),
        waiting_prompt_tokens=column(lambda m: m.engine.uncomputed_tokens(now_ps)),
        context_tokens=column(lambda m: m.engine.context_tokens),
        finished=column(lambda m: m.finished),
        prompt_done_tokens=column(lambda m: m.prompt_done_tokens),
        output_done_tokens=column(lambda m: m.output_done_tokens),
        preemptions=column(lambda m: m.engine.preemptions),
        hit_tokens=column(lambda m: m.engine.hit_tokens),
        looked_up_tokens=column(lambda m: m.engine.looked_up_tokens),
    )
