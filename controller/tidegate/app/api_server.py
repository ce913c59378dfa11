"""Serves the API inside the controller's own event loop, on loopback unless told otherwise."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from tidegate.terms.errors import BadInputError, RefusedError

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8780
_MAX_CONNECTIONS = 256
_MAX_PORT = 65_535
# A connection without a whole request for so long is closed: silent clients would use up the limit above, for ever.
_IDLE_S = 30.0
_STARTED_WITHIN_S = 10.0
_POLL_S = 0.01


class _Quiet(uvicorn.Server):
    """Leaves signals to the controller: they mean "drain and journal", not "stop the page"."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class _Bounded(H11Protocol):
    """Closes connections on which nothing is under way; uvicorn itself waits for a first request without end.

    h11 rather than httptools, which takes header lines of any length.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        super().connection_made(transport)
        self.loop.call_later(_IDLE_S, self._close_when_idle, None)

    def _close_when_idle(self, seen: RequestResponseCycle | None) -> None:
        """Close unless a request has come since `seen` or is still being answered; look again later."""
        if self.transport.is_closing():
            return
        if self.cycle is seen and (seen is None or seen.response_complete):
            self.transport.close()
            return
        self.loop.call_later(_IDLE_S, self._close_when_idle, self.cycle)


class ApiServer:
    """One listening socket with the API behind it."""

    def __init__(self, app: FastAPI, *, host: str = DEFAULT_HOST, port: int = DEFAULT_PORT) -> None:
        """Bind at once, so that a port in use is known before anything else starts.

        Raises:
            BadInputError: The address cannot be bound; the text names it and why.
        """
        self._socket = _bind(host, port)
        bound = self._socket.getsockname()
        shown = f"[{bound[0]}]" if ":" in str(bound[0]) else bound[0]
        self.url = f"http://{shown}:{bound[1]}"
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=_Bounded,
            ws="none",
            server_header=False,
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=2,
        )
        self._server = _Quiet(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve until `stop`; return once requests are answered."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        async with asyncio.timeout(_STARTED_WITHIN_S):
            while not self._server.started:
                if self._task.done():
                    self._task.result()
                    msg = f"{self.url}: the status page did not start"
                    raise RefusedError(msg)
                await asyncio.sleep(_POLL_S)

    async def stop(self) -> None:
        """Answer what is under way, then close; harmless when never started."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        self._socket.close()


def _bind(host: str, port: int) -> socket.socket:
    where = f"{host}:{port}"
    if not 0 <= port <= _MAX_PORT:  # the resolver would take 70000 for 4464
        msg = f"status page address {where}: the port must be 0 to {_MAX_PORT}"
        raise BadInputError(msg)
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, proto)
    except (OSError, OverflowError, UnicodeError) as exc:
        msg = f"status page address {where}: {exc}"
        raise BadInputError(msg) from exc
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)
    except (OSError, OverflowError) as exc:
        made.close()
        used = isinstance(exc, OSError) and exc.errno == errno.EADDRINUSE
        why = "the port is in use; give another one" if used else str(exc)
        msg = f"status page address {where}: {why}"
        raise BadInputError(msg) from exc
    made.setblocking(False)  # noqa: FBT003  (the standard library's own signature)
    return made
