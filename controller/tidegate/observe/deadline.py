"""A total deadline on one HTTP exchange, which `requests` does not have.

Its timeouts bound each wait for a byte: a server that sends one byte a second passes them for ever. Here a timer shuts
the socket down at the deadline, whatever the exchange is waiting for.
"""

import socket
import threading
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self, cast

from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.response import BaseHTTPResponse


class Watch:
    """Shuts the guarded socket down when `within_s` seconds have passed; use as a context manager."""

    def __init__(self, within_s: float) -> None:
        self._timer = threading.Timer(within_s, self._fire)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.fired = False

    def guard(self, sock: socket.socket | None) -> None:
        """Name the socket now in use."""
        with self._lock:
            self._socket = sock
            if self.fired:
                _shut(sock)

    def _fire(self) -> None:
        with self._lock:
            self.fired = True
            _shut(self._socket)

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        _current.reset(self._token)


_current: ContextVar[Watch | None] = ContextVar("tidegate_http_watch", default=None)


def _shut(sock: socket.socket | None) -> None:
    if sock is None:
        return
    try:
        # Unbound on purpose: SSLSocket.shutdown would drop the TLS state under the thread that is reading.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        # Already closed by either side: then nobody waits on it any more.
        return


def _guard(sock: socket.socket | None) -> None:
    watch = _current.get()
    if watch is not None:
        watch.guard(sock)


class _WatchedHttp(HTTPConnection):
    def getresponse(self) -> BaseHTTPResponse:  # type: ignore[override]  # urllib3 narrows http.client's type the same way
        _guard(self.sock)
        return super().getresponse()


class _WatchedHttps(HTTPSConnection):
    def getresponse(self) -> BaseHTTPResponse:  # type: ignore[override]  # as above
        _guard(self.sock)
        return super().getresponse()


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _WatchedHttp


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _WatchedHttps


_POOLS = {"http": _HttpPool, "https": _HttpsPool}


class WatchedAdapter(HTTPAdapter):
    """An adapter without retries of its own whose connections obey the current `Watch`."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - passed through unread
        """Create the pools with watched connections."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **proxy_kwargs: Any) -> PoolManager:  # noqa: ANN401 - passed through unread
        """Return the proxy's pools with watched connections."""
        manager = cast("PoolManager", super().proxy_manager_for(proxy, **proxy_kwargs))
        manager.pool_classes_by_scheme = _POOLS
        return manager
