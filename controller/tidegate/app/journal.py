"""The journal: append-only JSON lines, one per tick, that survive kill -9, a full disk and a power cut.

Each line is `{"crc":"xxxxxxxx","body":{…}}`, the CRC-32 being of the body's bytes. A segment (one file) holds
`policies` lines (each set of policies once, by digest) and `tick` lines that name the digest and the byte where it is.
The newest segment is the path itself; `path.1`, `path.2`, … are older ones. A last line that was torn is cut off when
the journal is opened again; a damaged line anywhere else is an error that names file and line.
"""

import contextlib
import errno
import importlib.metadata
import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tidegate.app import codec
from tidegate.app.journal_lines import FORMAT, JournalDamagedError, parse, segments, wrap
from tidegate.app.journal_lock import WriterLock
from tidegate.app.journal_read import last, read
from tidegate.app.record import TickRecord
from tidegate.terms.errors import BadInputError, TidegateError

if TYPE_CHECKING:
    from tidegate.terms.policy import ServicePolicy

__all__ = ["Journal", "JournalDamagedError", "JournalFullError", "last", "read"]

DEFAULT_MAX_BYTES = 64 << 20
DEFAULT_KEEP = 8

# What "the disk will not take it" looks like; EFBIG is a limit on the process's file sizes.
_UNWRITABLE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG, errno.EACCES, errno.EPERM, errno.ENXIO}
)
_TAIL_BYTES = 256 << 10


class JournalFullError(TidegateError):
    """The journal cannot be written; the controller holds until it can."""


class Journal:
    """The one writer of a journal; use as a context manager or call `close`.

    Args:
        path: The newest segment; its folder is made when missing.
        max_bytes: A segment is closed before it would grow beyond this (a single line may).
        keep: Older segments kept beside the newest one, >= 0.

    Raises:
        RefusedError: Another process writes this journal.
        JournalFullError: The file cannot be opened for writing.
        BadInputError: `path` is a folder.
    """

    def __init__(self, path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES, keep: int = DEFAULT_KEEP) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._version = importlib.metadata.version("tidegate")
        self._policies: tuple[ServicePolicy, ...] | None = None  # the set on disk at `_policies_at`
        self._policies_digest = ""
        self._policies_at = 0
        self._bytes = 0  # length of what is known to be whole
        if path.is_dir():
            msg = f"{path}: must be a file for the journal, is a folder"
            raise BadInputError(msg)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = WriterLock(path.with_name(f"{path.name}.lock"))
        except OSError as exc:
            raise self._unwritable(exc) from exc
        try:
            self._fd = self._open()
        except BaseException:
            self._lock.release()
            raise

    def append(self, record: TickRecord) -> None:
        """Write one line and wait until it is on the disk.

        Raises:
            JournalFullError: It could not be written; nothing of it remains, and a later call may succeed.
        """
        if self._fd < 0:  # a rotation could not open its new segment
            self._fd = self._open()
        tick, policies = self._lines(record)
        try:
            if self._bytes and self._bytes + len(policies) + len(tick) > self._max_bytes:
                self._rotate()
                tick, policies = self._lines(record)
            self._write(policies + tick)
        except OSError as exc:
            with contextlib.suppress(OSError):  # what cannot be cut now is cut before the next write
                os.ftruncate(self._fd, self._bytes)
            raise self._unwritable(exc) from exc
        if policies:
            self._policies, self._policies_at = record.inputs.policies, self._bytes
        self._bytes += len(policies) + len(tick)

    def close(self) -> None:
        """Close the file and let another writer in; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lines(self, record: TickRecord) -> tuple[bytes, bytes]:
        """Return the tick's line and, when this segment has none for it yet, the line of its policies."""
        head = {"format": FORMAT, "tidegate": self._version}
        policies = b""
        at = self._policies_at
        if record.inputs.policies != self._policies:
            documents = codec.policies_document(record.inputs.policies)
            self._policies_digest, self._policies, at = codec.digest(documents), None, self._bytes
            body = {"kind": "policies", **head, "digest": self._policies_digest, "policies": documents}
            policies = wrap(codec.dumped(body))
        document = codec.to_document(record)
        body = {
            "kind": "tick",
            **head,
            "policies": self._policies_digest,
            "policies_at": at,
            "record": document,
        }
        return wrap(codec.dumped(body)), policies

    def _write(self, data: bytes) -> None:
        size = os.fstat(self._fd).st_size
        if size > self._bytes:
            os.ftruncate(self._fd, self._bytes)  # the rest of a write that failed
        written = 0
        while written < len(data):
            written += os.write(self._fd, data[written:])
        os.fsync(self._fd)

    def _open(self) -> int:
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
            self._bytes = _whole_bytes(fd)
            if os.fstat(fd).st_size > self._bytes:
                os.ftruncate(fd, self._bytes)
            _sync_folder(self.path.parent)
        except OSError as exc:
            raise self._unwritable(exc) from exc
        self._policies = None  # written once more after each opening, so that nothing need be searched
        return fd

    def _rotate(self) -> None:
        """Move `path` to `path.1` and so on; a crash in between leaves a gap in the numbers, which reading allows."""
        older = [f for f in segments(self.path) if f != self.path]
        for file in older:  # oldest first, so nothing is overwritten
            number = int(file.name.removeprefix(f"{self.path.name}."))
            if number >= self._keep:
                file.unlink()
            else:
                file.rename(self.path.with_name(f"{self.path.name}.{number + 1}"))
        if self._keep > 0:
            self.path.rename(self.path.with_name(f"{self.path.name}.1"))
        else:
            self.path.unlink()
        os.close(self._fd)
        self._fd = -1
        self._fd = self._open()

    def _unwritable(self, exc: OSError) -> TidegateError:
        if exc.errno in _UNWRITABLE:
            return JournalFullError(f"{self.path}: journal cannot be written: {exc.strerror}; free space or move it")
        return BadInputError(f"{self.path}: not usable as a journal: {exc.strerror}")


def _whole_bytes(fd: int) -> int:
    """Return the length of the file up to its last undamaged line; only the last line is looked at."""
    size = os.fstat(fd).st_size
    length = min(size, _TAIL_BYTES)
    while length:
        tail = os.pread(fd, length, size - length)
        end = tail.rfind(b"\n") + 1
        start = tail.rfind(b"\n", 0, end - 1) + 1 if end else 0
        if end and (start or length == size):
            whole = size - length + end
            try:
                parse(tail[start:end])
            except ValueError:
                return whole - (end - start)
            return whole
        if length == size:
            return 0
        length = min(size, length * 4)
    return 0


def _sync_folder(folder: Path) -> None:
    """Make a new or renamed file's name durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
