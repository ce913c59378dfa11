"""Watching the local fleet: who has ended, who is ready, who is in doubt."""

import logging
from dataclasses import replace

from tidegate.actuate import local_process as process
from tidegate.actuate.local_health import Health, probe_all
from tidegate.actuate.local_ledger import Ledger, identity
from tidegate.actuate.local_rules import (
    STABLE_AFTER_S,
    UNWATCHED_AFTER_S,
    Doubt,
    ahead,
    failed,
    judged,
    rebased,
    settled,
    stuck_after_s,
)
from tidegate.actuate.local_state import LocalReplica
from tidegate.terms.errors import RefusedError
from tidegate.terms.fleet import ReplicaState

log = logging.getLogger("tidegate.local")

# All probes run at once, so this is also the longest a look may take; an engine answers in milliseconds.
PROBE_DEADLINE_S = 0.5
# Ready replicas are asked at most so often; starting ones at each look, because their readiness is being waited for.
PROBE_READY_EVERY_S = 2.0
# Another process took the port between our look and the engine's bind; more than that is another problem.
PORT_TRIES = 3
_PORT_CLASH = ("address already in use", "errno 98", "is in use")


class Watch:
    """Looks at the processes and engines of a ledger and brings its replicas up to date."""

    def __init__(self, ledger: Ledger, *, stuck_floor_s: float) -> None:
        self._ledger = ledger
        self._stuck_floor_s = stuck_floor_s
        self._doubts: dict[str, Doubt] = {}
        self._probed_at_s: dict[str, float] = {}
        self._looked_at_s: float | None = None

    def look(self, now_s: float) -> None:
        """Update every replica; save when anything changed. Takes at most about `PROBE_DEADLINE_S`."""
        state = self._ledger.state
        before = dict(state.replicas), dict(state.pools)
        self._rebase(now_s)
        for replica in tuple(state.replicas.values()):
            if not replica.ended:
                self._notice_end(replica, now_s)
        self._ask(now_s)
        for key in self._ledger.pools:
            ours = tuple(r for r in state.replicas.values() if r.key == key)
            state.pools[str(key)] = settled(state.pool(key), ours, now_s)
        for name in self._probed_at_s.keys() - state.replicas.keys():
            del self._probed_at_s[name]
            self._doubts.pop(name, None)
        if before != (state.replicas, state.pools):
            self._ledger.save_if_possible()

    def _rebase(self, now_s: float) -> None:
        since_s = now_s - self._looked_at_s if self._looked_at_s is not None else 0.0
        self._looked_at_s = now_s
        jumped = not 0.0 <= since_s <= UNWATCHED_AFTER_S
        if jumped:
            log.warning("clock or controller jumped by %.0f s: limits count from now", since_s)
            self._probed_at_s.clear()
        for name, replica in self._ledger.state.replicas.items():
            if jumped or ahead(replica, now_s):
                self._ledger.state.replicas[name] = rebased(replica, now_s)

    def _notice_end(self, replica: LocalReplica, now_s: float) -> None:
        end = process.ended(identity(replica))
        if end is None:
            return
        how = "ended" if end.status is None else f"ended with status {end.status}"
        if replica.state is ReplicaState.STARTING and self._port_was_taken(replica):
            self._start_elsewhere(replica, now_s)
            return
        if replica.state is ReplicaState.DRAINING:
            if replica.draining_since_s is not None and replica.told_to_end_at_s is not None:
                record = self._ledger.state.pool(replica.key)
                self._ledger.state.pools[str(replica.key)] = record.drained_in(now_s - replica.draining_since_s)
            self._ledger.state.replicas[replica.name] = replace(replica, ended=True, detail=f"{how} while draining")
            return
        if replica.state is not ReplicaState.FAILED:
            young = replica.ready_at_s is None or now_s - replica.ready_at_s < STABLE_AFTER_S
            if young:
                self._ledger.count_failure(replica, now_s)
            tail = process.log_tail(self._ledger.log_path(replica.name))
            when = "before it was ready" if replica.ready_at_s is None else "while serving"
            replica = failed(replica, f"{how} {when}; its log ends: {tail or 'empty'}")
            log.warning("replica failed name=%s detail=%s", replica.name, replica.detail)
        self._ledger.state.replicas[replica.name] = replace(replica, ended=True)

    def _ask(self, now_s: float) -> None:
        asked = {
            r.name: (r.host, r.port)
            for r in self._ledger.state.replicas.values()
            if not r.ended and (r.state is ReplicaState.STARTING or self._ready_is_due(r, now_s))
        }
        for name, health in probe_all(asked, deadline_s=PROBE_DEADLINE_S).items():
            replica = self._ledger.state.replicas[name]
            self._probed_at_s[name] = now_s
            if health is not Health.READY:
                self._notice_end(replica, now_s)  # it may have died just now: then its exit says more than its silence
                replica = self._ledger.state.replicas[name]
                if replica.ended:
                    continue
            self._doubts[name] = self._doubts.get(name, Doubt()).after(health)
            limit_s = stuck_after_s(
                self._ledger.state.pool(replica.key), self._ledger.pools.get(replica.key), self._stuck_floor_s
            )
            after = judged(replica, health, self._doubts[name], stuck_after_s=limit_s, now_s=now_s)
            self._became(replica, after, now_s)

    def _ready_is_due(self, replica: LocalReplica, now_s: float) -> bool:
        last_s = self._probed_at_s.get(replica.name, float("-inf"))
        return replica.state is ReplicaState.READY and now_s - last_s >= PROBE_READY_EVERY_S

    def _became(self, before: LocalReplica, after: LocalReplica, now_s: float) -> None:
        self._ledger.state.replicas[after.name] = after
        if before.state is after.state:
            return
        self._doubts.pop(after.name, None)
        log.info("replica name=%s state=%s detail=%s", after.name, after.state, after.detail)
        if after.state is ReplicaState.READY and after.watched:
            record = self._ledger.state.pool(after.key)
            self._ledger.state.pools[str(after.key)] = record.started_in(now_s - after.ordered_at_s)
        elif after.state is ReplicaState.FAILED:
            self._ledger.count_failure(after, now_s)

    def _port_was_taken(self, replica: LocalReplica) -> bool:
        tail = process.log_tail(self._ledger.log_path(replica.name)).lower()
        return replica.port_tries < PORT_TRIES and any(sign in tail for sign in _PORT_CLASH)

    def _start_elsewhere(self, replica: LocalReplica, now_s: float) -> None:
        spec = self._ledger.pools.get(replica.key)
        if spec is None:
            self._ledger.state.replicas[replica.name] = replace(failed(replica, "its port was taken"), ended=True)
            return
        taken = {r.port for r in self._ledger.state.replicas.values()}
        try:
            self._ledger.log_path(replica.name).unlink(missing_ok=True)  # else its old text would be another clash
            port = process.free_port(spec.host, taken)
            moved = replace(replica, port=port, port_tries=replica.port_tries + 1, pid=0, start_ticks=0)
            self._ledger.put(moved)  # before the process exists, as any order: killed in between, we find it again
        except (OSError, RefusedError) as exc:
            why = f"its port was taken, and no other could be used: {exc}"
            self._ledger.state.replicas[replica.name] = replace(failed(replica, why), ended=True)
            return
        log.info("replica name=%s port %d was taken, trying %d", replica.name, replica.port, moved.port)
        self._ledger.start(moved, spec, now_s)
