import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.app.journal_read import read

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def demo(out: Path, seconds: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tidegate", "demo", "--seconds", f"{seconds}s", "--out", str(out), "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def family(pid: int, out: Path) -> list[str]:
    """Command lines of the living processes that this demo started: they name its folder or their owner."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if int(folder.name) not in {pid, os.getpid()} and (str(out) in command or f"--owner-pid {pid} " in command):
                found.append(command)
    return found


def wait_until_running(process: subprocess.Popen[str], out: Path) -> None:
    """Wait for a first decision, when every server is up."""
    journal = out / "run" / "state" / "journal.jsonl"
    deadline_s = time.monotonic() + 60.0
    while time.monotonic() < deadline_s and process.poll() is None:
        if journal.exists() and journal.stat().st_size and len(family(process.pid, out)) >= 4:
            return
        time.sleep(0.2)
    assert process.poll() is None, process.communicate()
    raise AssertionError(family(process.pid, out))


def gone(pid: int, out: Path) -> list[str]:
    """What is still there after five seconds of grace."""
    deadline_s = time.monotonic() + 5.0
    while family(pid, out) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return family(pid, out)


def test_demo_answers_every_request_and_writes_its_report(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    with demo(out, 45) as process:
        said, told = process.communicate(timeout=220)
        assert process.returncode == 0, told
        assert gone(process.pid, out) == []
    document = json.loads(said)
    assert document["problems"] == []
    live, *rehearsed = document["rows"]
    assert live["how"] == "live"
    assert live["failed"] == 0
    assert live["requests"] > 100
    assert {r["name"].split(" ")[0] for r in rehearsed} == {"static-peak", "reactive", "tidegate"}
    assert all(r["requests"] == live["requests"] for r in rehearsed)
    assert live["replica_seconds"] > 45
    for name in ("load.png", "replicas.png", "ttft.png", "tpot.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    page = (out / "report.html").read_text()
    assert "Moves and their reasons" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    records = list(read(out / "run" / "state" / "journal.jsonl"))
    assert max(p.asked_replicas for r in records for p in r.decision.pools) > 1
    assert "grow 1 → " in told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_demo_leaves_no_process_behind_when_it_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "demo"
    with demo(out, 120) as process:
        wait_until_running(process, out)
        process.send_signal(number)
        process.communicate(timeout=30)
        assert process.returncode != 0
        assert gone(process.pid, out) == []
