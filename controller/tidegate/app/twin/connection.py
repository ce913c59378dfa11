"""HTTP/1.1 on one connection: parsing by httptools, writing by hand.

A web framework would wake a task per stream and token; here a token is one write of bytes made beforehand, which is
what lets a fleet of twins run beside its load generator on two cores.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import httptools

from tidegate.app.twin.openai import SERVER, ApiError, bad_request

MAX_BODY_BYTES = 32 << 20
MAX_HEAD_BYTES = 64 << 10
MAX_PIPELINED = 128  # requests sent ahead on one connection
_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    413: b"Content Too Large",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}
_STREAM_HEAD = b"content-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"


@dataclass(slots=True)
class HttpRequest:
    """One request, read in full."""

    method: str = ""
    path: str = ""
    accept: str = ""
    body: bytearray = field(default_factory=bytearray)
    keep_alive: bool = True
    chunked_ok: bool = True  # HTTP/1.1
    peer_is_local: bool = False
    began_s: float = 0.0
    head_bytes: int = 0


Handler = Callable[["Connection", HttpRequest], None]


class Connection(asyncio.Protocol):
    """One client connection; requests on it are answered one after the other."""

    def __init__(
        self, handle: Handler, opened: set["Connection"], answered: Callable[[HttpRequest, int], None]
    ) -> None:
        self._handle = handle
        self._opened = opened
        self._answered = answered
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._reading = HttpRequest()
        self._queue: deque[HttpRequest] = deque()
        self._now: HttpRequest | None = None
        self._expect = False
        self._local = False
        self.closing = False  # after the answer in progress
        self.on_gone: Callable[[], None] | None = None  # called when the client leaves mid-answer

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the peer."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but ancestry
        self._opened.add(self)
        peer = transport.get_extra_info("peername")
        # A Unix socket has no address: who can reach the file is on this machine.
        host = peer[0] if isinstance(peer, tuple) and peer else "127.0.0.1"
        self._local = host.startswith("127.") or host in ("::1", "::ffff:127.0.0.1")

    def data_received(self, data: bytes) -> None:
        """Feed the parser."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.refuse(bad_request("upgrades are not supported"))
        except httptools.HttpParserError as exc:
            cause = exc.__context__
            self.refuse(cause if isinstance(cause, ApiError) else bad_request(f"not HTTP/1.1: {exc}"))

    def eof_received(self) -> bool:
        """Treat a half-closed connection as a client that left, as engines do."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request in progress, if any."""
        del exc
        self._opened.discard(self)
        self._transport = None
        self._queue.clear()
        gone, self.on_gone = self.on_gone, None
        if gone is not None:
            gone()

    # httptools callbacks

    def on_message_begin(self) -> None:
        """Start a request."""
        self._reading = HttpRequest(began_s=time.monotonic(), peer_is_local=self._local)
        self._expect = False

    def on_url(self, url: bytes) -> None:
        """Collect the target."""
        self._head(len(url))
        self._reading.path += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the few headers that matter."""
        self._head(len(name) + len(value))
        lower = name.lower()
        if lower == b"accept":
            self._reading.accept = value.decode("latin-1")
        elif lower == b"expect":
            self._expect = value.lower() == b"100-continue"

    def _head(self, more: int) -> None:
        self._reading.head_bytes += more
        if self._reading.head_bytes > MAX_HEAD_BYTES:
            raise ApiError(431, "BadRequestError", f"request line and headers are over {MAX_HEAD_BYTES} bytes")

    def on_headers_complete(self) -> None:
        """Answer `Expect: 100-continue`."""
        if self._expect and self._transport is not None and self._now is None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Collect the body, up to a bound."""
        if len(self._reading.body) + len(body) > MAX_BODY_BYTES:
            raise ApiError(413, "BadRequestError", f"the body is over {MAX_BODY_BYTES} bytes")
        self._reading.body += body

    def on_message_complete(self) -> None:
        """Answer the request, or queue it behind the one in progress."""
        request = self._reading
        request.method = self._parser.get_method().decode("latin-1")
        request.path = request.path.partition("?")[0]
        request.chunked_ok = self._parser.get_http_version() == "1.1"
        request.keep_alive = request.chunked_ok and self._parser.should_keep_alive()
        self._queue.append(request)
        if len(self._queue) > MAX_PIPELINED and self._transport is not None:
            self._transport.abort()
        self._next()

    # answering

    def _next(self) -> None:
        while self._now is None and self._queue and self._transport is not None:
            self._now = self._queue.popleft()
            self._handle(self, self._now)

    def refuse(self, error: ApiError) -> None:
        """Answer what could not be read, and close; an answer in progress is cut short."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._now is None:
            self._now = self._reading
            self.closing = True
            self.answer(error.status, error.body())
        else:
            self._transport.abort()

    def answer(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """Send a whole answer."""
        if self._transport is None or self._now is None:
            return
        last = self.closing or not self._now.keep_alive
        head = b"HTTP/1.1 %d %b\r\nserver: %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n%b\r\n" % (
            status,
            _REASONS[status],
            SERVER.encode(),
            content_type.encode("latin-1"),
            len(body),
            b"connection: close\r\n" if last else b"",
        )
        self._transport.write(head if self._now.method == "HEAD" else head + body)
        self.end(status)

    def stream_head(self) -> bytes:
        """Return the head of a streamed answer."""
        if self._now is None:
            return b""
        framing = b"transfer-encoding: chunked\r\n" if self._now.chunked_ok else b""
        last = self.closing or not self._now.keep_alive
        ending = b"connection: close\r\n" if last else b""
        return b"HTTP/1.1 200 OK\r\nserver: %b\r\n%b%b%b\r\n" % (SERVER.encode(), _STREAM_HEAD, framing, ending)

    def write(self, data: bytes) -> None:
        """Send bytes of a streamed answer.

        A client that reads too slowly makes the buffer grow, up to the length of its answer; the engine does not wait.
        """
        if self._transport is not None:
            self._transport.write(data)

    def end(self, status: int) -> None:
        """Finish the answer in progress; the next request on the connection gets its turn."""
        request, self._now = self._now, None
        self.on_gone = None
        if request is None:
            return
        self._answered(request, status)
        if self._transport is None:
            return
        if self.closing or not request.keep_alive:
            self._transport.close()
        elif self._queue:
            # Not by recursion: a client may have queued thousands of requests.
            asyncio.get_running_loop().call_soon(self._next)

    def close_when_idle(self) -> None:
        """Close now, or after the answer in progress."""
        self.closing = True
        if self._now is None and self._transport is not None:
            self._transport.close()
