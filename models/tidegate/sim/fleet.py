"""A pool of simulated replicas behind one gateway, as discrete events.

Times are whole picoseconds. Events of one instant are ordered: arrivals, ends of engine steps, replicas that become
ready; and within a kind by the order in which they were made, so two runs never differ.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegate.perf.profile import PS_PER_S, EngineProfile
from tidegate.sim.arrivals import Arrival, in_order
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.events import SimRequest, Step
from tidegate.sim.outcome import Outcome
from tidegate.sim.replica import ReplicaSim
from tidegate.sim.routing import least_request
from tidegate.terms.fleet import ReplicaState

_STEP_RANK, _READY_RANK = 1, 2


@dataclass(slots=True, kw_only=True)
class Member:
    """One replica of the fleet, with the totals its metrics would show."""

    name: str
    index: int
    engine: ReplicaSim
    state: ReplicaState
    ordered_ps: int
    ready_ps: int | None = None
    draining_since_ps: int | None = None
    ended_ps: int | None = None
    finished: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0


@dataclass(slots=True, kw_only=True)
class _Request:
    """A request under way."""

    index: int
    arrival: Arrival
    member: Member
    first_ps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleEvent:
    """A replica was ordered, became ready, was taken out of service, or ended."""

    at_s: float
    kind: str  # "ordered", "ready", "draining", "ended"
    replica: str


@dataclass(slots=True, kw_only=True)
class FleetSim:
    """The fleet. `run_until` moves time on; `scale_to` orders and drains between two moments.

    Args:
        arrivals: Any order.
        profile: The engine every replica behaves like.
        cold_start: From order to ready.
        initial: Replicas that are ready at 0, >= 0.
        sweep_s: A replica's readiness is noticed at multiples of this, > 0.
    """

    arrivals: Sequence[Arrival]
    profile: EngineProfile
    cold_start: ColdStart
    initial: int
    sweep_s: float = 1.0
    now_ps: int = 0
    members: list[Member] = field(default_factory=list)
    events: list[ScaleEvent] = field(default_factory=list)
    arrived: int = 0  # requests that have reached the gateway
    refused: int = 0  # of them: no replica was ready, or too long for the engine
    prompt_tokens: int = 0
    output_tokens: int = 0  # asked for, by requests arrived
    _heap: list[tuple[int, int, int, int]] = field(default_factory=list)  # time, rank, counter, member
    _pushed: int = 0
    _live: dict[int, _Request] = field(default_factory=dict)
    _outcomes: dict[int, Outcome] = field(default_factory=dict)
    _ended: list[tuple[int, int]] = field(default_factory=list)  # (when it was answered or refused, index)

    def __post_init__(self) -> None:
        self.arrivals = in_order(self.arrivals)
        for _ in range(self.initial):
            member = self._order()
            self._is_ready(member)

    @property
    def idle(self) -> bool:
        """Whether every request has arrived and been answered or refused."""
        return self.arrived == len(self.arrivals) and not self._live

    def of(self, *states: ReplicaState) -> list[Member]:
        """Return the members that exist and are in any of `states`."""
        return [m for m in self.members if m.ended_ps is None and m.state in states]

    def outcomes(self) -> tuple[Outcome, ...]:
        """Return one outcome per arrival, in order; what is not answered yet counts as not answered."""
        return tuple(self._outcomes.get(i, Outcome(arrival=a, answered=False)) for i, a in enumerate(self.arrivals))

    def ended_within(self, since_ps: int, until_ps: int) -> list[Outcome]:
        """Return what was answered or refused after `since_ps` and not after `until_ps`, newest first."""
        found = []
        for at_ps, index in reversed(self._ended):
            if at_ps <= since_ps:
                break
            if at_ps <= until_ps:
                found.append(self._outcomes[index])
        return found

    def replica_ps(self, until_ps: int) -> int:
        """Return replica time from each order to the end of its drain, up to `until_ps`."""
        return sum(
            max(0, min(until_ps, until_ps if m.ended_ps is None else m.ended_ps) - m.ordered_ps) for m in self.members
        )

    def run_until(self, until_ps: int) -> None:
        """Process every event at or before `until_ps`."""
        while True:
            arrival_ps = self._next_arrival_ps()
            event_ps = self._heap[0][0] if self._heap else None
            if arrival_ps is not None and arrival_ps <= until_ps and (event_ps is None or arrival_ps <= event_ps):
                self.now_ps = arrival_ps
                self._arrive()
            elif event_ps is not None and event_ps <= until_ps:
                self.now_ps = event_ps
                self._happen()
            else:
                self.now_ps = max(self.now_ps, until_ps)
                return

    def scale_to(self, asked: int, drain_first: Sequence[str] = ()) -> None:
        """Order what is missing, or drain what is ready beyond `asked`.

        Starting replicas count as supply and never as cover for a removal, as in the real plan. Those named first are
        drained first, then the emptiest, then the youngest.
        """
        ready = self.of(ReplicaState.READY)
        for _ in range(asked - len(ready) - len(self.of(ReplicaState.STARTING))):
            self._start(self._order())
        place = {name: i for i, name in enumerate(drain_first)}
        ready.sort(key=lambda m: (place.get(m.name, len(place)), m.engine.live, -m.index))
        for member in ready[: max(0, len(ready) - asked)]:
            member.state = ReplicaState.DRAINING
            member.draining_since_ps = self.now_ps
            self._note("draining", member)
            self._end_if_drained(member)

    def _order(self) -> Member:
        index = len(self.members)
        member = Member(
            name=f"r{index}",
            index=index,
            engine=ReplicaSim(self.profile),
            state=ReplicaState.STARTING,
            ordered_ps=self.now_ps,
        )
        self.members.append(member)
        self._note("ordered", member)
        return member

    def _start(self, member: Member) -> None:
        sweep_ps = round(self.sweep_s * PS_PER_S)
        ready_ps = self.now_ps + round(self.cold_start.of(member.index - self.initial) * PS_PER_S)
        self._push(-(-ready_ps // sweep_ps) * sweep_ps, _READY_RANK, member)

    def _is_ready(self, member: Member) -> None:
        member.state = ReplicaState.READY
        member.ready_ps = self.now_ps
        self._note("ready", member)

    def _next_arrival_ps(self) -> int | None:
        return round(self.arrivals[self.arrived].at_s * PS_PER_S) if self.arrived < len(self.arrivals) else None

    def _arrive(self) -> None:
        index = self.arrived
        arrival = self.arrivals[index]
        self.arrived += 1
        self.prompt_tokens += arrival.prompt_tokens
        self.output_tokens += arrival.output_tokens
        ready = self.of(ReplicaState.READY)
        if ready:
            member = ready[least_request([m.engine.live for m in ready], index)]
            asked = SimRequest(key=index, prompt_tokens=arrival.prompt_tokens, output_tokens=arrival.output_tokens)
            if member.engine.submit(asked, self.now_ps):
                self._live[index] = _Request(index=index, arrival=arrival, member=member)
                self._push_next(member)
                return
        self.refused += 1
        self._outcomes[index] = Outcome(arrival=arrival, answered=False)
        self._ended.append((self.now_ps, index))

    def _happen(self) -> None:
        at_ps, rank, _, index = heapq.heappop(self._heap)
        member = self.members[index]
        if rank == _READY_RANK:
            self._is_ready(member)
        elif member.engine.next_at_ps() == at_ps:  # else an older note of a step that was moved
            for step in member.engine.step_until(at_ps):
                self._account(member, step)
            self._push_next(member)
            self._end_if_drained(member)

    def _account(self, member: Member, step: Step) -> None:
        member.preemptions += len(step.preempted)
        member.output_tokens += len(step.emitted)
        for key in step.emitted:
            request = self._live[key]
            if request.first_ps is None:
                request.first_ps = step.ended_at_ps
                member.prompt_tokens += request.arrival.prompt_tokens
        for key in step.finished:
            member.finished += 1
            self._outcomes[key] = _outcome(self._live.pop(key), step.ended_at_ps)
            self._ended.append((step.ended_at_ps, key))

    def _end_if_drained(self, member: Member) -> None:
        if member.state is ReplicaState.DRAINING and member.ended_ps is None and not member.engine.live:
            member.ended_ps = self.now_ps
            self._note("ended", member)

    def _push(self, at_ps: int, rank: int, member: Member) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (at_ps, rank, self._pushed, member.index))

    def _push_next(self, member: Member) -> None:
        next_ps = member.engine.next_at_ps()
        if next_ps is not None:
            self._push(next_ps, _STEP_RANK, member)

    def _note(self, kind: str, member: Member) -> None:
        self.events.append(ScaleEvent(at_s=self.now_ps / PS_PER_S, kind=kind, replica=member.name))


def _outcome(request: _Request, ended_ps: int) -> Outcome:
    arrived_ps = round(request.arrival.at_s * PS_PER_S)
    first_ps = ended_ps if request.first_ps is None else request.first_ps
    gaps = request.arrival.output_tokens - 1
    return Outcome(
        arrival=request.arrival,
        answered=True,
        ttft_s=(first_ps - arrived_ps) / PS_PER_S,
        tpot_s=(ended_ps - first_ps) / gaps / PS_PER_S if gaps else None,
        e2e_s=(ended_ps - arrived_ps) / PS_PER_S,
        replica=request.member.name,
    )
