"""Topology domains: which nodes are close to each other."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.terms.observation import NodeInventory


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Nodes that share a rack, a switch or an NVLink fabric.

    `labelled` is False for a node whose label is missing: it forms a leaf domain of its own, so that required placement
    neither excludes it silently nor believes it close to the others.
    """

    name: str
    nodes: tuple[str, ...]  # ascending
    labelled: bool


def domains(nodes: Iterable[NodeInventory]) -> tuple[Domain, ...]:
    """Return the domains, labelled ones first, each group by name ascending."""
    members: dict[str, list[str]] = {}
    lone: list[str] = []
    for node in nodes:
        if node.topology_domain:
            members.setdefault(node.topology_domain, []).append(node.name)
        else:
            lone.append(node.name)
    known = [Domain(name=name, nodes=tuple(sorted(members[name])), labelled=True) for name in sorted(members)]
    # "node/" cannot start a label value of a rack in Kubernetes' spelling, so a leaf never merges with a rack.
    leaves = [Domain(name=f"node/{name}", nodes=(name,), labelled=False) for name in sorted(lone)]
    return (*known, *leaves)


def labelled_ratio(nodes: Iterable[NodeInventory]) -> float:
    """Return the share of nodes that carry a topology label, 0..1; 1.0 of an empty inventory."""
    every = list(nodes)
    return sum(1 for n in every if n.topology_domain) / len(every) if every else 1.0
