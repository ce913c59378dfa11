"""`tidegate backtest` against a real Prometheus that remembers four hours."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from tests.app.rehearse.history import HOURS, backfill

from tidegate.app import servers
from tidegate.app.cli.main import main
from tidegate.app.rehearse.document_schema import json_schema

POLICY = str(Path(__file__).parents[2] / "examples" / "policies" / "chat.yaml")
QUICK = ("--no-match", "--no-oracles", "--no-capacity-check", "--jobs", "1", "--quiet", "--scrape-interval", "15s")


@pytest.fixture(scope="module", name="url")
def filled_prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("backtest")
    backfill(folder, int(time.time() // 60 - HOURS * 60 - 1) * 60)
    port = servers.free_port()
    with servers.start_prometheus(folder, port=port, scrape_interval_s=60.0, jobs=()):
        yield f"http://127.0.0.1:{port}"


def test_own_history_is_played_with_the_replicas_there_were(
    url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    words = ("--prometheus", url, "--since", f"{HOURS}h", "--policy", POLICY, "--json", "--html", str(page))
    assert main(["backtest", *words, *QUICK]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json_schema())
    assert document["trace"]["format"] == "prometheus"
    assert document["trace"]["requests"] == pytest.approx(4.0 * HOURS * 3600, rel=0.05)
    assert document["trace"]["prompt_tokens"]["mean"] == pytest.approx(900.0, rel=0.05)
    present = next(p for p in document["policies"] if p["name"] == "present")
    # Three replicas for half of the time, two for the other; one more minute each way of the grid.
    assert present["gpu_hours"] == pytest.approx(2.5 * HOURS, rel=0.05)
    assert {max(present["replicas"]["ready"]), present["replicas"]["ready"][-1]} == {3, 2}
    assert "finished requests" in "".join(document["notes"])
    assert "Backtest of chat over the last 4h" in page.read_text(encoding="utf-8")


def test_history_that_is_not_there_is_exit_code_2(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backtest", "--prometheus", url, "--since", "7d", "--policy", POLICY, *QUICK]) == 2
    said = capsys.readouterr().err
    assert "arrivals of service chat are known for 2 % of the time asked for, must be 50 %" in said
    assert said.count("\n") == 1


def test_prometheus_that_is_away_is_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{servers.free_port()}"
    assert main(["backtest", "--prometheus", url, "--policy", POLICY, *QUICK]) == 3
    assert "127.0.0.1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--since", "5m"), "--since: must be at least 600s, got 5m"),
        (("--since", "7"), "--since: must be a duration with its unit"),
        (("--step", "0s"), "--step: must be at least 1s, got 0s"),
        (("--since", "52w", "--step", "1s"), "--step: must be at least 157s for --since 52w, got 1s"),
    ],
)
def test_flag_that_cannot_be_used_is_exit_code_2(
    words: tuple[str, ...], said: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backtest", "--prometheus", url, "--policy", POLICY, *QUICK, *words]) == 2
    assert said in capsys.readouterr().err
