"""The local fleet as another controller keeps it: read and asked for its health, never changed and never locked."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tidegate.actuate import local_process as process
from tidegate.actuate.local_health import Health, probe_all
from tidegate.actuate.local_ledger import identity
from tidegate.actuate.local_rules import Doubt, failed, judged
from tidegate.actuate.local_state import FleetState, LocalReplica, load_state
from tidegate.actuate.local_watch import PROBE_DEADLINE_S
from tidegate.terms.fleet import Membership, PoolKey, ReplicaState


class FleetGlance:
    """Reads `fleet.json` anew at each look, and judges what it names by process and `/health`.

    A living controller keeps the file true; without one, processes may have ended since. May run beside a controller.

    Args:
        state_dir: The state folder; without a `fleet.json` the fleet is empty.

    Raises:
        BadInputError: The state file is not one.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "fleet.json"
        self._doubts: dict[str, Doubt] = {}
        self._ready_at_s: dict[str, float] = {}
        self._load()

    def membership(self, now_s: float) -> Membership:
        """Return every replica that exists; takes at most about `local_watch.PROBE_DEADLINE_S`."""
        state = self._load()
        same_boot = state.boot_id == process.boot_id()
        found = {r.name: _as_it_runs(r, same_boot=same_boot) for r in state.replicas.values()}
        asked = {
            r.name: (r.host, r.port)
            for r in found.values()
            if r.pid and not r.ended and r.state in {ReplicaState.STARTING, ReplicaState.READY}
        }
        found |= self._judged(found, probe_all(asked, deadline_s=PROBE_DEADLINE_S), now_s)
        return Membership(taken_at_s=now_s, replicas=tuple(found[name].as_replica() for name in sorted(found)))

    def cold_starts(self, pool: PoolKey) -> tuple[float, ...]:
        """Return the measured seconds from order to ready, oldest first."""
        return self._load().pool(pool).cold_starts_s

    def _load(self) -> FleetState:
        return load_state(self._path) or FleetState(fleet_id="", boot_id="")

    def _judged(
        self, found: Mapping[str, LocalReplica], health: Mapping[str, Health], now_s: float
    ) -> dict[str, LocalReplica]:
        self._doubts = {name: self._doubts.get(name, Doubt()).after(said) for name, said in health.items()}
        after: dict[str, LocalReplica] = {}
        for name, said in health.items():
            # When a start has hung is for the controller that ordered it to say.
            one = judged(found[name], said, self._doubts[name], stuck_after_s=math.inf, now_s=now_s)
            if one.state is ReplicaState.READY and one.ready_at_s == now_s:
                one = replace(one, ready_at_s=self._ready_at_s.setdefault(name, now_s))
            after[name] = one
        self._ready_at_s = {name: at_s for name, at_s in self._ready_at_s.items() if name in health}
        return after


def _as_it_runs(replica: LocalReplica, *, same_boot: bool) -> LocalReplica:
    """Return the replica, ended when its process has; one ordered this moment has no process yet."""
    if replica.ended or (same_boot and (not replica.pid or process.alive(identity(replica)))):
        return replica
    if replica.state in {ReplicaState.DRAINING, ReplicaState.FAILED}:
        return replace(replica, ended=True)
    return replace(failed(replica, "its process has gone"), ended=True)
