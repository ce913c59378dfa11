"""The twin's life: cold start, drain, owner, and addresses it cannot have."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from tests.app.twin.twin_process import TwinFactory

from tidegate.app.twin.owner import start_ticks


def ended(*words: str) -> tuple[int, str]:
    """Return the exit code and the error text of a twin that is not expected to start."""
    command = [sys.executable, "-m", "tidegate", "engine", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stderr


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def test_twin_is_not_healthy_until_it_is_warm(start_twin: TwinFactory) -> None:
    twin = start_twin("--cold-start", "1s", warm=False)
    cold = requests.get(f"{twin.url}/health", timeout=10)
    refused = twin.ask()
    twin.wait_for("ready")

    assert cold.status_code == 503
    assert refused.status_code == 503
    assert refused.json()["error"]["type"] == "ServiceUnavailableError"
    assert "vllm:num_requests_running" in requests.get(f"{twin.url}/metrics", timeout=10).text
    assert requests.get(f"{twin.url}/health", timeout=10).status_code == 200
    assert twin.ask().status_code == 200


def test_twin_opens_its_port_only_when_warm_if_told_so(start_twin: TwinFactory) -> None:
    twin = start_twin("--cold-start", "300ms", "--listen", "warm", warm=False)

    # It says its address when it listens, and by then it is warm.
    assert requests.get(f"{twin.url}/health", timeout=10).status_code == 200


def test_twin_drains_finishes_what_runs_and_ends_well(start_twin: TwinFactory) -> None:
    twin = start_twin()
    stream = twin.ask(stream=True, tokens=150)
    pieces = stream.iter_content(None)
    got = next(pieces)
    twin.process.send_signal(signal.SIGTERM)
    twin.wait_for("draining")

    assert requests.get(f"{twin.url}/health", timeout=10).status_code == 503
    refused = twin.ask()
    assert (refused.status_code, refused.json()["error"]["type"]) == (503, "ServiceUnavailableError")
    got += b"".join(pieces)
    assert got.count(b'"content":"tide') == 150
    assert got.endswith(b"data: [DONE]\n\n")
    assert twin.process.wait(20) == 0


def test_twin_ends_at_once_when_there_is_nothing_to_drain(start_twin: TwinFactory) -> None:
    assert start_twin().stop() == 0


def test_twin_ends_when_told_to_during_its_cold_start(start_twin: TwinFactory) -> None:
    assert start_twin("--cold-start", "60s", warm=False).stop() == 0


def test_twin_says_how_many_it_cut_when_the_drain_takes_too_long(start_twin: TwinFactory) -> None:
    twin = start_twin("--drain-timeout", "200ms")
    stream = twin.ask(stream=True, tokens=100_000)
    pieces = stream.iter_content(10)  # kept: a reader that is dropped closes its connection
    next(pieces)

    assert twin.stop() == 1
    assert "1 requests cut" in twin.wait_for("drain timeout")
    stream.close()


def test_twin_stops_without_drain_on_an_interrupt(start_twin: TwinFactory) -> None:
    twin = start_twin()
    stream = twin.ask(stream=True, tokens=100_000)
    pieces = stream.iter_content(10)  # kept: a reader that is dropped closes its connection
    next(pieces)

    assert twin.stop(signal.SIGINT) == 1
    stream.close()


def test_twin_ends_when_its_owner_is_gone(start_twin: TwinFactory) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as owner:
        twin = start_twin("--owner-pid", str(owner.pid))
        stream = twin.ask(stream=True, tokens=100_000)
        pieces = stream.iter_content(10)  # kept: a reader that is dropped closes its connection
        next(pieces)
        owner.kill()
        owner.wait(10)

    assert twin.process.wait(20) == 1
    assert "gone" in twin.wait_for("owner process")
    stream.close()


def test_owner_is_known_by_its_start_time(tmp_path: Path) -> None:
    folder = tmp_path / "77"
    folder.mkdir()
    fields = ["S", *map(str, range(4, 22)), "12345", "0"]
    (folder / "stat").write_text(f"77 (a) b (c)) {' '.join(fields)}", encoding="utf-8")

    assert start_ticks(77, proc=tmp_path) == 12345
    assert start_ticks(78, proc=tmp_path) is None


def test_owner_that_is_a_zombie_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "77"
    folder.mkdir()
    (folder / "stat").write_text(f"77 (x) Z {' '.join(map(str, range(4, 24)))}", encoding="utf-8")

    assert start_ticks(77, proc=tmp_path) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--profile", "a100-llama8b-tp9", "--port", "0"], "did you mean"),
        (["--profile", "./none.yaml", "--port", "0"], "no such file"),
        (["--profile", "a100-llama8b-tp1", "--port", "0", "--owner-pid", "4194305"], "no such process"),
        (["--profile", "a100-llama8b-tp1", "--port", "0", "--host", "192.0.2.1"], "cannot listen"),
        (["--profile", "a100-llama8b-tp1", "--port", "0", "--uds", "/proc/none"], "cannot listen"),
    ],
)
def test_engine_refuses_bad_input_with_exit_code_2(words: list[str], said: str) -> None:
    code, error = ended(*words)

    assert code == 2
    assert said in error
    assert "Traceback" not in error


def test_engine_names_a_port_in_use(taken_port: int) -> None:
    code, error = ended("--profile", "a100-llama8b-tp1", "--port", str(taken_port))

    assert code == 2
    assert f"--port {taken_port}: cannot listen" in error


@pytest.mark.parametrize(
    "words", [["--port", "99999"], ["--port", "-1"], ["--port", "0", "--cold-start", "15"], ["--port", "x"]]
)
def test_engine_refuses_words_that_are_no_port_or_time(words: list[str]) -> None:
    code, error = ended("--profile", "a100-llama8b-tp1", *words)

    assert code == 2
    assert "must be" in error
