"""What a rehearsal needs of a simulated fleet; the plain one and the compiled one both are this."""

from collections.abc import Sequence
from typing import Protocol

from tidegate.sim.sample import FleetSample, MemberEvent, MemberView, Outcomes
from tidegate.sim.setup import FleetSetup
from tidegate.sim.trace import Trace


class Fleet(Protocol):
    """Replicas under load, in virtual time.

    Events of one instant are ordered: arrivals (by request), ends of engine steps (by member, each followed by the
    beginning of its next step and by hand-offs to decode replicas), replicas that become ready (by member).
    """

    @property
    def trace(self) -> Trace:
        """The load."""
        ...

    @property
    def setup(self) -> FleetSetup:
        """What the fleet is made of."""
        ...

    @property
    def now_ps(self) -> int:
        """The present."""
        ...

    @property
    def idle(self) -> bool:
        """Whether every request has arrived and been answered, refused or cut."""
        ...

    def run_until(self, until_ps: int) -> None:
        """Process every event at or before `until_ps`, which becomes the present."""
        ...

    def scale_to(self, pool: int, asked: int, drain_first: Sequence[int] = ()) -> None:
        """Order what is missing, or drain what is ready beyond `asked`.

        Starting replicas count as supply and never as cover for a removal. Members named first are drained first, then
        those with the fewest live requests, then the youngest.
        """
        ...

    def drain(self, member: int) -> None:
        """Take a ready replica out of service; it ends when its last request is answered. No effect on others."""
        ...

    def crash(self, member: int) -> None:
        """End a replica now, whatever its state.

        Its requests without a first token are routed again (up to `crash_retries` times each, in order of arrival), the
        others are cut.
        """
        ...

    def members(self) -> tuple[MemberView, ...]:
        """Return the replicas that exist (starting, ready, draining), by index."""
        ...

    def events(self) -> tuple[MemberEvent, ...]:
        """Return everything that happened to replicas so far, in order."""
        ...

    def sample(self) -> FleetSample:
        """Return counters and gauges of now; KV_AWARE routing looks at the last sample taken."""
        ...

    def outcomes(self) -> Outcomes:
        """Return what became of the requests so far."""
        ...

    def replica_ps(self, pool: int, until_ps: int) -> int:
        """Return replica time of a pool from each order to the end of its drain, up to `until_ps`."""
        ...
