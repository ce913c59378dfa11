"""Processes are known by pid and start time, and no stranger is ever signalled."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.actuate import local_process as process
from tidegate.actuate.local_process import Ended, Identity

SLEEP = "import time; time.sleep(60)"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-S", "-c", SLEEP], env={**os.environ, "MARK_A": "1"}) as one:
        yield one
        one.kill()


def spawn(tmp_path: Path, code: str, **environment: str) -> Identity:
    return process.spawn(
        [sys.executable, "-S", "-c", code], environment={**os.environ, **environment}, log_path=tmp_path / "log"
    )


def wait_ended(identity: Identity) -> Ended:
    ends_s = time.monotonic() + 20.0
    while (end := process.ended(identity)) is None:
        assert time.monotonic() < ends_s
        time.sleep(0.01)
    return end


def test_a_signal_reaches_only_the_process_that_was_meant(sleeper: subprocess.Popen[bytes]) -> None:
    real = process.identity_of(sleeper.pid)
    assert real is not None
    earlier = Identity(pid=real.pid, start_ticks=real.start_ticks - 1)  # the pid was another's before
    assert not process.alive(earlier)
    assert process.ended(earlier) == Ended(status=None)
    assert not process.send(earlier, signal.SIGKILL)
    assert sleeper.poll() is None
    assert process.send(real, signal.SIGTERM)
    assert sleeper.wait(20) == -signal.SIGTERM
    assert not process.send(real, signal.SIGTERM)
    assert process.identity_of(real.pid) is None


def test_status_and_signal_of_our_children_are_told(tmp_path: Path) -> None:
    assert wait_ended(spawn(tmp_path, "raise SystemExit(7)")) == Ended(status=7)
    one = spawn(tmp_path, SLEEP)
    assert process.ended(one) is None
    assert process.send(one, signal.SIGKILL)
    assert wait_ended(one) == Ended(status=-9)
    assert process.ended(one) == Ended(status=None)  # reaped: nothing is left to tell


def test_a_child_leads_its_own_session_and_writes_to_its_log(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getsid(0) == os.getpid(), sys.stdin.read() == '', flush=True); sys.exit('bye')"
    assert wait_ended(spawn(tmp_path, code)) == Ended(status=1)
    assert process.log_tail(tmp_path / "log") == "True True | bye"
    assert process.log_tail(tmp_path / "none") == ""


def test_a_command_name_with_spaces_and_parentheses_is_read(tmp_path: Path) -> None:
    odd = tmp_path / "a) S 1 (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([str(odd), "60"]) as one:
        identity = process.identity_of(one.pid)
        assert identity is not None
        assert identity.start_ticks > 1
        one.kill()


def test_the_session_leader_is_found_by_its_environment_and_not_its_children(tmp_path: Path) -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {SLEEP!r}])"
    leader = spawn(tmp_path, code, MARK_B="x", MARK_C="y")
    child = Path(f"/proc/{leader.pid}/task/{leader.pid}/children")
    ends_s = time.monotonic() + 20.0
    while not (pids := child.read_text().split()) and time.monotonic() < ends_s:
        time.sleep(0.01)
    assert process.find_by_environment({"MARK_B": "x", "MARK_C": "y"}) == leader
    assert process.find_by_environment({"MARK_B": "x", "MARK_C": "z"}) is None
    assert process.send(leader, signal.SIGKILL)
    wait_ended(leader)
    for pid in pids:
        os.kill(int(pid), signal.SIGKILL)


def test_a_port_is_free_and_not_among_the_taken() -> None:
    taken = set(range(10_000, 19_990))
    port = process.free_port("127.0.0.1", {p for p in taken if p % 7})
    assert port % 7 == 0 or port >= 19_990


def test_a_program_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        process.spawn([str(tmp_path / "none")], environment={}, log_path=tmp_path / "log")
