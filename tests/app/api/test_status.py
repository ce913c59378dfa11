import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from starlette.testclient import TestClient

from tidegate.app.api import build_app
from tidegate.app.cli.main import main
from tidegate.app.cli.status import UNKNOWN_WORDS
from tidegate.app.self_metrics import SelfMetrics
from tidegate.app.state import LiveState
from tidegate.terms.signal import UnknownReason

T0 = 1_790_000_000.0
Make = Callable[..., Any]
Serve = Callable[..., str]


@pytest.fixture(name="serve")
def serve_fixture() -> Iterator[Serve]:
    """Serve one fixed body at any path; returns the URL."""
    servers: list[ThreadingHTTPServer] = []

    def serve(body: bytes, code: int = 200, location: str = "") -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(code)
                self.send_header("content-length", str(len(body)))
                if location:
                    self.send_header("location", location)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def _body(make_record: Make, *, now_s: float = T0, **options: Any) -> bytes:  # noqa: ANN401
    state = LiveState(started_at_s=T0, rate_window_s=30.0)
    state.publish(*make_record(T0, **options))
    metrics = SelfMetrics(state, journal_writable=lambda: True)
    with TestClient(build_app(state, clock=lambda: now_s, metrics=metrics)) as client:
        return client.get("/v1/state").content


def test_status_tells_the_fleet_and_returns_zero(
    serve: Serve, make_record: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--url", serve(_body(make_record, load=5.0))]) == 0
    said = capsys.readouterr().out
    assert said.startswith("ready: decision 1, decided 0 s ago\n")
    assert "arrivals 5.00/s" in said
    assert "slo tpot: missed: 93 % good over the last 30 s, objective 95 % (source: engine" in said
    assert "slo available: met: 100 % good over the last 30 s, objective 99.9 % (source: gateway)" in said
    assert "chat/main: " in said


def test_status_tells_unknown_and_returns_one_when_not_ready(
    serve: Serve, make_record: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--url", serve(_body(make_record, blind=True))]) == 1
    said = capsys.readouterr().out
    assert "not ready because: Prometheus gives no answer" in said
    assert "arrivals unknown (Prometheus cannot be reached)" in said
    assert "slo ttft: unknown (Prometheus cannot be reached), objective 95 % (source: gateway)" in said
    assert "unknown wanted" in said


def test_status_prints_the_answer_as_json(serve: Serve, make_record: Make, capsys: pytest.CaptureFixture[str]) -> None:
    body = _body(make_record)
    assert main(["status", "--json", "--url", serve(body)]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(body)


def test_status_lets_no_name_steer_the_terminal(
    serve: Serve, make_record: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    body = _body(make_record, violations=("evil \x1b[2J\x07",))
    main(["status", "--url", serve(body)])
    said = capsys.readouterr().out
    assert "violation: evil ?[2J?" in said


def test_status_is_unreachable_when_nothing_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        assert main(["status", "--url", url]) == 3
    assert "no controller answers (connection refused)" in capsys.readouterr().err


def test_status_has_words_for_every_reason_of_an_unknown() -> None:
    assert set(UNKNOWN_WORDS) == {reason.value for reason in UnknownReason}


@pytest.mark.parametrize(
    ("body", "code", "location"),
    [(b"<html>", 200, ""), (b"[]", 200, ""), (b"{}", 200, ""), (b"", 500, ""), (b"{}", 302, "http://192.0.2.1/")],
)
def test_status_refuses_what_is_no_tidegate(
    serve: Serve, body: bytes, code: int, location: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--url", serve(body, code, location)]) == 1
    assert "is this a Tidegate?" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["127.0.0.1:8780", "ftp://127.0.0.1", "http://", "http://[", "file:///etc/passwd"])
def test_status_refuses_what_is_no_url(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--url", url]) == 2
    assert "--url" in capsys.readouterr().err
