"""Reading a journal: all of it in order, or only its newest record."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tidegate.app import codec
from tidegate.app.journal_lines import JournalDamagedError, checked_format, parse, segments
from tidegate.app.record import TickRecord
from tidegate.terms.errors import BadInputError
from tidegate.terms.policy import ServicePolicy

# First look for the last line: a tick of ten replicas is about 20 KiB.
_TAIL_BYTES = 256 << 10


class Located(NamedTuple):
    """A record and where it was read."""

    record: TickRecord
    where: str  # file:line
    tidegate: str  # version that wrote it


def read(path: Path) -> Iterator[TickRecord]:
    """Yield every record, oldest first; a torn last line of the newest segment is left out.

    Raises:
        BadInputError: There is no journal at `path`, or it cannot be read.
        JournalDamagedError: Any other line is damaged; names file and line.
    """
    return (located.record for located in read_located(path))


def read_located(path: Path, *, on_torn: Callable[[str], None] | None = None) -> Iterator[Located]:
    """Yield every record with its place; as `read`. `on_torn` is told the place of a last line that was left out."""
    _refuse_folder(path)
    files = segments(path)
    if not files:
        msg = f"{path}: no such journal"
        raise BadInputError(msg)
    for file in files:
        yield from _segment(file, may_be_torn=file == path, on_torn=on_torn)


def _refuse_folder(path: Path) -> None:
    if path.is_dir():
        msg = f"{path}: must be a journal file such as {path / 'journal.jsonl'}, is a folder"
        raise BadInputError(msg)


def _segment(file: Path, *, may_be_torn: bool, on_torn: Callable[[str], None] | None) -> Iterator[Located]:
    policies: dict[str, tuple[ServicePolicy, ...]] = {}
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            for number, line in enumerate(stream, start=1):
                where = f"{file}:{number}"
                body = _body(line, where, torn=may_be_torn and stream.tell() >= size)
                if body is None:
                    if on_torn is not None:
                        on_torn(where)
                    return
                if body.get("kind") == "policies":
                    policies[str(body.get("digest"))] = _policies(body, where)
                elif body.get("kind") == "tick":
                    known = policies.get(str(body.get("policies")))
                    if known is None:
                        msg = f"{where}: names policies {body.get('policies')}, which this file does not hold"
                        raise JournalDamagedError(msg)
                    yield Located(_record(body, known, where), where, str(body.get("tidegate", "unknown")))
    except OSError as exc:
        msg = f"{file}: cannot be read: {exc.strerror}"
        raise BadInputError(msg) from exc


def _body(line: bytes, where: str, *, torn: bool) -> dict[str, Any] | None:
    """Return the line's body; None for the torn end of the newest segment."""
    try:
        return checked_format(parse(line), where)
    except ValueError as exc:
        if torn:
            return None
        msg = f"{where}: {exc}"
        raise JournalDamagedError(msg) from exc


def _policies(body: dict[str, Any], where: str) -> tuple[ServicePolicy, ...]:
    try:
        return codec.policies_from(body.get("policies"))
    except codec.CodecError as exc:
        msg = f"{where}: {exc}"
        raise JournalDamagedError(msg) from exc


def _record(body: dict[str, Any], policies: tuple[ServicePolicy, ...], where: str) -> TickRecord:
    try:
        return codec.from_document(body.get("record", {}), policies)
    except codec.CodecError as exc:
        msg = f"{where}: {exc}"
        raise JournalDamagedError(msg) from exc


def last(path: Path) -> TickRecord | None:
    """Return the newest record, or None when there is none yet; reads only the end of the newest segment that has one.

    Raises:
        BadInputError: `path` is a folder, or cannot be read.
        JournalDamagedError: A complete line at the end is damaged.
    """
    _refuse_folder(path)
    for file in reversed(segments(path)):
        try:
            with file.open("rb") as stream:
                found = _last_of(stream, file, may_be_torn=file == path)
        except OSError as exc:
            msg = f"{file}: cannot be read: {exc.strerror}"
            raise BadInputError(msg) from exc
        if found is not None:
            return found
    return None


def _last_of(stream: BinaryIO, file: Path, *, may_be_torn: bool) -> TickRecord | None:
    size = os.fstat(stream.fileno()).st_size
    length = min(size, _TAIL_BYTES)
    while length:
        stream.seek(size - length)
        lines = stream.read(length).splitlines(keepends=True)
        whole = lines if length == size else lines[1:]  # the first one may be cut at its beginning
        where = f"{file} (near its end)"
        for back, line in enumerate(reversed(whole)):
            body = _body(line, where, torn=may_be_torn and back == 0)
            if body is not None and body.get("kind") == "tick":
                return _record(body, _policies_at(stream, body, where), where)
        if length == size:
            return None
        length = min(size, length * 4)
    return None


def _policies_at(stream: BinaryIO, body: dict[str, Any], where: str) -> tuple[ServicePolicy, ...]:
    stream.seek(int(body.get("policies_at", 0)))
    line = stream.readline()
    found = _body(line, where, torn=False)
    if found is None or found.get("digest") != body.get("policies"):
        msg = f"{where}: its policies are not at byte {body.get('policies_at')}"
        raise JournalDamagedError(msg)
    return _policies(found, where)
