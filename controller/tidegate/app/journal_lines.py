"""One journal line as bytes, and the files a journal consists of."""

import json
import zlib
from pathlib import Path
from typing import Any

from tidegate.terms.errors import BadInputError

# Raised when a line's meaning changes; lines of another format are refused, never guessed at.
FORMAT = 1

_HEAD = b'{"crc":"'
_MIDDLE = b'","body":'
_TAIL = b"}\n"
_CRC_CHARS = 8


class JournalDamagedError(BadInputError):
    """A line that is not the torn end of the newest segment cannot be read."""


def wrap(body: str) -> bytes:
    """Return the line of a body, newline included.

    Text from elsewhere may hold half a surrogate pair, which strict UTF-8 refuses; `json.loads` reads it back.
    """
    content = body.encode("utf-8", "surrogatepass")
    return _HEAD + b"%08x" % zlib.crc32(content) + _MIDDLE + content + _TAIL


def parse(line: bytes) -> dict[str, Any]:
    """Return the body of a line, newline included.

    Raises:
        ValueError: Damaged; the text says how.
    """
    start = len(_HEAD) + _CRC_CHARS
    crc, content = line[len(_HEAD) : start], line[start + len(_MIDDLE) : -len(_TAIL)]
    framed = line.startswith(_HEAD) and line[start : start + len(_MIDDLE)] == _MIDDLE and line.endswith(_TAIL)
    if not framed:
        msg = "not a journal line"
        raise ValueError(msg)
    if b"%08x" % zlib.crc32(content) != crc:
        msg = f"CRC-32 is {zlib.crc32(content):08x}, the line says {crc.decode(errors='replace')}"
        raise ValueError(msg)
    body = json.loads(content)
    if not isinstance(body, dict):
        msg = "the body is not an object"
        raise ValueError(msg)  # noqa: TRY004  (one error for all damage)
    return body


def checked_format(body: dict[str, Any], where: str) -> dict[str, Any]:
    """Return `body` when this version can read it.

    Raises:
        JournalDamagedError: Another format.
    """
    if body.get("format") != FORMAT:
        written_by = body.get("tidegate", "unknown")
        msg = f"{where}: format {body.get('format')} written by tidegate {written_by}, this one reads format {FORMAT}"
        raise JournalDamagedError(msg)
    return body


def segments(path: Path) -> list[Path]:
    """Return the files of the journal at `path`, oldest first; empty when there is none."""
    older = []
    for found in path.parent.glob(f"{_escaped(path.name)}.*"):
        number = found.name.removeprefix(f"{path.name}.")
        if number.isdecimal():
            older.append((int(number), found))
    return [f for _, f in sorted(older, reverse=True)] + ([path] if path.exists() else [])


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
