"""The replicas of a simulated fleet: who exists, in which state, since when."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidegate.perf.profile import PS_PER_S
from tidegate.sim.replica import ReplicaSim
from tidegate.sim.sample import MemberEvent, MemberView
from tidegate.sim.setup import FleetSetup
from tidegate.terms.fleet import ReplicaState, Role


@dataclass(slots=True, kw_only=True)
class Member:
    """One replica, with the totals its metrics would show and what a router last saw of it."""

    index: int  # in order of birth over the whole fleet
    pool: int
    engine: ReplicaSim
    state: ReplicaState
    ordered_ps: int
    ready_ps: int | None = None
    draining_since_ps: int | None = None
    ended_ps: int | None = None
    finished: int = 0
    prompt_done_tokens: int = 0
    output_done_tokens: int = 0
    noted_ps: int = -1  # the next engine event the fleet has written down
    sampled_waiting: int = 0
    sampled_kv_used_blocks: int = 0
    sent_since_sample: int = 0


@dataclass(slots=True, kw_only=True)
class Roster:
    """Every replica there ever was. Times are picoseconds, handed in.

    Args:
        setup: What the fleet is made of.
        new_engine: Makes the engine of a new replica of a pool.
    """

    setup: FleetSetup
    new_engine: Callable[[int], ReplicaSim]
    members: list[Member] = field(default_factory=list)
    events: list[MemberEvent] = field(default_factory=list)
    _living: list[Member] = field(default_factory=list)  # by index
    _ready: dict[Role, list[Member]] = field(default_factory=dict)  # forgotten whenever a state changes
    _started: list[int] = field(default_factory=list)  # per pool: orders so far, initial ones not counted

    def __post_init__(self) -> None:
        self._started = [0] * len(self.setup.pools)
        for pool, one in enumerate(self.setup.pools):
            for _ in range(one.initial):
                self.is_ready(self._add(pool, 0), 0)

    @property
    def living(self) -> Sequence[Member]:
        """Those that exist, by index."""
        return self._living

    def ready(self, role: Role) -> Sequence[Member]:
        """Return the ready members of all pools of a role, by index."""
        found = self._ready.get(role)
        if found is None:
            pools = self.setup.pools
            found = [m for m in self._living if m.state is ReplicaState.READY and pools[m.pool].role is role]
            self._ready[role] = found
        return found

    def of(self, pool: int, state: ReplicaState) -> list[Member]:
        """Return the members of a pool that exist and are in a state, by index."""
        return [m for m in self._living if m.pool == pool and m.state is state]

    def order(self, pool: int, now_ps: int) -> tuple[Member, int]:
        """Return a new starting member and when it becomes ready: at the first sweep after its cold start."""
        member = self._add(pool, now_ps)
        sweep_ps = round(self.setup.sweep_s * PS_PER_S)
        cold_s = self.setup.pools[pool].cold_start.of(self._started[pool])
        self._started[pool] += 1
        ready_ps = now_ps + round(cold_s * PS_PER_S)
        return member, -(-ready_ps // sweep_ps) * sweep_ps

    def is_ready(self, member: Member, now_ps: int) -> None:
        """Put a starting member into service."""
        member.state = ReplicaState.READY
        member.ready_ps = now_ps
        self._changed("ready", member, now_ps)

    def drain(self, member: Member, now_ps: int) -> None:
        """Take a ready member out of service; it ends now if it is idle."""
        member.state = ReplicaState.DRAINING
        member.draining_since_ps = now_ps
        self._changed("draining", member, now_ps)
        self.end_if_drained(member, now_ps)

    def end_if_drained(self, member: Member, now_ps: int) -> None:
        """End a draining member that has nothing left to answer."""
        if member.state is ReplicaState.DRAINING and member.ended_ps is None and not member.engine.live:
            self._end(member, now_ps)

    def crash(self, member: Member, now_ps: int) -> None:
        """End a member whatever it is doing."""
        self._changed("crashed", member, now_ps)
        self._end(member, now_ps)

    def views(self) -> tuple[MemberView, ...]:
        """Return those that exist, by index."""
        return tuple(
            MemberView(
                index=m.index,
                pool=m.pool,
                state=m.state,
                live=m.engine.live,
                ordered_ps=m.ordered_ps,
                ready_ps=m.ready_ps,
                draining_since_ps=m.draining_since_ps,
            )
            for m in self._living
        )

    def replica_ps(self, pool: int, until_ps: int) -> int:
        """Return replica time of a pool from each order to its end, up to `until_ps`."""
        return sum(
            max(0, min(until_ps, until_ps if m.ended_ps is None else m.ended_ps) - m.ordered_ps)
            for m in self.members
            if m.pool == pool
        )

    def _add(self, pool: int, now_ps: int) -> Member:
        member = Member(
            index=len(self.members),
            pool=pool,
            engine=self.new_engine(pool),
            state=ReplicaState.STARTING,
            ordered_ps=now_ps,
        )
        self.members.append(member)
        self._living.append(member)
        self._changed("ordered", member, now_ps)
        return member

    def _end(self, member: Member, now_ps: int) -> None:
        member.ended_ps = now_ps
        self._living.remove(member)
        self._changed("ended", member, now_ps)

    def _changed(self, kind: str, member: Member, now_ps: int) -> None:
        self._ready.clear()
        self.events.append(MemberEvent(at_ps=now_ps, kind=kind, member=member.index, pool=member.pool))
