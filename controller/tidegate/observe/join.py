"""Every per-replica series joined with the live membership; series of anybody else are left out."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidegate.observe.queries import UP
from tidegate.observe.result import Series
from tidegate.observe.settings import ObserveSettings
from tidegate.terms.fleet import Membership, PoolKey, Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSeries:
    """All series of one replica, by metric name."""

    by_name: Mapping[str, tuple[Series, ...]] = field(default_factory=dict)

    def of(self, name: str) -> tuple[Series, ...]:
        """Return the series of one metric."""
        return self.by_name.get(name, ())

    @property
    def up(self) -> tuple[float, bool] | None:
        """(Newest scrape time, whether it succeeded), or None when Prometheus has no such target."""
        newest = max((s.samples[-1] for s in self.of(UP)), default=None)
        return None if newest is None else (newest[0], newest[1] == 1.0)


NO_SERIES = ReplicaSeries()

ReplicaKey = tuple[PoolKey, str]


def join(
    series: Iterable[Series], membership: Membership, settings: ObserveSettings
) -> dict[ReplicaKey, ReplicaSeries]:
    """Return each member's series; members without any are not in the result.

    A series belongs to the replica its labels name: the replica label, with service and pool labels where it has them;
    failing a replica label, to the replica at the address in `instance`.
    """
    by_name: dict[str, list[Replica]] = defaultdict(list)
    by_address: dict[str, Replica] = {}
    for replica in membership.replicas:
        by_name[replica.name].append(replica)
        if replica.address:
            by_address[replica.address] = replica
    found: dict[ReplicaKey, dict[str, list[Series]]] = defaultdict(lambda: defaultdict(list))
    for one in series:
        owner = _owner(one, by_name, by_address, settings)
        if owner is not None:
            found[owner.pool, owner.name][one.name].append(one)
    return {
        key: ReplicaSeries(by_name={name: tuple(all_) for name, all_ in names.items()}) for key, names in found.items()
    }


def _owner(
    series: Series, by_name: Mapping[str, list[Replica]], by_address: Mapping[str, Replica], settings: ObserveSettings
) -> Replica | None:
    labels = series.labels
    named = labels.get(settings.replica_label)
    candidates: Iterable[Replica | None] = (
        by_name.get(named, ()) if named else (by_address.get(labels.get("instance", "")),)
    )
    for replica in candidates:
        if (
            replica is not None
            and labels.get(settings.service_label, replica.pool.service) == replica.pool.service
            and labels.get(settings.pool_label, replica.pool.pool) == replica.pool.pool
        ):
            return replica
    return None
