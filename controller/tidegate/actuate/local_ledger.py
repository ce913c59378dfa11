"""The local fleet's books: the state, the processes behind it, and how both are brought back after a restart."""

import logging
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tidegate.actuate import local_process as process
from tidegate.actuate.local_rules import LocalPoolSpec, failed
from tidegate.actuate.local_state import FleetState, LocalReplica, StateFolder
from tidegate.terms.errors import BadInputError
from tidegate.terms.fleet import PoolKey, ReplicaState

log = logging.getLogger("tidegate.local")

LOGS_KEPT = 100
_POLL_S = 0.02


class Ledger:
    """The state in memory and on disk, and the starting and awaiting of processes. Not thread-safe by itself.

    Raises:
        RefusedError: Another controller holds the folder.
        BadInputError: The state file is not one, or the folder cannot be used.
    """

    def __init__(self, folder: Path, pools: Mapping[PoolKey, LocalPoolSpec], *, owner_pid: int | None) -> None:
        self.pools = dict(pools)
        self._owner_pid = owner_pid
        self._logs = folder.absolute() / "logs"
        try:
            self._folder = StateFolder(folder)
            try:
                self._logs.mkdir(exist_ok=True)
                self.state = _resumed(self._folder.load(), self.pools)
                self.save()
            except BaseException:
                self._folder.close()
                raise
        except OSError as exc:
            msg = f"{exc.filename or folder}: not usable in a state folder: {exc.strerror}"
            raise BadInputError(msg) from exc

    def close(self) -> None:
        """Give the folder up; processes go on."""
        self._folder.close()

    def save(self) -> None:
        """Save durably; OSError when that is not possible."""
        self._folder.save(self.state)

    def save_if_possible(self) -> None:
        """Save, or log why not: what was seen can be seen again after a crash, only orders must not proceed unsaved."""
        try:
            self.save()
        except OSError as exc:
            log.error("fleet state not saved: %s", exc)  # noqa: TRY400  (expected on a full disk, no trace needed)

    def replicas(self) -> tuple[LocalReplica, ...]:
        """Return all replicas as they are now, by name."""
        return tuple(sorted(self.state.replicas.values(), key=lambda r: r.name))

    def log_path(self, name: str) -> Path:
        """Return where a replica's output goes."""
        return self._logs / f"{name}.log"

    def put(self, replica: LocalReplica) -> None:
        """Take over a changed replica, durably; OSError when that is not possible, and then nothing has changed."""
        before = self.state.replicas[replica.name]
        self.state.replicas[replica.name] = replica
        try:
            self.save()
        except OSError:
            self.state.replicas[replica.name] = before
            raise

    def start(self, replica: LocalReplica, spec: LocalPoolSpec, now_s: float) -> tuple[bool, str]:
        """Start the process of a replica in the books; return whether that worked and what to say of it."""
        argv = spec.argv(replica.port, self._owner_pid)
        try:
            self._prune_logs()
            who = process.spawn(
                argv,
                environment={**os.environ, **_marks(self.state.fleet_id, replica.name)},
                log_path=self.log_path(replica.name),
            )
        except OSError as exc:
            why = f"cannot start {argv[0]}: {exc}"
            self.state.replicas[replica.name] = replace(failed(replica, why), ended=True)
            self.count_failure(replica, now_s)
            self.save_if_possible()
            return False, why
        self.state.replicas[replica.name] = replace(replica, pid=who.pid, start_ticks=who.start_ticks)
        self.save_if_possible()
        return True, f"pid {who.pid}, port {replica.port}"

    def forget(self, replica: LocalReplica, now_s: float) -> None:
        """Remove a replica whose process has ended; its name is not used again for a while."""
        del self.state.replicas[replica.name]
        self.state.retired[replica.name] = now_s
        self.save_if_possible()

    def count_failure(self, replica: LocalReplica, now_s: float) -> None:
        """Count one more failure in a row of the pool, unless it is of the same wave as the last."""
        record = self.state.pool(replica.key)
        self.state.pools[str(replica.key)] = record.failed_at(now_s, ordered_at_s=replica.ordered_at_s)

    def wait_ended(self, timeout_s: float, *, only: str = "") -> None:
        """Wait until the processes (or the one of `only`) have ended, at most `timeout_s`; note those that have."""
        ends_s = time.monotonic() + timeout_s
        while True:
            left = False
            for name, replica in self.state.replicas.items():
                if replica.ended or (only and name != only):
                    continue
                if process.ended(identity(replica)) is None:
                    left = True
                else:
                    self.state.replicas[name] = replace(replica, ended=True)
            if not left or time.monotonic() >= ends_s:
                return
            time.sleep(_POLL_S)

    def _prune_logs(self) -> None:
        spare = [p for p in self._logs.glob("*.log") if p.stem not in self.state.replicas]
        for old in sorted(spare, key=lambda p: p.stat().st_mtime)[: max(0, len(spare) - LOGS_KEPT)]:
            old.unlink(missing_ok=True)


def identity(replica: LocalReplica) -> process.Identity:
    """Return the process of a replica."""
    return process.Identity(pid=replica.pid, start_ticks=replica.start_ticks)


def _resumed(saved: FleetState | None, pools: Mapping[PoolKey, LocalPoolSpec]) -> FleetState:
    boot = process.boot_id()
    if saved is None:
        return FleetState(fleet_id=secrets.token_hex(8), boot_id=boot)
    for name, replica in saved.replicas.items():
        lost = replica.ended or saved.boot_id != boot
        who = None if lost else _found(saved.fleet_id, replica)
        if who is not None:
            watched = replica.watched and replica.state is not ReplicaState.STARTING
            found = replace(replica, pid=who.pid, start_ticks=who.start_ticks, watched=watched)
            saved.replicas[name] = _still_wanted(found, pools.get(replica.key))
        elif replica.state in {ReplicaState.DRAINING, ReplicaState.FAILED}:
            saved.replicas[name] = replace(replica, ended=True)
        else:
            saved.replicas[name] = replace(failed(replica, "gone when the controller came back"), ended=True)
    saved.boot_id = boot
    return saved


def _still_wanted(replica: LocalReplica, spec: LocalPoolSpec | None) -> LocalReplica:
    """Return the replica, draining when its pool now serves another model: to every request for that it answers 404."""
    serving = replica.state in {ReplicaState.STARTING, ReplicaState.READY}
    if spec is None or not serving or replica.served_model == spec.served_model:
        return replica
    why = f"serves {replica.served_model}, its pool {spec.served_model} now"
    log.warning("replica drains name=%s detail=%s", replica.name, why)
    return replace(replica, state=ReplicaState.DRAINING, detail=why)


def _found(fleet_id: str, replica: LocalReplica) -> process.Identity | None:
    if replica.pid:
        return identity(replica) if process.alive(identity(replica)) else None
    return process.find_by_environment(_marks(fleet_id, replica.name))


def _marks(fleet_id: str, name: str) -> dict[str, str]:
    return {"TIDEGATE_FLEET": fleet_id, "TIDEGATE_REPLICA": name}
