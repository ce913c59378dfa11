"""A server that answers as badly as a test asks it to, on a raw socket."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

GOOD_BODY = b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[100.5,"3"]}]}}'


@dataclass
class Asked:
    """One request as it came in."""

    line: str
    headers: dict[str, str]
    body: str


def answer(body: bytes, status: str = "200 OK", content_type: str = "application/json", *more: str) -> bytes:
    """Return a whole HTTP answer."""
    head = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *more,
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


@dataclass
class Faulty:
    """Does what `behave` yields for the number of the request (from 1): bytes are sent, floats are slept.

    Use as a context manager.
    """

    behave: Callable[[int], Iterator[bytes | float]]
    tls: ssl.SSLContext | None = None
    asked: list[Asked] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.05)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._main = threading.Thread(target=self._accept)
        self._main.start()
        return self

    @property
    def url(self) -> str:
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                peer, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(peer,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, peer: socket.socket) -> None:
        # A client that gives up mid-way breaks the pipe: that is what many of these tests are about.
        with contextlib.suppress(OSError, ssl.SSLError):
            peer.settimeout(5)
            with peer if self.tls is None else self.tls.wrap_socket(peer, server_side=True) as wire:
                self.asked.append(_read(wire))
                for step in self.behave(len(self.asked)):
                    if isinstance(step, bytes):
                        wire.sendall(step)
                    elif self._stop.wait(step):
                        return

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._main.join()
        for thread in self._threads:
            thread.join()
        self._listener.close()


def always(*steps: bytes | float) -> Callable[[int], Iterator[bytes | float]]:
    """Return the behaviour that does the same each time."""
    return lambda _: iter(steps)


def in_turn(*answers: bytes) -> Callable[[int], Iterator[bytes | float]]:
    """Return the behaviour that gives the answers one after the other, then the last again and again."""
    return lambda number: iter([answers[min(number, len(answers)) - 1]])


def drip(head: bytes, piece: bytes, pause_s: float) -> Callable[[int], Iterator[bytes | float]]:
    """Return the behaviour that sends `head`, then `piece` for ever."""

    def behave(_: int) -> Iterator[bytes | float]:
        yield head
        deadline_s = time.monotonic() + 20
        while time.monotonic() < deadline_s:
            yield piece
            yield pause_s

    return behave


def _read(wire: socket.socket) -> Asked:
    data = b""
    while b"\r\n\r\n" not in data:
        data += wire.recv(65_536) or _gone()
    head, _, body = data.partition(b"\r\n\r\n")
    line, *rest = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (h.partition(": ") for h in rest)}
    while len(body) < int(headers.get("content-length", "0")):
        body += wire.recv(65_536) or _gone()
    return Asked(line=line, headers=headers, body=body.decode())


def _gone() -> bytes:
    raise ConnectionResetError
