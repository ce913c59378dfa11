"""A fleet of simulated replicas behind one gateway, as discrete events: the plain reference of the compiled one.

Events of one instant are ordered: arrivals (by request), ends of engine steps (by member, each followed by the
beginning of its next step and by hand-offs), replicas that become ready (by member). So two runs never differ.
"""

import heapq
from collections.abc import Sequence

from tidegate.sim.events import SimRequest, Step
from tidegate.sim.kvtier import KvTier
from tidegate.sim.ledger import Ledger
from tidegate.sim.members import Member, Roster
from tidegate.sim.replica import ReplicaSim
from tidegate.sim.routing import Router, emptiest
from tidegate.sim.sample import FleetSample, MemberEvent, MemberView, Outcomes
from tidegate.sim.sampling import sample_of
from tidegate.sim.setup import FleetSetup
from tidegate.sim.soundness import check_fleet
from tidegate.sim.trace import Trace
from tidegate.terms.fleet import ReplicaState, Role

_STEP_RANK, _READY_RANK = 1, 2


class FleetSim:
    """The fleet, step by step; implements `Fleet`.

    Raises:
        ValueError: A trace or a setup that makes no sense.
    """

    def __init__(self, trace: Trace, setup: FleetSetup) -> None:
        check_fleet(trace, setup)
        self._trace = trace
        self._setup = setup
        self._now_ps = 0
        self._ledger = Ledger(trace, setup)
        self._router = Router(trace, setup)
        remote_blocks = max((p.cache.remote_blocks for p in setup.pools if p.cache is not None), default=0)
        self._remote = KvTier(remote_blocks) if remote_blocks else None
        self._disaggregated = any(p.role is Role.PREFILL for p in setup.pools)
        self._roster = Roster(setup=setup, new_engine=self._new_engine)
        self._reusable: list[int] = trace.reusable_tokens.tolist()
        self._notes: list[
            tuple[int, int, int]
        ] = []  # a heap of (time, rank, member); old notes stay and are passed over
        self._retried: dict[int, int] = {}

    @property
    def trace(self) -> Trace:
        """The load."""
        return self._trace

    @property
    def setup(self) -> FleetSetup:
        """What the fleet is made of."""
        return self._setup

    @property
    def now_ps(self) -> int:
        """The present."""
        return self._now_ps

    @property
    def idle(self) -> bool:
        """Whether every request has arrived and been answered, refused or cut."""
        return self._ledger.arrived == len(self._trace) and not self._ledger.in_flight

    def run_until(self, until_ps: int) -> None:
        """Process every event at or before `until_ps`, which becomes the present."""
        ledger, notes, arrivals_ps = self._ledger, self._notes, self._ledger.arrival_ps
        while True:
            arrival_ps = arrivals_ps[ledger.arrived] if ledger.arrived < len(arrivals_ps) else None
            note_ps = notes[0][0] if notes else None
            if arrival_ps is not None and arrival_ps <= until_ps and (note_ps is None or arrival_ps <= note_ps):
                self._now_ps = arrival_ps
                self._route(ledger.arrive())
            elif note_ps is not None and note_ps <= until_ps:
                self._now_ps = note_ps
                self._happen()
            else:
                self._now_ps = max(self._now_ps, until_ps)
                return

    def scale_to(self, pool: int, asked: int, drain_first: Sequence[int] = ()) -> None:
        """Order what is missing, or drain what is ready beyond `asked`.

        Starting replicas count as supply and never as cover for a removal, as in the real plan. Those named first are
        drained first, then those with the fewest live requests, then the youngest.
        """
        roster = self._roster
        ready = roster.of(pool, ReplicaState.READY)
        for _ in range(asked - len(ready) - len(roster.of(pool, ReplicaState.STARTING))):
            member, ready_ps = roster.order(pool, self._now_ps)
            heapq.heappush(self._notes, (ready_ps, _READY_RANK, member.index))
        place = {index: i for i, index in enumerate(drain_first)}
        ready.sort(key=lambda m: (place.get(m.index, len(place)), m.engine.live, -m.index))
        for member in ready[: max(0, len(ready) - asked)]:
            roster.drain(member, self._now_ps)

    def drain(self, member: int) -> None:
        """Take a ready replica out of service; it ends when its last request is answered. No effect on others."""
        found = self._roster.members[member]
        if found.ended_ps is None and found.state is ReplicaState.READY:
            self._roster.drain(found, self._now_ps)

    def crash(self, member: int) -> None:
        """End a replica now, whatever its state; no effect on one that has ended.

        Its requests without a first token are routed again, up to `crash_retries` times each, in order of arrival; the
        others are cut.
        """
        found = self._roster.members[member]
        if found.ended_ps is not None:
            return
        self._roster.crash(found, self._now_ps)
        ledger = self._ledger
        for request in sorted(found.engine.live_keys()):
            tries = self._retried.get(request, 0)
            if ledger.first_ps[request] < 0 and tries < self._setup.crash_retries:
                self._retried[request] = tries + 1
                self._route(request)
            else:
                ledger.lose(request)

    def members(self) -> tuple[MemberView, ...]:
        """Return the replicas that exist (starting, ready, draining), by index."""
        return self._roster.views()

    def events(self) -> tuple[MemberEvent, ...]:
        """Return everything that happened to replicas so far, in order."""
        return tuple(self._roster.events)

    def sample(self) -> FleetSample:
        """Return counters and gauges of now; KV_AWARE routing looks at the last sample taken."""
        return sample_of(self._ledger, self._roster.living, self._now_ps)

    def outcomes(self) -> Outcomes:
        """Return what became of the requests so far."""
        return self._ledger.outcomes()

    def replica_ps(self, pool: int, until_ps: int) -> int:
        """Return replica time of a pool from each order to the end of its drain, up to `until_ps`."""
        return self._roster.replica_ps(pool, until_ps)

    def _new_engine(self, pool: int) -> ReplicaSim:
        one = self._setup.pools[pool]
        has_remote = one.cache is not None and one.cache.remote_blocks
        return ReplicaSim(one.profile, cache=one.cache, remote=self._remote if has_remote else None)

    def _route(self, request: int) -> None:
        """Hand a request to a ready replica of the first stage, or refuse it."""
        candidates = self._roster.ready(Role.PREFILL if self._disaggregated else Role.AGGREGATED)
        if not candidates:
            self._ledger.refuse(request)
            return
        member = self._router.pick(request, candidates)
        member.sent_since_sample += 1
        cached = self._setup.pools[member.pool].cache is not None
        asked = SimRequest(
            key=request,
            prompt_tokens=self._ledger.prompts[request],
            output_tokens=1 if self._disaggregated else self._ledger.outputs[request],
            cached_tokens=self._reusable[request] if self._reusable else 0,
            hashes=self._trace.hashes_of(request) if cached else (),
        )
        self._submit(member, asked, self._now_ps)

    def _hand_off(self, request: int) -> None:
        """Hand a request whose prompt is computed to a decode replica, which gets it once its KV is there."""
        candidates = self._roster.ready(Role.DECODE)
        link = self._setup.link
        if not candidates or link is None:
            self._ledger.refuse(request)
            return
        prompt = self._ledger.prompts[request]
        asked = SimRequest(
            key=request,
            prompt_tokens=prompt,
            output_tokens=self._ledger.outputs[request],
            cached_tokens=prompt,  # but for its last token, which gives the first of the answer
        )
        arrived_ps = self._now_ps + link.base_ps + link.ps_per_token * prompt
        self._submit(emptiest(request, candidates), asked, arrived_ps)

    def _submit(self, member: Member, asked: SimRequest, arrived_ps: int) -> None:
        if not member.engine.submit(asked, arrived_ps):
            self._ledger.refuse(asked.key)
            return
        self._ledger.member[asked.key] = member.index
        self._note_next(member)

    def _happen(self) -> None:
        at_ps, rank, index = heapq.heappop(self._notes)
        member = self._roster.members[index]
        if member.ended_ps is not None:
            return
        if rank == _READY_RANK:
            self._roster.is_ready(member, at_ps)
        elif member.engine.next_at_ps() == at_ps:  # else an older note of an event that was moved
            member.noted_ps = -1
            for step in member.engine.step_until(at_ps):
                self._account(member, step)
            self._note_next(member)
            self._roster.end_if_drained(member, at_ps)

    def _account(self, member: Member, step: Step) -> None:
        ledger = self._ledger
        member.output_done_tokens += len(step.emitted)
        member.finished += len(step.finished)
        prefill = self._setup.pools[member.pool].role is Role.PREFILL
        handed_on = {r for r in step.finished if prefill and ledger.outputs[r] > 1}
        for request in step.emitted:
            if ledger.first_ps[request] < 0 and request not in handed_on:
                ledger.begin_answer(request, step.ended_at_ps)
                member.prompt_done_tokens += ledger.prompts[request]
        for request in step.finished:
            if request in handed_on:
                self._hand_off(request)
            else:
                ledger.end_answer(request, step.ended_at_ps)

    def _note_next(self, member: Member) -> None:
        """Write down when something happens next at a member, unless that is written already."""
        next_ps = member.engine.next_at_ps()
        if next_ps is not None and next_ps != member.noted_ps:
            member.noted_ps = next_ps
            heapq.heappush(self._notes, (next_ps, _STEP_RANK, member.index))
