"""All of Envoy's configuration at one moment, with a version that is its content."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.gateway import clusters
from tidegate.gateway.content import CLUSTER, ENDPOINTS, LISTENER, ROUTES, Body, version_of
from tidegate.gateway.envoy import LISTENER_NAME, ListenerSettings, listener
from tidegate.gateway.routes import ROUTES_NAME, route_configuration
from tidegate.terms.fleet import Membership, PoolKey, Replica, ReplicaState
from tidegate.terms.policy import ServicePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A self-consistent set of resources: every route's cluster and every cluster's endpoints are in it.

    `resources` and `versions` are keyed by type URL, then by resource name. Equal content has equal versions.
    """

    version: str
    resources: Mapping[str, Mapping[str, Body]]
    versions: Mapping[str, Mapping[str, str]]


def build(
    policies: Sequence[ServicePolicy],
    membership: Membership,
    *,
    listening: ListenerSettings,
    weights: Mapping[PoolKey, int] | None = None,
) -> Snapshot:
    """Return the gateway's configuration for these services and this fleet.

    Only READY replicas with an address are endpoints; replicas of pools no policy names are ignored.

    Args:
        policies: Services; names and models must differ.
        membership: Every replica there is.
        listening: Where Envoy listens and logs.
        weights: Share of each pool within its service; by default its number of ready replicas.

    Raises:
        BadInputError: Two services serve one model, or a model's name cannot be routed on.
    """
    pools = sorted(pool.key for policy in policies for pool in policy.pools)
    ready: dict[PoolKey, list[Replica]] = {key: [] for key in pools}
    for replica in membership.replicas:
        if replica.pool in ready and replica.state is ReplicaState.READY and replica.address:
            ready[replica.pool].append(replica)
    shares = {key: len(ready[key]) for key in pools} if weights is None else weights
    return snapshot_of(
        {
            CLUSTER: {str(key): clusters.cluster(key) for key in pools},
            ENDPOINTS: {str(key): clusters.endpoints(key, ready[key]) for key in pools},
            LISTENER: {LISTENER_NAME: listener(listening)},
            ROUTES: {ROUTES_NAME: route_configuration(policies, shares)},
        }
    )


def snapshot_of(resources: Mapping[str, Mapping[str, Body]]) -> Snapshot:
    """Return the snapshot of these resources."""
    versions = {kind: {name: version_of(body) for name, body in named.items()} for kind, named in resources.items()}
    return Snapshot(version=version_of(versions), resources=resources, versions=versions)
