"""A real Alertmanager delivers to a small receiver built on parse, authorised and reconcile."""

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.policies import service_policy

from tidegate.alerts.actions import Standing, reconcile
from tidegate.alerts.webhook import authorised, parse
from tidegate.app.servers import Server
from tidegate.terms.observation import InterventionKind

pytestmark = pytest.mark.e2e
TOKEN = "the-right-token"  # noqa: S105  (of this test)
WAIT_S = 30.0


class Receiver:
    """Holds what the alerts ask for, and counts whom it turned away."""

    def __init__(self) -> None:
        self.standing = Standing()
        self.unauthorised = 0
        self.bodies = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(receiver.take(self.headers["Authorization"], body))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1/alerts"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, header: str | None, body: bytes) -> int:
        if not authorised(header, TOKEN):
            self.unauthorised += 1
            return 401
        self.standing = reconcile(parse(body), [service_policy()], self.standing, now_s=time.time()).standing
        self.bodies += 1
        return 200


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.server.shutdown()
    found.server.server_close()


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "did not happen in time"
        time.sleep(0.05)


def send_alert(server: Server, *, ends_at: str | None = None) -> None:
    alert = {
        "labels": {
            "alertname": "HighTtft",
            "tidegate_action": "floor",
            "tidegate_pool": "chat/main",
            "tidegate_replicas": "4",
            "tidegate_for": "10m",
        },
        "startsAt": "2026-01-01T00:00:00Z" if ends_at else datetime.now(UTC).isoformat(),
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/api/v2/alerts",
        data=json.dumps([alert | ({"endsAt": ends_at} if ends_at else {})]).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


def test_alertmanager_sets_a_floor_and_takes_it_back_when_the_alert_is_resolved(
    receiver: Receiver, alertmanager_factory: Callable[..., Server], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    server = alertmanager_factory(webhook_url=receiver.url, bearer_token_file=tmp_path / "token")
    send_alert(server)
    until(lambda: bool(receiver.standing.interventions))
    (found,) = receiver.standing.interventions
    assert (found.kind, str(found.pool), found.replicas) == (InterventionKind.FLOOR, "chat/main", 4)
    assert 0 < found.expires_at_s - time.time() <= 600

    send_alert(server, ends_at=datetime.now(UTC).isoformat())
    until(lambda: not receiver.standing.interventions)
    assert receiver.unauthorised == 0


def test_alertmanager_with_the_wrong_token_is_turned_away_and_counted(
    receiver: Receiver, alertmanager_factory: Callable[..., Server], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("another-token")
    server = alertmanager_factory(webhook_url=receiver.url, bearer_token_file=tmp_path / "token")
    send_alert(server)
    until(lambda: receiver.unauthorised > 0)
    assert receiver.bodies == 0
    assert receiver.standing == Standing()
