"""A metrics server of our own: serves text under a path, with counters that advance and names that can change."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable


class Exposition:
    """Serves what `pages[path]()` returns on loopback; an absent path is 404. Use as a context manager."""

    def __init__(self, port: int = 0) -> None:
        self.pages: dict[str, Callable[[], str]] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = outer.pages.get(self.path.partition("?")[0])
                body = b"" if page is None else page().encode()
                self.send_response(404 if page is None else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.port: int = self._server.server_address[1]
        self._running = False

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._running = True
        return self

    def stop(self) -> None:
        if self._running:
            self._running = False
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
