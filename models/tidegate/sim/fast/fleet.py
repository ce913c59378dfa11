"""The compiled fleet: kernels from one rare event to the next, and Python for the rare ones."""

import heapq
from collections.abc import Sequence
from typing import cast

import numpy as np

from tidegate.sim.fast import rep, req, tot
from tidegate.sim.fast.advance import DONE, GAUGES, NEEDS_ROWS, advance, look, route_again, vacate
from tidegate.sim.fast.layout import list_slots, open_slot, with_slots
from tidegate.sim.fast.state import DECODER, NEVER, READY, Int64s
from tidegate.sim.fast.world import new_state, with_rows
from tidegate.sim.members import Member, Roster
from tidegate.sim.replica import ReplicaSim
from tidegate.sim.sample import FleetSample, MemberEvent, MemberView, Outcomes
from tidegate.sim.setup import FleetSetup
from tidegate.sim.soundness import check_fleet
from tidegate.sim.trace import Trace
from tidegate.terms.fleet import ReplicaState, Role


class FastFleet:
    """The fleet, compiled; implements `Fleet` and equals `FleetSim` in every number.

    Raises:
        ValueError: A trace or a setup that makes no sense.
    """

    def __init__(self, trace: Trace, setup: FleetSetup) -> None:
        check_fleet(trace, setup)
        self._trace = trace
        self._setup = setup
        self._now_ps = 0
        self._state = new_state(trace, setup)
        self._slots: dict[int, int] = {}  # by member, of those in service
        self._free_slots = list(range(int(self._state.memory[tot.SLOTS])))[::-1]
        self._starting: list[tuple[int, int]] = []  # a heap of (ready_ps, member)
        self._roster = Roster(setup=setup, new_engine=self._new_engine)
        for member in self._roster.living:
            self._enter(member)
        self._list_candidates()

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
        return int(self._state.memory[tot.ARRIVED]) == len(self._trace) and not self._in_flight

    @property
    def _in_flight(self) -> int:
        t = self._state.memory
        return int(t[tot.ARRIVED] - t[tot.REFUSED] - t[tot.LOST] - t[tot.ANSWERED])

    def run_until(self, until_ps: int) -> None:
        """Process every event at or before `until_ps`, which becomes the present."""
        while self._starting and self._starting[0][0] <= until_ps:
            ready_ps, index = heapq.heappop(self._starting)
            self._advance(ready_ps)
            self._now_ps = max(self._now_ps, ready_ps)
            member = self._roster.members[index]
            if member.ended_ps is None:
                self._roster.is_ready(member, ready_ps)
                self._enter(member)
                self._list_candidates()
        self._advance(until_ps)
        self._now_ps = max(self._now_ps, until_ps)

    def scale_to(self, pool: int, asked: int, drain_first: Sequence[int] = ()) -> None:
        """Order what is missing, or drain what is ready beyond `asked`.

        Starting replicas count as supply and never as cover for a removal, as in the real plan. Those named first are
        drained first, then those with the fewest live requests, then the youngest.
        """
        roster = self._roster
        ready = roster.of(pool, ReplicaState.READY)
        for _ in range(asked - len(ready) - len(roster.of(pool, ReplicaState.STARTING))):
            member, ready_ps = roster.order(pool, self._now_ps)
            heapq.heappush(self._starting, (ready_ps, member.index))
        place = {index: i for i, index in enumerate(drain_first)}
        ready.sort(key=lambda m: (place.get(m.index, len(place)), m.engine.live, -m.index))
        for member in ready[: max(0, len(ready) - asked)]:
            self._drain(member)

    def drain(self, member: int) -> None:
        """Take a ready replica out of service; it ends when its last request is answered. No effect on others."""
        found = self._roster.members[member]
        if found.ended_ps is None and found.state is ReplicaState.READY:
            self._drain(found)

    def crash(self, member: int) -> None:
        """End a replica now, whatever its state; no effect on one that has ended.

        Its requests without a first token are routed again, up to `crash_retries` times each, in order of arrival; the
        others are cut.
        """
        found = self._roster.members[member]
        if found.ended_ps is not None:
            return
        self._roster.crash(found, self._now_ps)
        slot = self._slots.get(member)
        if slot is None:
            return
        count = int(self._state.board[slot])
        requests, tries = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        vacate(self._state, slot, requests, tries)
        self._leave(member)
        totals = self._state.memory
        for i in np.argsort(requests):
            request, tried = int(requests[i]), int(tries[i])
            unseen = self._state.requests[request * req.WIDTH + req.FIRST] < 0
            if unseen and tried < self._setup.crash_retries:
                route_again(self._state, request, tried + 1, self._now_ps)
            else:
                totals[tot.LOST] += 1
                totals[tot.PENDING] -= self._trace.prompt_tokens[request] if unseen else 0

    def members(self) -> tuple[MemberView, ...]:
        """Return the replicas that exist (starting, ready, draining), by index."""
        return self._roster.views()

    def events(self) -> tuple[MemberEvent, ...]:
        """Return everything that happened to replicas so far, in order."""
        return tuple(self._roster.events)

    def sample(self) -> FleetSample:
        """Return counters and gauges of now; KV_AWARE routing looks at the last sample taken."""
        t = self._state.memory
        members = sorted(self._slots)
        out = np.zeros((GAUGES, len(members)), dtype=np.int64)
        look(self._state, np.array([self._slots[m] for m in members], dtype=np.int64), self._now_ps, out)
        return FleetSample(
            at_ps=self._now_ps,
            arrived=int(t[tot.ARRIVED]),
            refused=int(t[tot.REFUSED]),
            lost=int(t[tot.LOST]),
            answered=int(t[tot.ANSWERED]),
            prompt_tokens=int(t[tot.PROMPT_TOKENS]),
            output_tokens=int(t[tot.OUTPUT_TOKENS]),
            pending_prompt_tokens=int(t[tot.PENDING]),
            in_flight=self._in_flight,
            ttft_counts=self._counts(tot.TTFT),
            tpot_counts=self._counts(tot.TPOT),
            e2e_counts=self._counts(tot.E2E),
            member=np.array(members, dtype=np.int64),
            live=out[0],
            running=out[1],
            waiting=out[2],
            kv_used_blocks=out[3],
            waiting_prompt_tokens=out[4],
            context_tokens=out[5],
            finished=out[6],
            prompt_done_tokens=out[7],
            output_done_tokens=out[8],
            preemptions=out[9],
            hit_tokens=out[10],
            looked_up_tokens=out[11],
        )

    def outcomes(self) -> Outcomes:
        """Return what became of the requests so far."""
        rows = self._state.requests.reshape(-1, req.WIDTH)
        return Outcomes(
            trace=self._trace,
            first_ps=rows[:, req.FIRST].copy(),
            ended_ps=rows[:, req.ENDED].copy(),
            member=rows[:, req.MEMBER].copy(),
        )

    def replica_ps(self, pool: int, until_ps: int) -> int:
        """Return replica time of a pool from each order to the end of its drain, up to `until_ps`."""
        return self._roster.replica_ps(pool, until_ps)

    def _advance(self, until_ps: int) -> None:
        until_ps = min(until_ps, NEVER - 1)
        while (why := advance(self._state, until_ps)) != DONE:
            if why == NEEDS_ROWS:
                self._state = with_rows(self._state)
                continue
            drained = int(self._state.memory[tot.DRAINED])
            member = self._roster.members[int(self._state.memory[drained + rep.MEMBER])]
            self._roster.end_if_drained(member, int(self._state.memory[tot.DRAINED_AT]))
            self._leave(member.index)

    def _new_engine(self, _pool: int) -> ReplicaSim:
        # The roster asks an engine one thing only: how many requests it has.
        return cast("ReplicaSim", _Engine(self))

    def live_at(self, slot: int) -> int:
        """Return the requests in flight in a slot, 0 in no slot."""
        return int(self._state.board[slot]) if slot >= 0 else 0

    def _counts(self, cell: int) -> Int64s:
        """Return the counts of the histogram whose place a cell tells."""
        memory = self._state.memory
        at = int(memory[cell])
        bounds = int(memory[at])
        return memory[at + 1 + bounds : at + 2 + 2 * bounds].copy()

    def _enter(self, member: Member) -> None:
        """Give a member that becomes ready a slot."""
        if not self._free_slots:
            have = int(self._state.memory[tot.SLOTS])
            self._state = with_slots(self._state, 2 * have)
            self._free_slots = list(range(have, 2 * have))[::-1]
        slot = self._free_slots.pop()
        self._slots[member.index] = slot
        cast("_Engine", member.engine).slot = slot
        open_slot(self._state, self._setup, slot, member=member.index, pool_index=member.pool)

    def _leave(self, index: int) -> None:
        """Take the slot of a member that has ended."""
        self._free_slots.append(self._slots.pop(index))
        cast("_Engine", self._roster.members[index].engine).slot = -1
        self._list_candidates()

    def _drain(self, member: Member) -> None:
        memory = self._state.memory
        at = int(memory[tot.REPLICAS] + self._slots[member.index] * memory[tot.REPLICA_WIDTH])
        memory[at + rep.DRAINING] = 1
        self._roster.drain(member, self._now_ps)
        if member.ended_ps is not None:
            self._leave(member.index)
        else:
            self._list_candidates()

    def _list_candidates(self) -> None:
        """Tell the kernels who is ready."""
        roster = self._roster
        first = roster.ready(Role.AGGREGATED) or roster.ready(Role.PREFILL)
        for part, members in ((READY, first), (DECODER, roster.ready(Role.DECODE))):
            list_slots(self._state, part, [self._slots[m.index] for m in members])


class _Engine:
    """What stands for a replica in the roster."""

    def __init__(self, fleet: FastFleet) -> None:
        self.slot = -1  # -1: not in service
        self._fleet = fleet

    @property
    def live(self) -> int:
        """Requests in flight."""
        return self._fleet.live_at(self.slot)
