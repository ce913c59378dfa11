"""Flags that several verbs share, read with one error style."""

import os
from pathlib import Path

from tidegate.app.config_quantity import parse_duration_s
from tidegate.terms.errors import BadInputError

MAX_PORT = 65535


def host_port(flag: str, text: str) -> tuple[str, int]:
    """Return the host and port of `HOST:PORT`; an IPv6 host stands in brackets.

    Raises:
        BadInputError: Another form, or a port outside 1..65535.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 1 <= int(port[:6]) <= MAX_PORT:
        msg = f"{flag}: must be HOST:PORT with a port of 1 to {MAX_PORT}, got {text!r}"
        raise BadInputError(msg)
    return host.removeprefix("[").removesuffix("]"), int(port)


def duration_s(flag: str, text: str, *, least_s: float = 0.0) -> float:
    """Return a duration flag in seconds.

    Raises:
        BadInputError: Not a duration such as 90s or 5m, or below `least_s`.
    """
    try:
        seconds = parse_duration_s(text)
    except ValueError as exc:
        msg = f"{flag}: must be {exc}, got {text!r}"
        raise BadInputError(msg) from exc
    if seconds < least_s:
        msg = f"{flag}: must be at least {least_s:g}s, got {text}"
        raise BadInputError(msg)
    return seconds


def writable_folder(flag: str, path: Path) -> Path:
    """Return the folder, made when it was missing.

    Raises:
        BadInputError: It cannot be made or written.
    """
    why = ""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        why = exc.strerror or str(exc)
    if not why and not os.access(path, os.W_OK | os.X_OK):
        why = "permission denied"
    if why:
        msg = f"{flag}: {path}: must be a folder that can be written: {why}"
        raise BadInputError(msg)
    return path
