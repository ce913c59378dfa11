"""Nodes, what runs on them, and how many GPUs are left."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tidegate.terms.fleet import Membership, PoolKey
from tidegate.terms.observation import NodeInventory


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One replica (or one rank of a gang) that needs a node.

    All its GPUs must be on one node. `accelerator` empty: any node will do. Requests with the same non-empty `gang`
    are placed together or not at all.
    """

    replica: str
    pool: PoolKey
    gpus: int  # >= 1
    accelerator: str = ""
    gang: str = ""

    def __post_init__(self) -> None:
        if self.gpus < 1:
            msg = f"request {self.replica}: gpus must be >= 1, got {self.gpus}"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A request and the node that takes it."""

    replica: str
    pool: PoolKey
    node: str
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The inventory with everything that occupies it. Nodes are unique by name."""

    nodes: tuple[NodeInventory, ...]
    taken: tuple[Assignment, ...] = ()

    def __post_init__(self) -> None:
        names = [n.name for n in self.nodes]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            msg = f"inventory: node names must be unique, got {', '.join(twice)} more than once"
            raise ValueError(msg)

    def free_gpus(self) -> dict[str, int]:
        """Return GPUs left per node, never negative, in the order of `nodes`.

        More taken than a node has (a GPU was lost under a running replica) counts as 0 left, not as debt.
        """
        used: dict[str, int] = {}
        for one in self.taken:
            used[one.node] = used.get(one.node, 0) + one.gpus
        return {n.name: max(0, n.gpus - used.get(n.name, 0)) for n in self.nodes}

    def with_taken(self, more: Iterable[Assignment]) -> "Cluster":
        """Return the cluster after `more` was placed."""
        return replace(self, taken=(*self.taken, *more))


def cluster_of(
    nodes: tuple[NodeInventory, ...], membership: Membership, gpus_per_replica: Mapping[PoolKey, int]
) -> Cluster:
    """Return the cluster as the membership occupies it.

    Every replica that still exists holds its GPUs: a draining one until it is gone, a failed one until it is cleared
    (its process may hang). Replicas without a node, or of a pool without a GPU count, hold nothing that can be told.
    """
    taken = tuple(
        Assignment(replica=r.name, pool=r.pool, node=r.node, gpus=gpus_per_replica[r.pool])
        for r in membership.replicas
        if r.node and r.pool in gpus_per_replica
    )
    return Cluster(nodes=nodes, taken=taken)
