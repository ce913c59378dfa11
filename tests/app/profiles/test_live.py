"""A profile fitted to a running fleet's histograms, read out of a real Prometheus."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.app.profiles.live_history import WINDOW_S, WINDOWS, backfill

from tidegate.app.cli.main import EXIT_DONE, EXIT_REFUSED, EXIT_UNREACHABLE, main
from tidegate.app.config_profile import load_profile
from tidegate.app.servers import Server
from tidegate.sim.fleet import FleetSim

PRIOR = load_profile("h100-llama8b-tp1")
TRUTH = dataclasses.replace(PRIOR, front_end_ps=30_000_000_000, step_base_ps=PRIOR.step_base_ps + 3_000_000_000)
WORDS = ["profile", "fit", "--prior", "h100-llama8b-tp1", "--reuse", "none", "--fit", "front-end,step-base"]


@pytest.fixture(autouse=True)
def plain_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.app.profiles.fit.FastFleet", FleetSim)


def test_fit_reads_a_fleet_s_own_histograms(
    prometheus_factory: Callable[..., Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    backfill(folder, TRUTH, int(time.time()) - (WINDOWS + 1) * WINDOW_S)
    server = prometheus_factory(workdir=folder)
    out = tmp_path / "mine.yaml"
    asked = ["--prometheus", server.url, "--service", "chat", "--pool", "main", "--scrape-interval", "15s"]
    span = ["--since", f"{WINDOWS * WINDOW_S}s", "--window", f"{WINDOW_S}s"]

    assert main([*WORDS, *asked, *span, "--out", str(out)]) == EXIT_DONE

    profile = load_profile(str(out))
    assert profile.front_end_ps == pytest.approx(TRUTH.front_end_ps, rel=0.1)
    assert profile.step_base_ps == pytest.approx(TRUTH.step_base_ps, rel=0.1)
    printed = capsys.readouterr().out
    assert "TPOT mean" in printed
    assert printed.count("held out  ") >= 2

    assert main([*WORDS, *asked[:2], "--service", "none", *span]) == EXIT_REFUSED
    assert "no window can be used" in capsys.readouterr().err


def test_prometheus_that_is_away_is_exit_code_3(
    free_port: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    away = f"http://127.0.0.1:{free_port()}"

    assert main([*WORDS, "--prometheus", away, "--service", "chat"]) == EXIT_UNREACHABLE
    assert away.removeprefix("http://") in capsys.readouterr().err
