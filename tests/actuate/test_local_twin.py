"""The local fleet with real engine twins: warm, serve, drain without cutting an answer, and end with the owner."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tidegate.actuate import local_process as process
from tidegate.actuate.local import LocalFleet
from tidegate.actuate.local_rules import LocalPoolSpec
from tidegate.terms.fleet import PoolKey, Replica, ReplicaState
from tidegate.terms.plan import Step, StepKind

KEY = PoolKey(service="chat", pool="main")
SPEC = LocalPoolSpec(key=KEY, profile="a100-llama8b-tp1", served_model="chat-8b", cold_start_s=1.0)
WAIT_S = 40.0


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[LocalFleet]:
    with LocalFleet(tmp_path, {KEY: SPEC}, owner_pid=os.getpid()) as opened:
        yield opened
        opened.stop_all(grace_s=2.0)


def until(fleet: LocalFleet, wanted: Callable[[dict[str, Replica]], bool]) -> dict[str, Replica]:
    ends_s = time.monotonic() + WAIT_S
    while True:
        now = {r.name: r for r in fleet.membership(time.time()).replicas}
        if wanted(now):
            return now
        assert time.monotonic() < ends_s, f"{now} {fleet.details()}"
        time.sleep(0.1)


def do(fleet: LocalFleet, kind: StepKind) -> None:
    receipt = fleet.apply(Step(kind=kind, pool=KEY, replica="a"), time.time())
    assert receipt.accepted, receipt


def complete(address: str, output_tokens: int) -> tuple[int, int]:
    """Return the status and the tokens of one answer."""
    link = http.client.HTTPConnection(address, timeout=WAIT_S)
    body = {"model": "chat-8b", "prompt": "the tide comes in", "max_tokens": output_tokens}
    try:
        link.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = link.getresponse()
        return answer.status, json.loads(answer.read())["usage"]["completion_tokens"]
    finally:
        link.close()


def test_twin_becomes_ready_after_its_cold_start_and_finishes_its_answers_before_it_ends(fleet: LocalFleet) -> None:
    do(fleet, StepKind.WARM)
    address = until(fleet, lambda now: now["a"].state is ReplicaState.READY)["a"].address
    assert fleet.cold_starts(KEY)[0] >= SPEC.cold_start_s
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(complete, address, 200)
        until(fleet, lambda _: running(address) == 1)
        do(fleet, StepKind.SHIFT)
        do(fleet, StepKind.DRAIN)
        assert answer.result() == (200, 200)
    until(fleet, lambda now: not now["a"].address)
    assert fleet.details()["a"] == "ended with status 0 while draining"
    do(fleet, StepKind.SHRINK)
    assert fleet.membership(time.time()).replicas == ()


def running(address: str) -> int:
    link = http.client.HTTPConnection(address, timeout=WAIT_S)
    try:
        link.request("GET", "/metrics")
        text = link.getresponse().read().decode()
    finally:
        link.close()
    rows = [line for line in text.splitlines() if line.startswith("vllm:num_requests_running")]
    return sum(int(float(row.rpartition(" ")[2])) for row in rows)


def test_killed_twin_is_failed_and_its_stream_is_cut(fleet: LocalFleet) -> None:
    do(fleet, StepKind.WARM)
    address = until(fleet, lambda now: now["a"].state is ReplicaState.READY)["a"].address
    pid = fleet.pid_of("a")
    assert pid is not None
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(complete, address, 4000)
        until(fleet, lambda _: running(address) == 1)
        os.kill(pid, signal.SIGKILL)
        until(fleet, lambda now: now["a"].state is ReplicaState.FAILED and not now["a"].address)
        with pytest.raises((http.client.HTTPException, OSError)):
            answer.result()
    assert fleet.details()["a"].startswith("ended with status -9 while serving")
    do(fleet, StepKind.CLEAR)


def test_twin_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(sleep) as owner, LocalFleet(tmp_path, {KEY: SPEC}, owner_pid=owner.pid) as fleet:
        do(fleet, StepKind.WARM)
        until(fleet, lambda now: now["a"].state is ReplicaState.READY)
        pid = fleet.pid_of("a")
        assert pid is not None
        owner.kill()
        owner.wait()
        until(fleet, lambda now: now["a"].state is ReplicaState.FAILED and not now["a"].address)
        assert process.identity_of(pid) is None
        do(fleet, StepKind.CLEAR)
