"""All or nothing for a set of replicas: decided in one step on a snapshot, nothing is held while waiting."""

from collections import Counter
from collections.abc import Callable, Sequence

from tidegate.placement.cluster import Assignment, Cluster, Request
from tidegate.placement.score import Crowd, Strategy, rank
from tidegate.placement.topology import Domain, domains

_Order = Callable[[Request, str, dict[str, int], Crowd], tuple[object, ...]]


def place_together(requests: Sequence[Request], cluster: Cluster, strategy: Strategy) -> tuple[Assignment, ...] | None:
    """Return a node for every request, or None when not all of them fit.

    Several greedy orders are tried and the best result by the strategy is kept, so compact never uses more nodes than
    spread and both place or refuse the same sets. Greedy packing of unequal sizes is not complete: a set that only an
    exact packing would fit is refused (sizes that divide each other, such as 1, 2, 4 and 8 GPUs, always fit greedily).

    Args:
        requests: At least one; largest are placed first.
        cluster: What is free; not changed.
        strategy: What to prefer.

    Source: Johnson et al., Worst-case performance bounds for simple one-dimensional packing algorithms, SIAM J.
    Comput. 3 (1974): largest first; tightest domain that fits everything as in Kueue's topology-aware scheduling.
    """
    ordered = sorted(requests, key=lambda r: (-r.gpus, r.replica))
    spread = _greedy(ordered, cluster, Strategy.SPREAD, within=None)
    if strategy is Strategy.SPREAD and spread is not None:
        return spread
    tries = [spread, _greedy(ordered, cluster, Strategy.COMPACT, within=None), _roomiest_first(ordered, cluster)]
    tries += [_greedy(ordered, cluster, Strategy.COMPACT, within=d) for d in domains(cluster.nodes)]
    found = [t for t in tries if t is not None]
    if not found:
        return None
    if strategy is Strategy.SPREAD:
        return min(found, key=lambda t: (-_nodes_used(t), _names(t)))
    return min(found, key=lambda t: (_nodes_used(t), _domains_used(t, cluster), _left_beside(t, cluster), _names(t)))


def _nodes_used(placed: Sequence[Assignment]) -> int:
    return len({a.node for a in placed})


def _domains_used(placed: Sequence[Assignment], cluster: Cluster) -> int:
    home = _domain_of(domains(cluster.nodes))
    return len({home[a.node] for a in placed})


def _left_beside(placed: Sequence[Assignment], cluster: Cluster) -> int:
    free = cluster.with_taken(placed).free_gpus()
    return sum(free[node] for node in {a.node for a in placed})


def _names(placed: Sequence[Assignment]) -> tuple[str, ...]:
    return tuple(a.node for a in placed)


def _domain_of(every: Sequence[Domain]) -> dict[str, str]:
    return {node: d.name for d in every for node in d.nodes}


def _greedy(
    ordered: Sequence[Request], cluster: Cluster, strategy: Strategy, *, within: Domain | None
) -> tuple[Assignment, ...] | None:
    home = _domain_of(domains(cluster.nodes))

    def order(request: Request, node: str, free: dict[str, int], crowd: Crowd) -> tuple[object, ...]:
        return rank(strategy, request, node, free=free, domain_of=home, crowd=crowd)

    return _fill(ordered, cluster, order, allowed=None if within is None else frozenset(within.nodes))


def _roomiest_first(ordered: Sequence[Request], cluster: Cluster) -> tuple[Assignment, ...] | None:
    # Equal sizes: filling the roomiest node first needs the fewest nodes of all.
    def order(request: Request, node: str, free: dict[str, int], crowd: Crowd) -> tuple[object, ...]:
        used = 0 if crowd.new_on_node[node] else 1
        return (used, -(free[node] // request.gpus), free[node], node)

    return _fill(ordered, cluster, order, allowed=None)


def _fill(
    ordered: Sequence[Request], cluster: Cluster, order: _Order, *, allowed: frozenset[str] | None
) -> tuple[Assignment, ...] | None:
    free = cluster.free_gpus()
    accelerator = {n.name: n.accelerator for n in cluster.nodes}
    home = _domain_of(domains(cluster.nodes))
    new: Counter[str] = Counter()
    placed: list[Assignment] = []
    for request in ordered:
        peers = [a.node for a in (*cluster.taken, *placed) if a.pool == request.pool and a.node in home]
        crowd = Crowd(pool_on_node=Counter(peers), pool_in_domain=Counter(home[n] for n in peers), new_on_node=new)
        fits = [
            n
            for n in free
            if free[n] >= request.gpus
            and (allowed is None or n in allowed)
            and request.accelerator in {"", accelerator[n]}
        ]
        if not fits:
            return None
        best = min(fits, key=lambda n: order(request, n, free, crowd))
        free[best] -= request.gpus
        new[best] += 1
        placed.append(Assignment(replica=request.replica, pool=request.pool, node=best, gpus=request.gpus))
    return tuple(placed)
