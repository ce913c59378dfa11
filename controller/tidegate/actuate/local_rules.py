"""How the local fleet judges a replica: pure rules with their constants."""

import math
import sys
from dataclasses import dataclass, replace

from tidegate.actuate.local_health import Health
from tidegate.actuate.local_state import LocalReplica, PoolRecord
from tidegate.terms.fleet import PoolKey, ReplicaState

# A start that takes three times what nearly all took, and at least a minute, has hung.
STUCK_FACTOR = 3.0
STUCK_FLOOR_S = 60.0

# A ready replica that dies within a minute counts as a failed start; one that lived so long clears the count.
STABLE_AFTER_S = 60.0
# The first failure is replaced at once (a crash must not cost capacity), the second after 5 s, then twice as long each.
BACKOFF_BASE_S = 5.0
BACKOFF_CAP_S = 300.0

# A refused connection or a "not ready" from a ready replica must repeat: one lost probe is no verdict.
PROBES_TO_BELIEVE = 3
# Silence is what an overloaded machine sounds like; killing engines then would finish it off.
SILENT_PROBES_TO_BELIEVE = 30

# Looks are a second apart. After a longer gap, or a step back, the clock was set or nobody was there to look.
UNWATCHED_AFTER_S = 60.0

# What an engine is given to finish its answers in when nobody says otherwise.
DRAIN_TIMEOUT_S = 600.0
# Beyond the engine's own drain limit it is not going to end by itself.
DRAIN_GRACE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPoolSpec:
    """How a replica of one pool is started.

    The command gets `--profile --host --port --served-model-name --cold-start --drain-timeout [--owner-pid]` and then
    `extra_args`; it must answer `GET /health` with 200 once it serves, and drain and exit on SIGTERM.
    """

    key: PoolKey
    profile: str
    served_model: str
    cold_start_s: float  # >= 0; believed p95 until measured, and what the twin waits
    host: str = "127.0.0.1"
    drain_timeout_s: float = DRAIN_TIMEOUT_S
    extra_args: tuple[str, ...] = ()
    command: tuple[str, ...] = (sys.executable, "-m", "tidegate", "engine")

    def argv(self, port: int, owner_pid: int | None) -> list[str]:
        """Return the command line of one replica."""
        owner = [] if owner_pid is None else ["--owner-pid", str(owner_pid)]
        return [
            *self.command, "--profile", self.profile, "--host", self.host, "--port", str(port),
            "--served-model-name", self.served_model, "--cold-start", f"{self.cold_start_s:g}s",
            "--drain-timeout", f"{self.drain_timeout_s:g}s", *owner, *self.extra_args,
        ]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """What speaks against a ready replica: the last answer that was not 200, and how often in a row."""

    health: Health = Health.READY
    times: int = 0

    def after(self, health: Health) -> "Doubt":
        """Return the doubt after one more probe."""
        if health is Health.READY:
            return Doubt()
        return Doubt(health=health, times=self.times + 1 if health is self.health else 1)

    @property
    def believed(self) -> bool:
        """Whether it has been seen often enough."""
        if self.health is Health.SILENT:
            return self.times >= SILENT_PROBES_TO_BELIEVE
        return self.times >= PROBES_TO_BELIEVE


def judged(replica: LocalReplica, health: Health, doubt: Doubt, *, stuck_after_s: float, now_s: float) -> LocalReplica:
    """Return the replica after a probe of its living process.

    A ready one that says "not ready" drains by itself (somebody else told it to): it leaves the endpoints and is let
    finish. One that refuses connections has failed.
    """
    if replica.state is ReplicaState.STARTING:
        if health is Health.READY:
            return replace(replica, state=ReplicaState.READY, ready_at_s=now_s)
        if now_s - replica.ordered_at_s > stuck_after_s:
            return failed(replica, f"not ready {now_s - replica.ordered_at_s:.0f} s after the order ({health})")
    elif replica.state is ReplicaState.READY and doubt.believed:
        if doubt.health is Health.NOT_READY:
            # Counted as told: a second SIGTERM would end its running answers.
            return replace(
                replica,
                state=ReplicaState.DRAINING,
                draining_since_s=now_s,
                told_to_end_at_s=now_s,
                detail="drains by itself",
            )
        return failed(replica, f"/health {doubt.health}, {doubt.times} times in a row")
    return replica


def rebased(replica: LocalReplica, now_s: float) -> LocalReplica:
    """Return the replica with its limits counted from now, after a time in which nobody watched it.

    Else a clock that is set forward would have every start hung and every drain overdue, and set back would suspend
    both limits. Such a start cannot be timed either.
    """
    told_s, since_s, ready_s = replica.told_to_end_at_s, replica.draining_since_s, replica.ready_at_s
    starting = replica.state is ReplicaState.STARTING
    return replace(
        replica,
        ordered_at_s=now_s if starting else min(replica.ordered_at_s, now_s),
        watched=replica.watched and not starting,
        ready_at_s=None if ready_s is None else min(ready_s, now_s),
        draining_since_s=None if since_s is None else min(since_s, now_s),
        told_to_end_at_s=None if told_s is None else now_s,
    )


def ahead(replica: LocalReplica, now_s: float) -> bool:
    """Return whether anything is said to have happened to the replica later than now: the clock was set back."""
    times = (replica.ordered_at_s, replica.ready_at_s, replica.draining_since_s, replica.told_to_end_at_s)
    return any(at_s is not None and at_s > now_s for at_s in times)


def failed(replica: LocalReplica, why: str) -> LocalReplica:
    """Return the replica as failed."""
    return replace(replica, state=ReplicaState.FAILED, detail=why)


def stuck_after_s(record: PoolRecord, spec: LocalPoolSpec | None, floor_s: float = STUCK_FLOOR_S) -> float:
    """Return how long a start may take before it counts as hung."""
    prior = spec.cold_start_s if spec is not None else 0.0
    return max(floor_s, STUCK_FACTOR * (p95(record.cold_starts_s) or prior))


def p95(samples: tuple[float, ...]) -> float | None:
    """Return the smallest sample that at least 95 % do not exceed; None of nothing."""
    return sorted(samples)[math.ceil(0.95 * len(samples)) - 1] if samples else None


def blocked_until_s(record: PoolRecord) -> float:
    """Return the Unix time before which no replica of the pool is started; 0.0 when nothing blocks."""
    if record.failures <= 1 or record.last_failure_at_s is None:
        return 0.0
    # 2 ** 10 x 5 s is beyond the cap already; larger exponents would overflow after a night of crashes.
    delay_s = min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** min(record.failures - 2, 10))
    return record.last_failure_at_s + delay_s


def settled(record: PoolRecord, replicas: tuple[LocalReplica, ...], now_s: float) -> PoolRecord:
    """Return the record with its failures forgiven once a replica started since then has proved stable.

    A failure dated later than now (the clock was set back) counts as just happened: it would block starts until then.
    """
    if record.last_failure_at_s is None:
        return record
    since_s = min(record.last_failure_at_s, now_s)
    stable = any(
        r.state is ReplicaState.READY
        and r.ordered_at_s >= since_s
        and r.ready_at_s is not None
        and now_s - r.ready_at_s >= STABLE_AFTER_S
        for r in replicas
    )
    return replace(record, failures=0, last_failure_at_s=None) if stable else replace(record, last_failure_at_s=since_s)
