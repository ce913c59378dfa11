"""Processes on this machine: start one in a session of its own, know it again, and never signal a stranger.

A pid alone names nobody: pids are reused. Together with the start time in `/proc/PID/stat` it names one process until
the machine is booted again.
"""

import contextlib
import os
import secrets
import signal
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.terms.errors import RefusedError

PROC = Path("/proc")

# Below the kernel's range for outgoing connections (from 32768 by default) and below the ports our servers pick.
_FIRST_PORT = 10_000
_LAST_PORT = 20_000
_PORT_TRIES = 500
_TAIL_BYTES = 4096
_DEAD = frozenset("ZXx")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One process, for good: its pid and its start time in clock ticks since boot."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A process that is gone. `status` is its exit code (negative: the signal), None when it was not our child."""

    status: int | None


def identity_of(pid: int, proc: Path = PROC) -> Identity | None:
    """Return who runs under `pid` now; None when nobody does or what is left is a zombie."""
    found = _stat(pid, proc)
    return None if found is None or found[0] in _DEAD else found[1]


def alive(identity: Identity, proc: Path = PROC) -> bool:
    """Return whether exactly this process still runs."""
    return identity_of(identity.pid, proc) == identity


def boot_id(proc: Path = PROC) -> str:
    """Return the id of this boot; start times of another boot mean nothing."""
    return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def send(identity: Identity, signum: signal.Signals, proc: Path = PROC) -> bool:
    """Signal exactly this process; return False when it is gone.

    The descriptor pins the process before its start time is compared, so a pid reused in between is never hit.
    """
    try:
        pinned = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return False
    try:
        if not alive(identity, proc):
            return False
        signal.pidfd_send_signal(pinned, signum)
    except ProcessLookupError:
        return False
    finally:
        os.close(pinned)
    return True


def spawn(argv: Sequence[str], *, environment: Mapping[str, str], log_path: Path) -> Identity:
    """Start a program in a session of its own (Ctrl-C in our terminal does not reach it), output appended to a log.

    Raises:
        OSError: The program cannot be started or the log cannot be opened.
    """
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        pid = os.posix_spawnp(
            argv[0],
            list(argv),
            dict(environment),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
        )
    finally:
        os.close(log)
    # Nobody reaps it but us, so it is still there, if only as a zombie.
    found = _stat(pid, PROC)
    return found[1] if found is not None else Identity(pid=pid, start_ticks=0)


def ended(identity: Identity, proc: Path = PROC) -> Ended | None:
    """Return how a process ended, reaping it when it is our child; None while it runs."""
    found = _stat(identity.pid, proc)
    if found is None or found[1] != identity:
        return Ended(status=None)
    if found[0] not in _DEAD:
        return None
    try:
        pid, status = os.waitpid(identity.pid, os.WNOHANG)
    except ChildProcessError:
        return Ended(status=None)
    # 0: its last threads are still ending, and the status is not to be had before.
    return Ended(status=os.waitstatus_to_exitcode(status)) if pid else None


def find_by_environment(wanted: Mapping[str, str], proc: Path = PROC) -> Identity | None:
    """Return the session leader that was started with all of these environment variables, or None."""
    needles = {f"{name}={value}".encode() for name, value in wanted.items()}
    for entry in proc.iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):  # ended meanwhile, or of another user
            if not needles <= set((entry / "environ").read_bytes().split(b"\0")):
                continue
            # Its own children inherit the environment; only the one we started leads the session (field 6).
            session = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[3]
            if session == entry.name:
                return identity_of(int(entry.name), proc)
    return None


def free_port(host: str, taken: Collection[int]) -> int:
    """Return a TCP port, 10000 to 19999, that nobody listens on and that is not in `taken`.

    Raises:
        RefusedError: 500 random ports in a row were taken.
    """
    for _ in range(_PORT_TRIES):
        port = _FIRST_PORT + secrets.randbelow(_LAST_PORT - _FIRST_PORT)
        if port in taken:
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((host, port))
                return port
    msg = f"no free port on {host} between {_FIRST_PORT} and {_LAST_PORT} in {_PORT_TRIES} tries"
    raise RefusedError(msg)


def log_tail(path: Path, lines: int = 8) -> str:
    """Return the last lines of a log, joined by ` | `; empty when there is none."""
    try:
        with path.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - _TAIL_BYTES))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    return " | ".join(line.strip() for line in text.splitlines()[-lines:] if line.strip())


def _stat(pid: int, proc: Path) -> tuple[str, Identity] | None:
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command in parentheses may hold spaces and parentheses itself; what follows the last one is regular.
    fields = text.rpartition(")")[2].split()
    # proc(5): field 3 is the state, field 22 the start time; the first two were cut off.
    return fields[0], Identity(pid=pid, start_ticks=int(fields[19]))
