"""The local fleet: replicas as processes on this machine.

`fleet.json` in the state folder is the truth across restarts; `targets.json` beside it tells Prometheus (file_sd) whom
to scrape. Replicas live in sessions of their own and survive a killed controller, which finds them again by pid and
start time; with an owner they end when the owner does.
"""

import signal
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from tidegate.actuate import local_process as process
from tidegate.actuate.local_ledger import Ledger, identity
from tidegate.actuate.local_rules import DRAIN_GRACE_S, DRAIN_TIMEOUT_S, STUCK_FLOOR_S, LocalPoolSpec, blocked_until_s
from tidegate.actuate.local_state import RETIRED_FOR_S, LocalReplica
from tidegate.actuate.local_targets import TargetsFile
from tidegate.actuate.local_watch import Watch
from tidegate.terms.errors import RefusedError
from tidegate.terms.fleet import Membership, PoolKey, ReplicaState
from tidegate.terms.plan import Receipt, Step, StepKind


class LocalFleet:
    """Starts, watches, drains and forgets the replicas of some pools. Thread-safe; one per state folder.

    Args:
        state_dir: Holds `fleet.json`, `targets.json` and `logs/`; made when missing.
        pools: How to start a replica of each pool.
        owner_pid: Replicas end when this process does; None: they outlive everyone but `stop_all`.
        stuck_floor_s: No start counts as hung before this.

    Raises:
        RefusedError: Another controller holds the state folder.
        BadInputError: The state file is not one.
    """

    def __init__(
        self,
        state_dir: Path,
        pools: Mapping[PoolKey, LocalPoolSpec],
        *,
        owner_pid: int | None = None,
        stuck_floor_s: float = STUCK_FLOOR_S,
    ) -> None:
        self._guard = threading.RLock()
        self._ledger = Ledger(state_dir, pools, owner_pid=owner_pid)
        self._watch = Watch(self._ledger, stuck_floor_s=stuck_floor_s)
        self._targets = TargetsFile(state_dir / "targets.json")

    @property
    def targets_path(self) -> Path:
        """The file_sd file."""
        return self._targets.path

    def membership(self, now_s: float) -> Membership:
        """Return every replica that exists, after looking at each process and asking each engine for its health.

        Takes at most about `local_watch.PROBE_DEADLINE_S`.
        """
        with self._guard:
            self._watch.look(now_s)
            self._targets.write(self._ledger.replicas())
            return Membership(taken_at_s=now_s, replicas=tuple(r.as_replica() for r in self._ledger.replicas()))

    def apply(self, step: Step, now_s: float) -> Receipt:
        """Carry out one step; a step that was done already is accepted and does nothing."""
        do = {
            StepKind.WARM: self._warm,
            StepKind.SHIFT: self._shift,
            StepKind.DRAIN: self._drain,
            StepKind.SHRINK: self._shrink,
            StepKind.CLEAR: self._clear,
        }[step.kind]
        with self._guard:
            try:
                accepted, detail = do(step, now_s)
                self._targets.write(self._ledger.replicas())
            except OSError as exc:
                return Receipt(step=step, accepted=False, detail=str(exc))
        return Receipt(step=step, accepted=accepted, detail=detail)

    def cold_starts(self, pool: PoolKey) -> tuple[float, ...]:
        """Return the measured seconds from order to ready, oldest first."""
        with self._guard:
            return self._ledger.state.pool(pool).cold_starts_s

    def drains(self, pool: PoolKey) -> tuple[float, ...]:
        """Return the measured seconds from leaving the endpoints to the end of the process, oldest first."""
        with self._guard:
            return self._ledger.state.pool(pool).drains_s

    def details(self) -> dict[str, str]:
        """Return why replicas failed or how they ended, by name; the others are left out."""
        with self._guard:
            return {r.name: r.detail for r in self._ledger.state.replicas.values() if r.detail}

    def pid_of(self, replica: str) -> int | None:
        """Return the process id of a replica that runs, or None."""
        with self._guard:
            one = self._ledger.state.replicas.get(replica)
            return one.pid if one is not None and one.pid and not one.ended else None

    def unnamed(self) -> dict[PoolKey, tuple[str, ...]]:
        """Return the replicas alive whose pool it was not told how to run, by pool."""
        with self._guard:
            living = [r for r in self._ledger.replicas() if not r.ended and r.key not in self._ledger.pools]
            return {key: tuple(r.name for r in living if r.key == key) for key in sorted({r.key for r in living})}

    def drain_all(self, now_s: float) -> tuple[str, ...]:
        """Tell every replica to finish its answers and end; return the names of those alive."""
        with self._guard:
            for replica in self._ledger.replicas():
                if replica.ended or not replica.pid or replica.told_to_end_at_s is not None:
                    continue  # told twice, an engine ends its running answers
                since_s = now_s if replica.draining_since_s is None else replica.draining_since_s
                self._ledger.state.replicas[replica.name] = replace(
                    replica, state=ReplicaState.DRAINING, draining_since_s=since_s, told_to_end_at_s=now_s
                )
            told = [r for r in self._ledger.replicas() if r.told_to_end_at_s == now_s and not r.ended]
            self._ledger.save_if_possible()
            for replica in told:
                process.send(identity(replica), signal.SIGTERM)
        return self.living()

    def living(self) -> tuple[str, ...]:
        """Return the names of the replicas whose process has not ended."""
        with self._guard:
            self._ledger.wait_ended(0.0)
            return tuple(r.name for r in self._ledger.replicas() if not r.ended)

    def stop_all(self, grace_s: float = 5.0) -> None:
        """End every replica: SIGTERM to all, SIGKILL to those still there after `grace_s`; then forget them."""
        with self._guard:
            for replica in self._ledger.state.replicas.values():
                process.send(identity(replica), signal.SIGTERM) if replica.pid else None
            self._ledger.wait_ended(grace_s)
            for replica in self._ledger.state.replicas.values():
                process.send(identity(replica), signal.SIGKILL) if replica.pid else None
            self._ledger.wait_ended(grace_s)
            self._ledger.state.replicas.clear()
            self._ledger.save_if_possible()
            self._targets.write(())

    def close(self) -> None:
        """Give the state folder up; replicas go on."""
        with self._guard:
            self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- steps ---

    def _warm(self, step: Step, now_s: float) -> tuple[bool, str]:
        state, spec = self._ledger.state, self._ledger.pools.get(step.pool)
        if step.replica in state.replicas:
            return True, "ordered already"
        if spec is None:
            return False, f"pool {step.pool} is not run on this machine"
        state.retired = {n: min(at, now_s) for n, at in state.retired.items() if now_s - at < RETIRED_FOR_S}
        if step.replica in state.retired:
            return False, f"{step.replica} has lived already; the next decision names another"
        until_s = blocked_until_s(state.pool(step.pool))
        if now_s < until_s:
            record = state.pool(step.pool)
            pause_s = until_s - (record.last_failure_at_s or 0.0)
            # No countdown: an answer that changes each second would be news to the journal each second.
            return False, f"{record.failures} starts failed in a row; the next is tried {pause_s:.0f} s after the last"
        try:
            port = process.free_port(spec.host, {r.port for r in state.replicas.values()})
        except RefusedError as exc:
            return False, str(exc)
        replica = LocalReplica(
            name=step.replica,
            service=step.pool.service,
            pool=step.pool.pool,
            node=step.node,
            host=spec.host,
            port=port,
            state=ReplicaState.STARTING,
            ordered_at_s=now_s,
            served_model=spec.served_model,
        )
        state.replicas[replica.name] = replica
        try:
            # Before the process exists: killed in between, we find it again by its environment.
            self._ledger.save()
        except OSError:
            del state.replicas[replica.name]
            raise
        return self._ledger.start(replica, spec, now_s)

    def _shift(self, step: Step, now_s: float) -> tuple[bool, str]:
        replica = self._ledger.state.replicas.get(step.replica)
        if replica is None or replica.state in {ReplicaState.DRAINING, ReplicaState.FAILED}:
            return True, "out of service already"
        self._ledger.put(replace(replica, state=ReplicaState.DRAINING, draining_since_s=now_s))
        return True, ""

    def _drain(self, step: Step, now_s: float) -> tuple[bool, str]:
        replica = self._ledger.state.replicas.get(step.replica)
        if replica is None or replica.ended or replica.state is ReplicaState.FAILED:
            return True, "ended already"
        if replica.state is not ReplicaState.DRAINING:
            return False, f"is {replica.state}; it must leave the endpoints first"
        if replica.told_to_end_at_s is None:
            # Saved first: forgotten in a crash it would be told twice, and the second SIGTERM ends its running answers.
            self._ledger.put(replace(replica, told_to_end_at_s=now_s))
            process.send(identity(replica), signal.SIGTERM)
            return True, "told to end"
        spec = self._ledger.pools.get(replica.key)
        limit_s = (spec.drain_timeout_s if spec else DRAIN_TIMEOUT_S) + DRAIN_GRACE_S
        if now_s - replica.told_to_end_at_s > limit_s:
            process.send(identity(replica), signal.SIGKILL)
            return True, f"killed: still there {limit_s:.0f} s after it was told to end"
        return True, "draining"

    def _shrink(self, step: Step, now_s: float) -> tuple[bool, str]:
        replica = self._ledger.state.replicas.get(step.replica)
        if replica is None:
            return True, "forgotten already"
        if not replica.ended or replica.state is not ReplicaState.DRAINING:
            return False, f"is {replica.state} and its process {'ended' if replica.ended else 'runs'}"
        self._ledger.forget(replica, now_s)
        return True, replica.detail

    def _clear(self, step: Step, now_s: float) -> tuple[bool, str]:
        replica = self._ledger.state.replicas.get(step.replica)
        if replica is None:
            return True, "cleared already"
        if replica.state is not ReplicaState.FAILED:
            return False, f"is {replica.state}, not failed"
        if not replica.ended:
            process.send(identity(replica), signal.SIGKILL)
            self._ledger.wait_ended(1.0, only=replica.name)
            if not self._ledger.state.replicas[replica.name].ended:
                return False, "killed, not gone yet"
        self._ledger.forget(replica, now_s)
        return True, replica.detail
