"""Probing many engines at once, the hanging ones included."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from tidegate.actuate.local_health import Health, probe_all


@contextlib.contextmanager
def listener(answer: bytes | None) -> Iterator[tuple[str, int]]:
    """Answer every connection with these bytes and close it; None: never answer."""
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=512) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    link = server.accept()[0]
                    if answer is None:
                        held.append(link)
                        continue
                    with link:
                        link.recv(4096)
                        link.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    for link in held:
        link.close()


def test_probe_tells_the_answers_apart(free_port: Callable[[], int]) -> None:
    with (
        listener(b"HTTP/1.1 200 OK\r\n\r\n") as ready,
        listener(b"HTTP/1.1 503 Service Unavailable\r\n\r\n") as warming,
        listener(b"hello, this is no web server") as other,
        listener(b"") as closing,
        listener(None) as silent,
    ):
        asked = {
            "ready": ready, "warming": warming, "other": other, "closing": closing, "silent": silent,
            "nobody": ("127.0.0.1", free_port()),
        }  # fmt: skip
        assert probe_all(asked, deadline_s=1.0) == {
            "ready": Health.READY,
            "warming": Health.NOT_READY,
            "other": Health.NOT_READY,
            "closing": Health.REFUSED,
            "silent": Health.SILENT,
            "nobody": Health.REFUSED,
        }


def test_probe_asks_two_hundred_at_once_and_is_not_held_up_by_one_that_hangs() -> None:
    with listener(b"HTTP/1.1 200 OK\r\n\r\n") as ready, listener(None) as silent:
        asked = {f"r{i}": ready for i in range(200)} | {"silent": silent}
        found = probe_all(asked, deadline_s=5.0)
    assert found.pop("silent") is Health.SILENT
    assert set(found.values()) == {Health.READY}


def test_probe_of_nobody_returns_at_once() -> None:
    assert probe_all({}, deadline_s=1000.0) == {}
