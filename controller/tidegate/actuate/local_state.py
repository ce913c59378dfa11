"""What the local fleet must not forget: one file, written whole, and a lock so that only one controller writes it."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_origin

from tidegate.terms.errors import BadInputError, RefusedError
from tidegate.terms.fleet import PoolKey, Replica, ReplicaState

_VERSION = 1
_MAX_PORT = 65_535
_MAX_SECONDS = 1e12  # 30,000 years; NaN and infinity are no times either
# Enough for a p95 that follows a change of image or disk within a day.
KEPT_TIMES = 100
# A plan older than this is never applied; until then a name that has gone must not be started again.
RETIRED_FOR_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalReplica:
    """One replica and its process. `pid` 0: ordered, and its process is not known (yet)."""

    name: str
    service: str
    pool: str
    node: str
    host: str
    port: int
    state: ReplicaState
    ordered_at_s: float
    ready_at_s: float | None = None
    draining_since_s: float | None = None
    told_to_end_at_s: float | None = None  # when SIGTERM was sent
    pid: int = 0
    start_ticks: int = 0
    ended: bool = False  # the process is gone
    port_tries: int = 1
    served_model: str = ""  # what it was started to answer to
    watched: bool = True  # False: a controller was away during its start, so the start cannot be timed
    detail: str = ""  # why it failed, or how it ended

    @property
    def key(self) -> PoolKey:
        """The pool it belongs to."""
        return PoolKey(service=self.service, pool=self.pool)

    def as_replica(self) -> Replica:
        """Return it as the fleet's vocabulary has it; no address once the process has ended."""
        return Replica(
            name=self.name,
            pool=self.key,
            state=self.state,
            address="" if self.ended else f"{self.host}:{self.port}",
            node=self.node,
            ordered_at_s=self.ordered_at_s,
            ready_at_s=self.ready_at_s,
            draining_since_s=self.draining_since_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRecord:
    """What a pool's replicas have shown so far."""

    cold_starts_s: tuple[float, ...] = ()  # ordered → ready, newest last
    drains_s: tuple[float, ...] = ()  # told to end → ended
    failures: int = 0  # in a row
    last_failure_at_s: float | None = None

    def started_in(self, took_s: float) -> "PoolRecord":
        """Return it with one more cold start; the oldest beyond `KEPT_TIMES` go."""
        return replace(self, cold_starts_s=(*self.cold_starts_s, took_s)[-KEPT_TIMES:])

    def drained_in(self, took_s: float) -> "PoolRecord":
        """Return it with one more drain; the oldest beyond `KEPT_TIMES` go."""
        return replace(self, drains_s=(*self.drains_s, took_s)[-KEPT_TIMES:])

    def failed_at(self, now_s: float, *, ordered_at_s: float) -> "PoolRecord":
        """Return it with one more failure in a row.

        A replica ordered before the last failure belongs to the same wave: five that die together are one reason to
        wait, not five.
        """
        if self.last_failure_at_s is not None and ordered_at_s <= self.last_failure_at_s:
            return self
        return replace(self, failures=self.failures + 1, last_failure_at_s=now_s)


_Row = TypeVar("_Row", LocalReplica, PoolRecord)


@dataclass(slots=True, kw_only=True)
class FleetState:
    """All of it; `replicas` by name, `pools` by the text of the key, `retired` name → when it went."""

    fleet_id: str
    boot_id: str
    replicas: dict[str, LocalReplica] = field(default_factory=dict)
    pools: dict[str, PoolRecord] = field(default_factory=dict)
    retired: dict[str, float] = field(default_factory=dict)

    def pool(self, key: PoolKey) -> PoolRecord:
        """Return the pool's record; an empty one before its first replica."""
        return self.pools.get(str(key), PoolRecord())


class StateFolder:
    """The folder that holds `fleet.json`, held by one controller at a time.

    Raises:
        RefusedError: Another living controller holds it.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "fleet.json"
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            holder = os.pread(self._lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._lock)
            msg = f"{folder}: held by another controller (pid {holder}); stop it, or choose another state folder"
            raise RefusedError(msg) from exc
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)

    def load(self) -> FleetState | None:
        """Return what was saved last, or None at a first start.

        Raises:
            BadInputError: The file is there and is not a state of this version.
        """
        return load_state(self._path)

    def save(self, state: FleetState) -> None:
        """Write the whole state durably: after a crash at any moment the file is the old one or the new one.

        Raises:
            OSError: It cannot be written, e.g. the disk is full; the old file stands.
        """
        body = asdict(state) | {"version": _VERSION}
        write_whole(self._path, json.dumps(body, indent=1, sort_keys=True), durable=True)

    def close(self) -> None:
        """Give the folder up."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def load_state(path: Path) -> FleetState | None:
    """Return what `fleet.json` holds, or None when it is not there; takes no lock, the file is replaced whole.

    Raises:
        BadInputError: The file is there and is not a state of this version.
    """
    try:
        return _decode(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as exc:
        msg = f"{path}: fleet state cannot be read: {exc.strerror}"
        raise BadInputError(msg) from exc
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        msg = (
            f"{path}: must be a fleet state of version {_VERSION}, got {type(exc).__name__}: {exc}; move it "
            "away to start with an empty fleet (replicas it names keep running)"
        )
        raise BadInputError(msg) from exc


def write_whole(path: Path, text: str, *, durable: bool = False) -> None:
    """Replace a file in one step, so that a reader sees the old text or the new one and never a part.

    Raises:
        OSError: It cannot be written; the old file stands.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("w", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            if durable:
                os.fsync(handle.fileno())
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    if durable:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)  # the new name itself must survive
        finally:
            os.close(folder)


def _decode(body: Mapping[str, Any]) -> FleetState:
    if body["version"] != _VERSION:
        msg = f"version {body['version']}"
        raise ValueError(msg)
    known = {f.name for f in fields(LocalReplica)}
    replicas: dict[str, LocalReplica] = {}
    for name, raw in body["replicas"].items():
        if set(raw) != known:
            msg = f"replica {name} has the fields {sorted(raw)}"
            raise ValueError(msg)
        replicas[name] = _checked(LocalReplica(**(raw | {"state": ReplicaState(raw["state"])})), f"replica {name}")
        if replicas[name].name != name or not 0 < replicas[name].port <= _MAX_PORT:
            msg = f"replica {name} is called {replicas[name].name} and has port {replicas[name].port}"
            raise ValueError(msg)
    pools = {
        key: _checked(PoolRecord(**(raw | {n: _seconds(raw[n]) for n in ("cold_starts_s", "drains_s")})), f"pool {key}")
        for key, raw in body["pools"].items()
    }
    return FleetState(
        fleet_id=str(body["fleet_id"]),
        boot_id=str(body["boot_id"]),
        replicas=replicas,
        pools=pools,
        retired=dict(zip(map(str, body["retired"]), _seconds(list(body["retired"].values())), strict=True)),
    )


def _checked(row: _Row, where: str) -> _Row:
    """Return the row when each field is of its type: a wrong one would fail every look from now on."""
    for column in fields(row):
        value, kind = getattr(row, column.name), column.type
        if kind in {float, float | None}:
            right = _is_seconds(value) or (value is None and kind is not float)
        else:
            right = isinstance(value, bool) == (kind is bool) and isinstance(value, get_origin(kind) or kind)  # type: ignore[arg-type]
        if not right:
            msg = f"{where}: {column.name} is {value!r}"
            raise ValueError(msg)
    return row


def _seconds(values: Iterable[Any]) -> tuple[float, ...]:
    found = tuple(values)
    if not all(_is_seconds(v) for v in found):
        msg = f"must be seconds, got {found!r}"
        raise ValueError(msg)
    return found


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX_SECONDS
