"""Which node is best for one more replica: lexicographic ranks, lowest first."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tidegate.placement.cluster import Request


class Strategy(StrEnum):
    """What is preferred when several nodes fit."""

    SPREAD = "spread"  # survive the loss of a node or a domain
    COMPACT = "compact"  # keep whole nodes free for large replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """How many replicas of the pool are on each node and in each domain, with those of this very placement apart."""

    pool_on_node: Counter[str]
    pool_in_domain: Counter[str]
    new_on_node: Counter[str]


Rank = tuple[int, int, int, int, str]


def rank(
    strategy: Strategy,
    request: Request,
    node: str,
    *,
    free: Mapping[str, int],
    domain_of: Mapping[str, str],
    crowd: Crowd,
) -> Rank:
    """Return the node's rank for this request; the lowest is best, ties go to the smallest name.

    Spread: fewest replicas of the pool in the domain, then on the node, then most GPUs left. Compact: a node this
    placement uses already, then the domain the pool is in, then fewest GPUs left over (best fit).

    The terms are compared one after another, never summed: a weighted sum that is rounded turns ties into hidden
    packing by node order.
    """
    left = free[node] - request.gpus
    domain = domain_of[node]
    if strategy is Strategy.SPREAD:
        return (crowd.pool_in_domain[domain], crowd.pool_on_node[node], crowd.new_on_node[node], -left, node)
    return (0 if crowd.new_on_node[node] else 1, 0 if crowd.pool_in_domain[domain] else 1, left, 0, node)
