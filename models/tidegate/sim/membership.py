"""Who is in the simulated fleet, in the words of an observation; rebuilt only where something changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate.perf.profile import PS_PER_S
from tidegate.sim.sample import MemberView
from tidegate.sim.trace import Int64Array
from tidegate.terms.fleet import PoolKey, Replica, ReplicaState
from tidegate.terms.observation import ReplicaObservation
from tidegate.terms.signal import Signal, UnknownReason, unknown

SOURCE = "simulated"
# Made once: a signal that no law asked for is the same at every moment.
NOT_ASKED: Signal = unknown(UnknownReason.NOT_OFFERED, "not asked for", now_s=0.0, source=SOURCE)


def replica_name(index: int) -> str:
    """Return the name of the `index`-th replica of the fleet."""
    return f"r{index}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolMembers:
    """One pool's replicas, by name; `members` are their numbers in the same order, -1 for those without a node."""

    replicas: tuple[Replica, ...]
    members: Int64Array
    ready: Int64Array  # numbers of the ready ones, ascending
    bare: tuple[ReplicaObservation, ...]  # with no signal asked for


_NOBODY = PoolMembers(
    replicas=(), members=np.zeros(0, dtype=np.int64), ready=np.zeros(0, dtype=np.int64), bare=()
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class MembershipView:
    """Membership as the actuator knows it: always fresh.

    Args:
        keys: The pools of the fleet setup, in order.
        initial: Replicas that were there at 0; their start tells nothing.
    """

    keys: tuple[PoolKey, ...]
    initial: int
    _seen: tuple[object, ...] = ()
    _pools: dict[PoolKey, PoolMembers] = field(default_factory=dict)
    _terms: dict[int, tuple[Replica, ReplicaObservation]] = field(default_factory=dict)
    _pool_of: Int64Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _starts: dict[int, tuple[int, float]] = field(default_factory=dict)  # member -> (pool, seconds)

    def update(self, views: Sequence[MemberView], pending_s: Mapping[PoolKey, Sequence[float]]) -> None:
        """Take note of who exists now.

        Args:
            views: The replicas that exist, by index.
            pending_s: By pool, when each replica that has no node yet was ordered.
        """
        seen = (tuple([(v.index, v.state) for v in views]), tuple((k, tuple(p)) for k, p in pending_s.items()))
        if seen == self._seen:
            return
        self._seen = seen
        self._terms = {v.index: self._known(v) for v in views}
        by_pool: dict[int, list[MemberView]] = {}
        for view in views:
            by_pool.setdefault(view.pool, []).append(view)
            if view.ready_ps is not None and view.index >= self.initial:
                self._starts.setdefault(view.index, (view.pool, (view.ready_ps - view.ordered_ps) / PS_PER_S))
        self._note_pools(views)
        self._pools = {
            key: self._pool(key, by_pool.get(number, []), pending_s.get(key, ()))
            for number, key in enumerate(self.keys)
        }

    def of(self, key: PoolKey) -> PoolMembers:
        """Return one pool's replicas."""
        return self._pools.get(key, _NOBODY)

    def pool_of(self, members: Int64Array) -> Int64Array:
        """Return the pool of each member, by number in the setup; -1 where it was never seen."""
        if len(members) and members[-1] >= len(self._pool_of):
            self._widen(int(members[-1]))
        found: Int64Array = self._pool_of[members]
        return found

    def cold_starts(self, key: PoolKey) -> tuple[float, ...]:
        """Return seconds from order to ready of each start seen, in order of birth."""
        number = self.keys.index(key) if key in self.keys else -1
        return tuple(took_s for _, (pool, took_s) in sorted(self._starts.items()) if pool == number)

    def _known(self, view: MemberView) -> tuple[Replica, ReplicaObservation]:
        old = self._terms.get(view.index)
        if old is not None and old[0].state is view.state:
            return old
        name = replica_name(view.index)
        replica = Replica(
            name=name,
            pool=self.keys[view.pool],
            state=view.state,
            address=f"{name}:8000",
            ordered_at_s=view.ordered_ps / PS_PER_S,
            ready_at_s=_seconds(view.ready_ps),
            draining_since_s=_seconds(view.draining_since_ps),
        )
        return replica, bare(replica)

    def _pool(self, key: PoolKey, views: Sequence[MemberView], pending_s: Sequence[float]) -> PoolMembers:
        known = [(*self._terms[v.index], v.index) for v in views]
        for place, ordered_s in enumerate(pending_s):
            replica = Replica(name=f"pending{place}", pool=key, state=ReplicaState.STARTING, ordered_at_s=ordered_s)
            known.append((replica, bare(replica), -1))
        known.sort(key=lambda k: k[0].name)
        return PoolMembers(
            replicas=tuple(k[0] for k in known),
            members=np.array([k[2] for k in known], dtype=np.int64),
            ready=np.array([v.index for v in views if v.state is ReplicaState.READY], dtype=np.int64),
            bare=tuple(k[1] for k in known),
        )

    def _note_pools(self, views: Sequence[MemberView]) -> None:
        if views and views[-1].index >= len(self._pool_of):
            self._widen(views[-1].index)
        for view in views:
            self._pool_of[view.index] = view.pool

    def _widen(self, index: int) -> None:
        wider = np.full(2 * (index + 1), -1, dtype=np.int64)
        wider[: len(self._pool_of)] = self._pool_of
        self._pool_of = wider


def bare(replica: Replica) -> ReplicaObservation:
    """Return a replica of which only its state is known."""
    return ReplicaObservation(
        replica=replica,
        running_requests=NOT_ASKED,
        waiting_requests=NOT_ASKED,
        kv_used_ratio=NOT_ASKED,
        finished_per_s=NOT_ASKED,
        prompt_tokens_per_s=NOT_ASKED,
        output_tokens_per_s=NOT_ASKED,
        preemptions_per_s=NOT_ASKED,
    )


def _seconds(at_ps: int | None) -> float | None:
    return None if at_ps is None else at_ps / PS_PER_S
