"""What a pool has: replicas by state, and what was asked for before."""

import math
from dataclasses import dataclass

from tidegate.terms.decision import PoolMemory
from tidegate.terms.fleet import PoolKey, ReplicaState
from tidegate.terms.observation import PoolObservation, ReplicaObservation
from tidegate.terms.policy import Mode, PoolPolicy
from tidegate.terms.signal import Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """Replica counts of one pool at the time of the decision."""

    key: PoolKey
    ready_replicas: int
    starting_replicas: int
    draining_replicas: int
    failed_replicas: int
    asked_before_replicas: int
    newest_ready_at_s: float | None = None

    @property
    def live_replicas(self) -> int:
        """Ready and starting: what the asked number is compared with."""
        return self.ready_replicas + self.starting_replicas

    @property
    def pending_replicas(self) -> int:
        """Asked for and not ready: supply to come, never removable."""
        return max(0, self.asked_before_replicas - self.ready_replicas)

    @property
    def leaving_replicas(self) -> int:
        """Draining, or already beyond what was asked for and about to drain."""
        return self.draining_replicas + max(0, self.live_replicas - self.asked_before_replicas)


def supply_of(policy: PoolPolicy, observed: PoolObservation | None, memory: PoolMemory | None, *, mode: Mode) -> Supply:
    """Return the pool's counts.

    Without memory the number asked before is what exists (a failed replica counts: it was asked for by someone), or
    the minimum when nothing exists: bounds are certain even when load is not. In advise mode nothing is written, so
    what was advised before says nothing about the fleet, and what exists is taken each time.
    """
    states = [r.replica.state for r in observed.replicas] if observed else []
    count = states.count
    exists = count(ReplicaState.READY) + count(ReplicaState.STARTING) + count(ReplicaState.FAILED)
    remembered = memory.asked_replicas if memory is not None and mode is Mode.ACT else exists
    ready_times = [
        r.replica.ready_at_s
        for r in (observed.replicas if observed else ())
        if r.replica.state is ReplicaState.READY and r.replica.ready_at_s is not None
    ]
    return Supply(
        key=policy.key,
        ready_replicas=count(ReplicaState.READY),
        starting_replicas=count(ReplicaState.STARTING),
        draining_replicas=count(ReplicaState.DRAINING),
        failed_replicas=count(ReplicaState.FAILED),
        asked_before_replicas=remembered if remembered > 0 or memory is not None else policy.min_replicas,
        newest_ready_at_s=max(ready_times, default=None),
    )


def leave_order(
    observed: PoolObservation | None, *, excess_replicas: int, spare_ready_replicas: int
) -> tuple[str, ...]:
    """Return the names that go first, `excess_replicas` of them.

    Ready replicas go emptiest first (unknown load counts as full), the youngest first among equals because its prefix
    cache is worth least. A starting replica goes only when ready ones cannot be spared (`spare_ready_replicas` below
    the excess): then a bound forces the cut, and what serves nothing yet is the cheaper loss.
    """
    if observed is None or excess_replicas <= 0:
        return ()
    ready = [r for r in observed.replicas if r.replica.state is ReplicaState.READY]
    starting = [r for r in observed.replicas if r.replica.state is ReplicaState.STARTING]
    ready.sort(key=_emptiest_first)
    starting.sort(key=lambda r: (-r.replica.ordered_at_s, r.replica.name))
    forced = max(0, excess_replicas - max(0, spare_ready_replicas))
    order = starting[:forced] + ready
    return tuple(r.replica.name for r in order[:excess_replicas])


def _emptiest_first(observed: ReplicaObservation) -> tuple[float, float, str]:
    running, waiting, replica = observed.running_requests, observed.waiting_requests, observed.replica
    load = math.inf if isinstance(running, Unknown) or isinstance(waiting, Unknown) else running.number + waiting.number
    born = replica.ready_at_s if replica.ready_at_s is not None else replica.ordered_at_s
    return (load, -born, replica.name)
