"""Ask many engines for `/health` at once, within one deadline, on one thread."""

import contextlib
import selectors
import socket
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Health(StrEnum):
    """What an engine said of itself."""

    READY = "ready"  # 200
    NOT_READY = "not_ready"  # any other answer
    REFUSED = "refused"  # nobody listens, or the connection broke
    SILENT = "silent"  # no answer within the deadline: an overloaded machine looks like this too


class _Asked(NamedTuple):
    name: str
    request: bytes


# "HTTP/1.1 200": enough of the status line to know the status.
_STATUS_BYTES = 12


def probe_all(endpoints: Mapping[str, tuple[str, int]], *, deadline_s: float) -> dict[str, Health]:
    """Return the health of every endpoint (name → host, port), all asked at once.

    Takes at most about `deadline_s`, however many there are and however many hang.
    """
    found = dict.fromkeys(endpoints, Health.SILENT)
    ends_s = time.monotonic() + deadline_s
    with selectors.DefaultSelector() as selector:
        try:
            for name, (host, port) in endpoints.items():
                if not _ask(selector, name, host, port):
                    found[name] = Health.REFUSED
            while selector.get_map() and (left_s := ends_s - time.monotonic()) > 0:
                for key, events in selector.select(left_s):
                    asked: _Asked = key.data
                    answer = _advance(selector, key, events)
                    if answer is not None:
                        found[asked.name] = answer
        finally:
            for key in list(selector.get_map().values()):
                _drop(selector, key)
    return found


def _ask(selector: selectors.BaseSelector, name: str, host: str, port: int) -> bool:
    link = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    link.setblocking(False)  # noqa: FBT003  (the socket module's own signature)
    request = f"GET /health HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode()
    try:
        with contextlib.suppress(BlockingIOError):
            link.connect((host, port))
    except OSError:
        link.close()
        return False
    selector.register(link, selectors.EVENT_WRITE, _Asked(name, request))
    return True


def _advance(selector: selectors.BaseSelector, key: selectors.SelectorKey, events: int) -> Health | None:
    link = key.fileobj
    assert isinstance(link, socket.socket)  # noqa: S101  (only sockets are registered)
    asked: _Asked = key.data
    try:
        if events & selectors.EVENT_WRITE:
            link.sendall(asked.request)  # 70 bytes into an empty buffer; a refused connection raises here
            selector.modify(link, selectors.EVENT_READ, asked)
            return None
        head = link.recv(_STATUS_BYTES, socket.MSG_PEEK)
    except OSError:
        _drop(selector, key)
        return Health.REFUSED
    if head and len(head) < _STATUS_BYTES and head.startswith(b"HTTP/"[: len(head)]):
        return None  # the rest of the status line is on its way
    _drop(selector, key)
    if not head:
        return Health.REFUSED
    return Health.READY if head[9:12] == b"200" else Health.NOT_READY


def _drop(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    selector.unregister(key.fileobj)
    assert isinstance(key.fileobj, socket.socket)  # noqa: S101
    key.fileobj.close()
