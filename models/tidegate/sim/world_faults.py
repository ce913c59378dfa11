"""Faults of the world a law acts on, and the hands that carry out what it asks while they last."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tidegate.perf.profile import PS_PER_S
from tidegate.sim.faults import SPOT_SHARE_RATIO, Fault, FaultName
from tidegate.sim.fleet_protocol import Fleet
from tidegate.sim.sample import MemberView
from tidegate.terms.fleet import PoolKey, ReplicaState


class Happening(StrEnum):
    """What a moment brings."""

    CONTROLLER_DOWN = "controller_down"
    CONTROLLER_UP = "controller_up"
    NO_NODES = "no_nodes"
    NODES = "nodes"
    CRASH = "crash"
    SPOT_NOTICE = "spot_notice"
    SPOT_GONE = "spot_gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One end of a fault."""

    at_ps: int
    what: Happening


_ENDS: dict[FaultName, tuple[Happening, Happening | None]] = {
    FaultName.CONTROLLER_RESTART: (Happening.CONTROLLER_DOWN, Happening.CONTROLLER_UP),
    FaultName.PODS_PENDING: (Happening.NO_NODES, Happening.NODES),
    FaultName.REPLICA_CRASH: (Happening.CRASH, None),
    FaultName.SPOT_LOSS: (Happening.SPOT_NOTICE, Happening.SPOT_GONE),
}


def moments_of(faults: Sequence[Fault]) -> list[Moment]:
    """Return when the world's faults begin and end, in order; those of one moment in the order given."""
    found: list[Moment] = []
    for one in faults:
        if one.name not in _ENDS:
            continue
        begins, ends = _ENDS[one.name]
        found.append(Moment(at_ps=round(one.start_s * PS_PER_S), what=begins))
        if ends is not None:
            found.append(Moment(at_ps=round(one.end_s * PS_PER_S), what=ends))
    return sorted(found, key=lambda m: m.at_ps)


@dataclass(slots=True, kw_only=True)
class _Pool:
    """What is asked of one pool, and since when each replica without a node has been waiting for one."""

    number: int
    asked: int
    pending_s: list[float] = field(default_factory=list)


class World:
    """Orders and drains replicas as asked, as far as the world lets it; a replica lost is ordered again at once."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._pools = {p.key: _Pool(number=i, asked=p.initial) for i, p in enumerate(fleet.setup.pools)}
        self._no_nodes = 0
        self._down = 0
        self._leaving: list[tuple[int, ...]] = []  # members of each spot notice under way

    @property
    def controller_down(self) -> bool:
        """Whether nobody decides."""
        return self._down > 0

    @property
    def pending_s(self) -> dict[PoolKey, tuple[float, ...]]:
        """By pool, when each replica that has no node yet was ordered."""
        return {key: tuple(pool.pending_s) for key, pool in self._pools.items() if pool.pending_s}

    def scale_to(self, key: PoolKey, asked: int, drain_first: Sequence[str] = ()) -> None:
        """Order what is missing or drain what is too many.

        Without nodes what is missing is ordered and stays pending; those are the first to go again.

        Raises:
            KeyError: No such pool: a bug in the law.
        """
        pool = self._pools[key]
        pool.asked = asked
        if self._no_nodes:
            missing = max(0, asked - self._existing(pool.number))
            now_s = self._fleet.now_ps / PS_PER_S
            pool.pending_s = (pool.pending_s + [now_s] * max(0, missing - len(pool.pending_s)))[:missing]
            if missing:
                return
        self._fleet.scale_to(pool.number, asked, [int(name[1:]) for name in drain_first if name.startswith("r")])

    def happen(self, moment: Moment) -> bool:
        """Carry out one moment; return whether a controller has come back that may have forgotten."""
        match moment.what:
            case Happening.CONTROLLER_DOWN:
                self._down += 1
            case Happening.CONTROLLER_UP:
                self._down -= 1
                return True
            case Happening.NO_NODES:
                self._no_nodes += 1
            case Happening.NODES:
                self._no_nodes -= 1
                self._refill()
            case Happening.CRASH:
                for member in self._busiest(1):
                    self._fleet.crash(member.index)
                self._refill()
            case Happening.SPOT_NOTICE:
                self._spot_notice()
            case Happening.SPOT_GONE:
                self._spot_gone()
        return False

    def _spot_notice(self) -> None:
        ready = [m for m in self._fleet.members() if m.state is ReplicaState.READY]
        taken = tuple(m.index for m in self._busiest(max(1, round(SPOT_SHARE_RATIO * len(ready)))))
        self._leaving.append(taken)
        for member in taken:
            self._fleet.drain(member)
        self._refill()

    def _spot_gone(self) -> None:
        there = {m.index for m in self._fleet.members()}
        for member in self._leaving.pop(0):
            if member in there:
                self._fleet.crash(member)

    def _busiest(self, count: int) -> list[MemberView]:
        """Return the ready replicas with the most requests, the oldest first among equals."""
        ready = [m for m in self._fleet.members() if m.state is ReplicaState.READY]
        return sorted(ready, key=lambda m: (-m.live, m.index))[:count]

    def _refill(self) -> None:
        """Order again what is asked for and not there."""
        for key, pool in self._pools.items():
            if not self._no_nodes:
                pool.pending_s = []
            if self._existing(pool.number) < pool.asked:
                self.scale_to(key, pool.asked)

    def _existing(self, number: int) -> int:
        alive = (ReplicaState.READY, ReplicaState.STARTING)
        return sum(m.pool == number and m.state in alive for m in self._fleet.members())
