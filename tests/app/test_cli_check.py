"""`tidegate check` from the outside: what it prints and how it ends."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.observe.engines import Engine, Envoy, key_of
from tests.observe.exposition import Exposition
from tests.observe.faulty import Faulty, always, answer

from tidegate.app.cli.main import main
from tidegate.app.servers import ScrapeJob, Server

POLICY = """
apiVersion: tidegate.io/v1alpha1
kind: ServicePolicy
metadata: {name: chat}
spec:
  model: acme/chat-8b
  slos:
    - {name: ttft, indicator: ttft, percentile: 95, threshold: 1s, window: 28d}
  pools:
    - name: main
      role: aggregated
      engine: vllm
      accelerator: nvidia-a100-80gb
      gpusPerReplica: 1
      engineProfile: a100-llama8b-tp1
      minReplicas: 1
      maxReplicas: 8
      coldStart: 20s
      costPerHour: 1
      scaleTarget: {kind: Local, name: main}
"""


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


def check(*words: str | Path) -> int:
    return main(["check", *(str(w) for w in words)])


def test_check_prints_what_it_understood(policy_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("-f", policy_file) == 0
    out = capsys.readouterr().out
    assert "service chat: model acme/chat-8b" in out
    assert "slo ttft: 0.95 of requests with ttft within 1 s over 28 d" in out
    assert "pool main: 1..8 replicas" in out


def test_check_says_what_one_replica_carries_and_that_twins_are_no_engines(
    policy_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("-f", policy_file) == 0
    out = capsys.readouterr().out
    (carries,) = [line for line in out.splitlines() if "one replica carries about" in line]
    assert "of 1155 prompt and 211 answer tokens" in carries
    assert "at a target utilisation of 0.85" in carries
    assert "note: scale target Local (chat/main) starts engine twins, which answer with synthetic text" in out
    assert "warning: pool" not in out


@pytest.mark.parametrize(
    ("threshold", "words"),
    [
        ("2ms", "2 ms is out of reach: even an idle replica needs"),
        ("1000s", "1000 s is so loose that it guards nothing"),
    ],
)
def test_check_warns_of_an_objective_that_makes_no_sense(
    policy_file: Path, threshold: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    policy_file.write_text(POLICY.replace("threshold: 1s", f"threshold: {threshold}"))
    assert check("-f", policy_file) == 0
    out = capsys.readouterr().out
    assert f"warning: pool chat/main: objective ttft: {words}" in out
    assert check("-f", policy_file, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert any(words in w for w in document["warnings"])
    assert document["expected"][0]["requests_per_s"] > 0


def test_check_answers_in_json(policy_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("-f", policy_file, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["policies"][0]["pools"][0]["key"] == {"service": "chat", "pool": "main"}
    assert document["contract"] is None


def test_check_refuses_a_bad_policy(policy_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy_file.write_text(POLICY.replace("minReplicas: 1", "minReplicas: 9"))
    assert check("-f", policy_file) == 2
    assert "policy.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags",
    [
        ["--prometheus", "localhost:9090"],
        ["--prometheus", "http://127.0.0.1:1", "--prometheus-bearer-file", "no-such-file"],
        ["--prometheus", "http://127.0.0.1:1", "--prometheus-username", "me"],
        ["--prometheus", "http://127.0.0.1:1", "--scrape-interval", "5 bananas"],
    ],
)
def test_check_refuses_bad_flags(policy_file: Path, flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert check("-f", policy_file, *flags) == 2
    assert capsys.readouterr().err.startswith("tidegate: ")


def test_check_says_that_nothing_listens(
    policy_file: Path, free_port: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("-f", policy_file, "--prometheus", f"http://127.0.0.1:{free_port()}") == 3
    assert "connection refused" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (answer(b"no", "401 Unauthorized", "text/plain"), "credentials are missing or refused"),
        (answer(b"<html></html>", "200 OK", "text/html"), "HTML instead of JSON"),
    ],
)
def test_check_says_what_answered_instead_of_prometheus(
    policy_file: Path, reply: bytes, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Faulty(always(reply)) as server:
        assert check("-f", policy_file, "--prometheus", server.url) == 3
    assert words in capsys.readouterr().err


def test_check_names_an_empty_prometheus(
    policy_file: Path, prometheus_factory: Callable[..., Server], capsys: pytest.CaptureFixture[str]
) -> None:
    server = prometheus_factory()
    assert check("-f", policy_file, "--prometheus", server.url, "--scrape-interval", "500ms") == 1
    out = capsys.readouterr().out
    assert "no series of vllm exists: its job is missing from the scrape configuration" in out
    assert 'Prometheus has no scrape target of job "envoy"' in out
    assert "2 contract violations" in out


def test_check_is_content_with_a_live_fleet(
    policy_file: Path, prometheus_factory: Callable[..., Server], capsys: pytest.CaptureFixture[str]
) -> None:
    with Exposition() as pages:
        pages.pages = {"/main-1": Engine().page, "/envoy": Envoy(key_of("chat")).page}
        labels = {"service": "chat", "pool": "main", "replica": "main-1"}
        server = prometheus_factory(
            jobs=[
                ScrapeJob(name="engines", targets=(pages.address,), metrics_path="/main-1", labels=labels),
                ScrapeJob(name="envoy", targets=(pages.address,), metrics_path="/envoy"),
            ]
        )
        code, out = 1, ""
        for _ in range(60):  # Prometheus takes up to 5 s to begin scraping
            time.sleep(0.3)
            code = check("-f", policy_file, "--prometheus", server.url, "--scrape-interval", "500ms")
            out = capsys.readouterr().out
            if code == 0:
                break
    assert code == 0, out
    assert "every required query matches" in out
    assert "vllm:kv_cache_usage_perc" in out
