"""The gateway as the loop sees it: membership in, acknowledged snapshots out."""

from collections.abc import Sequence

from tidegate.actuate.xds import AdsServer
from tidegate.gateway.envoy import ListenerSettings
from tidegate.gateway.snapshot import Snapshot, build
from tidegate.terms.fleet import Membership, ReplicaState
from tidegate.terms.policy import ServicePolicy

# Long enough for every connected Envoy to take an endpoint change (about 5 ms), short beside a sweep.
_ACK_WAIT_S = 0.4


class EnvoyGateway:
    """Publishes endpoints by delta ADS."""

    def __init__(self, ads: AdsServer, listening: ListenerSettings) -> None:
        self._ads = ads
        self._listening = listening
        self._snapshot: Snapshot | None = None

    async def publish(self, policies: Sequence[ServicePolicy], membership: Membership) -> None:
        """Publish the endpoints; when a replica is draining, wait a moment for the acknowledgement it needs."""
        self._snapshot = build(policies, membership, listening=self._listening)
        self._ads.publish(self._snapshot)
        if any(r.state is ReplicaState.DRAINING for r in membership.replicas):
            await self._ads.wait_acked(self._snapshot.version, _ACK_WAIT_S)

    def acked(self) -> bool:
        """Return whether at least one gateway is connected and all have the newest snapshot."""
        return self._snapshot is not None and self._ads.acked(self._snapshot.version)


class NoGateway:
    """Serves no gateway anything: for a dry run, which must not take the endpoints of a serving one."""

    async def publish(self, policies: Sequence[ServicePolicy], membership: Membership) -> None:
        """Do nothing."""

    def acked(self) -> bool:
        """Return False: nobody has taken anything."""
        return False
