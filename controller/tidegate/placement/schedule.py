"""Where new replicas go, or why they cannot."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.placement.cluster import Assignment, Cluster, Request
from tidegate.placement.gang import place_together
from tidegate.placement.score import Strategy
from tidegate.placement.topology import domains


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A node for every request, in the order of the requests.

    `unlabelled_nodes` are nodes used that carry no topology label: their distance to the others is not known.
    """

    assignments: tuple[Assignment, ...]
    strategy: Strategy
    unlabelled_nodes: tuple[str, ...] = ()

    def node_of(self, replica: str) -> str:
        """Return the node of a placed replica; KeyError when it was not asked for."""
        return {a.replica: a.node for a in self.assignments}[replica]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a set of requests was not placed; nothing of it was."""

    replicas: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """What `fill` placed and what it refused, each gang as a whole."""

    placements: tuple[Placement, ...]
    refusals: tuple[Refusal, ...]

    def nodes(self) -> dict[str, str]:
        """Return replica name → node of everything placed."""
        return {a.replica: a.node for p in self.placements for a in p.assignments}


def place(requests: Sequence[Request], cluster: Cluster, strategy: Strategy) -> Placement | Refusal:
    """Return nodes for all of `requests` together, or a refusal of all of them.

    Args:
        requests: Unique by replica name. Empty: an empty placement.
        cluster: Inventory and what occupies it; not changed.
        strategy: Spread or compact.

    Raises:
        ValueError: A replica name is asked for twice (a bug of the caller).
    """
    names = [r.replica for r in requests]
    if len(set(names)) != len(names):
        msg = f"placement: replica names must be unique, got {', '.join(sorted(names))}"
        raise ValueError(msg)
    if not requests:
        return Placement(assignments=(), strategy=strategy)
    found = place_together(requests, cluster, strategy)
    if found is None:
        return Refusal(replicas=tuple(names), reason=_why_not(requests, cluster))
    by_name = {a.replica: a for a in found}
    lone = {n for d in domains(cluster.nodes) if not d.labelled for n in d.nodes}
    return Placement(
        assignments=tuple(by_name[name] for name in names),
        strategy=strategy,
        unlabelled_nodes=tuple(sorted({a.node for a in found} & lone)),
    )


def fill(requests: Sequence[Request], cluster: Cluster, strategy: Strategy) -> Filling:
    """Return the placements of as many gangs as fit, in the order asked; a request without a gang is its own.

    A gang that does not fit leaves nothing behind, so a later and smaller one may still be placed.
    """
    gangs: dict[str, list[Request]] = {}
    for index, request in enumerate(requests):
        gangs.setdefault(request.gang or f"\0{index}", []).append(request)
    placed: list[Placement] = []
    refused: list[Refusal] = []
    for gang in gangs.values():
        match place(gang, cluster, strategy):
            case Placement() as placement:
                placed.append(placement)
                cluster = cluster.with_taken(placement.assignments)
            case Refusal() as refusal:
                refused.append(refusal)
    return Filling(placements=tuple(placed), refusals=tuple(refused))


def _why_not(requests: Sequence[Request], cluster: Cluster) -> str:
    free = cluster.free_gpus()
    asked = sum(r.gpus for r in requests)
    wanted = sorted({r.accelerator for r in requests if r.accelerator})
    usable = {
        n.name: free[n.name] for n in cluster.nodes if any(r.accelerator in {"", n.accelerator} for r in requests)
    }
    kind = f" of {', '.join(wanted)}" if wanted else ""
    if not usable:
        have = sorted({n.accelerator for n in cluster.nodes})
        return f"no node{kind}; the inventory has {', '.join(have) or 'no nodes'}"
    largest = max(r.gpus for r in requests)
    left = sum(usable.values())
    if asked <= left:
        return (
            f"{len(requests)} replica(s) need {asked} GPU(s){kind}, {largest} on one node; "
            f"{left} are free, at most {max(usable.values())} on one node"
        )
    total = sum(n.gpus for n in cluster.nodes if n.name in usable)
    return f"{len(requests)} replica(s) need {asked} GPU(s){kind}; {left} of {total} are free"
