"""A small threaded HTTP server for /metrics and /healthz."""

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from tidegate.exporters.exposition import CONTENT_TYPE
from tidegate.terms.errors import BadInputError

CLIENT_TIMEOUT_S = 10.0  # a client that sends or reads slower than this is dropped
_PLAIN = "text/plain; charset=utf-8"


class ListenError(BadInputError):
    """The address to listen on is wrong or taken."""


def parse_listen(text: str) -> tuple[str, int]:
    """Return host and port of `host:port`, also `[::1]:9400`; port 0 lets the system choose.

    Raises:
        ListenError: Not of that form, or the port is outside 0..65535.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:  # noqa: PLR2004  (TCP)
        msg = f"--listen: must be host:port with a port within 0..65535, got {text!r}"
        raise ListenError(msg)
    return host, int(port)


class MetricsServer:
    """Serves one page, made anew at each request; pages are made one at a time.

    Args:
        listen: `host:port`.
        page: Returns the exposition text.

    Raises:
        ListenError: The address is wrong, cannot be resolved, or the port is in use.
    """

    def __init__(self, listen: str, page: Callable[[], str]) -> None:
        host, port = parse_listen(listen)
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._server = _server_class(family)((host, port), _handler(page))
        except OSError as exc:  # gaierror is one, too
            msg = f"--listen {listen}: {exc.strerror or exc}; choose another address or stop what holds it"
            raise ListenError(msg) from exc
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    @property
    def port(self) -> int:
        """The port bound, also when 0 was asked for."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Serve in a thread until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Stop accepting and close the port; returns once the serving thread has ended."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _server_class(family: socket.AddressFamily) -> type[ThreadingHTTPServer]:
    class Server(ThreadingHTTPServer):
        address_family = family
        daemon_threads = True  # a slow client must not keep the process alive after SIGTERM
        allow_reuse_address = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing: a client that hangs up early is no event."""

    return Server


def _handler(page: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        server_version = "tidegate-exporter"
        sys_version = ""
        timeout: ClassVar[float] = CLIENT_TIMEOUT_S

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/healthz":
                self._answer(200, _PLAIN, "ok\n")
            elif path == "/metrics":
                self._metrics()
            else:
                self._answer(404, _PLAIN, "not found; try /metrics or /healthz\n")

        def _metrics(self) -> None:
            try:
                with one_at_a_time:
                    text = page()
            except Exception as exc:  # noqa: BLE001  (the last line before the wire: Prometheus must see up == 0)
                self._answer(500, _PLAIN, f"{type(exc).__name__}: {exc}\n")
            else:
                self._answer(200, CONTENT_TYPE, text)

        def _answer(self, code: int, content_type: str, text: str) -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class names it so)
            """Say nothing: one line a scrape is noise."""

    return Handler
