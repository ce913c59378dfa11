"""The local fleet with real processes: start, drain, crash, hang, re-adopt, and nobody left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.actuate import local_process as process
from tidegate.actuate.local import LocalFleet
from tidegate.actuate.local_rules import LocalPoolSpec
from tidegate.terms.errors import BadInputError, RefusedError
from tidegate.terms.fleet import PoolKey, Replica, ReplicaState
from tidegate.terms.plan import Receipt, Step, StepKind

KEY = PoolKey(service="chat", pool="main")
ENGINE = str(Path(__file__).with_name("fake_engine.py"))
WAIT_S = 20.0
SPEC = LocalPoolSpec(key=KEY, profile="p", served_model="m", cold_start_s=0.2, command=(sys.executable, "-S", ENGINE))

Opener = Callable[..., LocalFleet]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opener]:
    """Open the fleet of one state folder; everything it started is ended afterwards."""
    fleets: list[LocalFleet] = []

    def open_(*extra: str, **options: object) -> LocalFleet:
        spec = replace(SPEC, extra_args=extra)
        fleets.append(LocalFleet(tmp_path, {KEY: spec}, **options))  # type: ignore[arg-type]
        return fleets[-1]

    yield open_
    for fleet in fleets:
        fleet.close()
    with LocalFleet(tmp_path, {}) as last:
        last.stop_all(grace_s=2.0)


def step(kind: StepKind, name: str = "a") -> Step:
    return Step(kind=kind, pool=KEY, replica=name, node="n1" if kind is StepKind.WARM else "")


def do(fleet: LocalFleet, kind: StepKind, name: str = "a", *, now_s: float | None = None) -> Receipt:
    return fleet.apply(step(kind, name), time.time() if now_s is None else now_s)


def see(fleet: LocalFleet, name: str = "a", *, later_s: float = 0.0) -> Replica | None:
    return next((r for r in fleet.membership(time.time() + later_s).replicas if r.name == name), None)


def until(fleet: LocalFleet, state: ReplicaState, name: str = "a", *, later_s: float = 0.0) -> Replica:
    ends_s = time.monotonic() + WAIT_S
    while time.monotonic() < ends_s:
        one = see(fleet, name, later_s=later_s)
        if one is not None and one.state is state:
            return one
        time.sleep(0.05)
    pytest.fail(f"{name} did not become {state}: {see(fleet, name)} {fleet.details()}")


def until_true(condition: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < ends_s, "it did not come true"
        time.sleep(0.05)


def ended(one: Replica | None) -> bool:
    return one is not None and not one.address


def pid_of(fleet: LocalFleet, name: str = "a") -> int:
    pid = fleet.pid_of(name)
    assert pid is not None
    return pid


def test_fleet_starts_drains_and_forgets_a_replica(opened: Opener) -> None:
    fleet = opened("--drain-for", "0.3")
    assert do(fleet, StepKind.WARM).accepted
    starting = see(fleet)
    assert starting is not None
    assert (starting.state, starting.node, starting.ready_at_s) == (ReplicaState.STARTING, "n1", None)
    ready = until(fleet, ReplicaState.READY)
    assert ready.ready_at_s is not None
    assert fleet.cold_starts(KEY) == (ready.ready_at_s - ready.ordered_at_s,)
    pid = pid_of(fleet)
    assert os.getsid(pid) == pid

    assert not do(fleet, StepKind.DRAIN).accepted  # not out of the endpoints yet
    assert do(fleet, StepKind.SHIFT).accepted
    shifted = see(fleet)
    assert shifted is not None
    assert (shifted.state, shifted.address) == (ReplicaState.DRAINING, ready.address)
    assert not do(fleet, StepKind.SHRINK).accepted
    assert do(fleet, StepKind.DRAIN).detail == "told to end"
    assert do(fleet, StepKind.DRAIN).detail == "draining"
    until_true(lambda: ended(see(fleet)))
    assert len(fleet.drains(KEY)) == 1
    assert do(fleet, StepKind.SHRINK).detail == "ended with status 0 while draining"
    assert see(fleet) is None
    assert fleet.pid_of("a") is None


def test_fleet_does_each_step_once_when_it_is_repeated(opened: Opener) -> None:
    fleet = opened()
    do(fleet, StepKind.WARM)
    pid = pid_of(fleet)
    assert do(fleet, StepKind.WARM) == Receipt(step=step(StepKind.WARM), accepted=True, detail="ordered already")
    assert pid_of(fleet) == pid
    until(fleet, ReplicaState.READY)
    for kind in (StepKind.SHIFT, StepKind.SHIFT, StepKind.DRAIN, StepKind.DRAIN):
        assert do(fleet, kind).accepted
    until_true(lambda: ended(see(fleet)))
    for kind in (StepKind.DRAIN, StepKind.SHRINK, StepKind.SHRINK, StepKind.SHIFT, StepKind.CLEAR):
        assert do(fleet, kind).accepted
    assert fleet.membership(time.time()).replicas == ()
    # A late repetition of the order must not bring it back.
    again = do(fleet, StepKind.WARM)
    assert (again.accepted, again.detail) == (False, "a has lived already; the next decision names another")
    assert do(fleet, StepKind.WARM, now_s=time.time() + 61.0).accepted


def test_fleet_marks_a_killed_replica_failed_and_clears_it(opened: Opener) -> None:
    fleet = opened()
    do(fleet, StepKind.WARM)
    until(fleet, ReplicaState.READY)
    assert not do(fleet, StepKind.CLEAR).accepted
    os.kill(pid_of(fleet), signal.SIGKILL)
    failed = until(fleet, ReplicaState.FAILED)
    assert failed.address == ""
    assert fleet.details()["a"] == "ended with status -9 while serving; its log ends: empty"
    assert do(fleet, StepKind.WARM, "b").accepted  # its replacement is not delayed
    assert do(fleet, StepKind.CLEAR).accepted
    assert see(fleet) is None
    until(fleet, ReplicaState.READY, "b")


def test_fleet_reports_status_and_log_when_a_start_fails_and_backs_off(opened: Opener) -> None:
    fleet = opened("--fail-with", "1")
    for name in ("a", "b"):
        assert do(fleet, StepKind.WARM, name).accepted
        until(fleet, ReplicaState.FAILED, name)
    assert fleet.details()["a"] == (
        "ended with status 1 before it was ready; its log ends: cannot read the weights: status 1"
    )
    refused = do(fleet, StepKind.WARM, "c")
    assert not refused.accepted
    assert refused.detail == "2 starts failed in a row; the next is tried 5 s after the last"
    assert see(fleet, "c") is None
    assert do(fleet, StepKind.WARM, "c", now_s=time.time() + 6.0).accepted


def test_fleet_refuses_and_remembers_when_the_program_is_missing(tmp_path: Path) -> None:
    spec = replace(SPEC, command=("/nonexistent/engine",))
    with LocalFleet(tmp_path, {KEY: spec}) as fleet:
        receipt = do(fleet, StepKind.WARM)
        assert not receipt.accepted
        assert receipt.detail.startswith("cannot start /nonexistent/engine: ")
        assert until(fleet, ReplicaState.FAILED).address == ""
        assert do(fleet, StepKind.CLEAR).accepted


def test_fleet_tries_another_port_when_the_first_was_taken_meanwhile(opened: Opener, tmp_path: Path) -> None:
    fleet = opened("--clash-first", str(tmp_path / "clashed"))
    do(fleet, StepKind.WARM)
    first = json.loads((tmp_path / "fleet.json").read_text())["replicas"]["a"]["port"]
    assert until(fleet, ReplicaState.READY).address != f"127.0.0.1:{first}"


def test_fleet_fails_a_start_that_hangs(opened: Opener) -> None:
    fleet = opened("--cold-start", "1000s", stuck_floor_s=60.0)
    do(fleet, StepKind.WARM)
    until_true(lambda: fleet.pid_of("a") is not None)
    at_border = see(fleet, later_s=59.0)
    assert at_border is not None
    assert at_border.state is ReplicaState.STARTING
    stuck = until(fleet, ReplicaState.FAILED, later_s=62.0)
    assert stuck.address  # the process still runs
    pid = pid_of(fleet)
    assert do(fleet, StepKind.CLEAR).accepted
    assert process.identity_of(pid) is None


def test_fleet_takes_a_replica_out_of_service_when_it_stops_being_ready_by_itself(
    opened: Opener, tmp_path: Path
) -> None:
    sick = tmp_path / "sick"
    fleet = opened("--sick-when", str(sick))
    do(fleet, StepKind.WARM)
    until(fleet, ReplicaState.READY)
    sick.touch()
    later = iter(range(3, 300, 3))
    until_true(lambda: (one := see(fleet, later_s=next(later))) is not None and one.state is ReplicaState.DRAINING)
    assert next(later) >= 9  # three probes, not one
    assert do(fleet, StepKind.DRAIN).detail == "draining"  # and is not told a second time
    assert fleet.pid_of("a") is not None


def test_fleet_kills_a_replica_that_does_not_end_within_its_drain_limit(opened: Opener) -> None:
    fleet = opened("--deaf")
    do(fleet, StepKind.WARM)
    until(fleet, ReplicaState.READY)
    do(fleet, StepKind.SHIFT)
    do(fleet, StepKind.DRAIN)
    assert do(fleet, StepKind.DRAIN, now_s=time.time() + SPEC.drain_timeout_s + 29.0).detail == "draining"
    assert do(fleet, StepKind.DRAIN, now_s=time.time() + SPEC.drain_timeout_s + 31.0).detail.startswith("killed")
    until_true(lambda: ended(see(fleet)))
    assert do(fleet, StepKind.SHRINK).detail == "ended with status -9 while draining"


def test_targets_list_living_replicas_with_their_labels_until_they_end(opened: Opener) -> None:
    fleet = opened("--drain-for", "0.3")
    do(fleet, StepKind.WARM)
    do(fleet, StepKind.WARM, "b")
    ready = until(fleet, ReplicaState.READY)

    def targets() -> list[dict[str, object]]:
        fleet.membership(time.time())
        found: list[dict[str, object]] = json.loads(fleet.targets_path.read_text())
        return found

    labels = {"service": "chat", "pool": "main", "replica": "a"}
    assert targets()[0] == {"targets": [ready.address], "labels": labels}
    assert len(targets()) == 2
    do(fleet, StepKind.SHIFT)
    do(fleet, StepKind.DRAIN)
    assert targets()[0]["labels"] == labels  # draining, and still scraped
    until_true(lambda: [t["labels"] for t in targets()] == [labels | {"replica": "b"}])


def test_a_second_controller_on_one_state_folder_is_refused(opened: Opener, tmp_path: Path) -> None:
    fleet = opened()
    with pytest.raises(RefusedError, match=f"held by another controller \\(pid {os.getpid()}\\)"):
        LocalFleet(tmp_path, {KEY: SPEC})
    fleet.close()
    opened()


def test_a_state_file_that_is_none_is_named(tmp_path: Path) -> None:
    state = tmp_path / "fleet.json"
    others = (b'{"version": 99}', b'{"version": 1, "replicas": {"a": {}}}', b"[" * 100_000, b"\0" * 99, b"\xbe\xef")
    for content in (b"", b"{", b"[]", *others):
        state.write_bytes(content)
        with pytest.raises(BadInputError, match=r"fleet\.json: must be a fleet state of version 1"):
            LocalFleet(tmp_path, {KEY: SPEC})
        assert state.read_bytes() == content
    state.unlink()
    state.mkdir()
    with pytest.raises(BadInputError, match=r"fleet\.json: fleet state cannot be read: Is a directory"):
        LocalFleet(tmp_path, {KEY: SPEC})


def test_nothing_leaves_when_that_cannot_be_saved(opened: Opener, tmp_path: Path) -> None:
    fleet = opened()
    do(fleet, StepKind.WARM)
    until(fleet, ReplicaState.READY)
    blocker = tmp_path / ".fleet.json.part"
    blocker.mkdir()
    assert not do(fleet, StepKind.SHIFT).accepted
    assert until(fleet, ReplicaState.READY).draining_since_s is None
    blocker.rmdir()
    assert do(fleet, StepKind.SHIFT).accepted
    blocker.mkdir()
    assert not do(fleet, StepKind.DRAIN).accepted
    blocker.rmdir()
    assert do(fleet, StepKind.DRAIN).detail == "told to end"  # for the first time


def test_nothing_is_started_elsewhere_when_the_order_cannot_be_saved(opened: Opener, tmp_path: Path) -> None:
    fleet = opened("--clash-first", str(tmp_path / "clashed"))
    do(fleet, StepKind.WARM)
    until_true((tmp_path / "clashed").exists)
    (blocker := tmp_path / ".fleet.json.part").mkdir()
    until(fleet, ReplicaState.FAILED)
    blocker.rmdir()
    assert "no other could be used" in fleet.details()["a"]


CONTROLLER = """
import os, sys, time
from pathlib import Path
from tidegate.actuate.local import LocalFleet
from tidegate.actuate.local_rules import LocalPoolSpec
from tidegate.terms.fleet import PoolKey
from tidegate.terms.plan import Step, StepKind
folder, engine, owned = sys.argv[1:]
key = PoolKey(service="chat", pool="main")
command = (sys.executable, "-S", engine)
spec = LocalPoolSpec(key=key, profile="p", served_model="m", cold_start_s=0.2, command=command)
fleet = LocalFleet(Path(folder), {key: spec}, owner_pid=os.getpid() if owned == "owned" else None)
for name in ("a", "b"):
    fleet.apply(Step(kind=StepKind.WARM, pool=key, replica=name), time.time())
while sum(r.state.value == "ready" for r in fleet.membership(time.time()).replicas) < 2:
    time.sleep(0.05)
fleet.apply(Step(kind=StepKind.SHIFT, pool=key, replica="b"), time.time())
print("up", flush=True)
time.sleep(60)
"""


def run_controller_and_kill_it(folder: Path, *, owned: bool) -> None:
    argv = [sys.executable, "-c", CONTROLLER, str(folder), ENGINE, "owned" if owned else "free"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == "up\n"
        controller.kill()


def test_a_controller_started_again_finds_the_replicas_of_the_killed_one(opened: Opener, tmp_path: Path) -> None:
    run_controller_and_kill_it(tmp_path, owned=False)
    fleet = opened()
    now = {r.name: r for r in fleet.membership(time.time()).replicas}
    assert {n: r.state for n, r in now.items()} == {"a": ReplicaState.READY, "b": ReplicaState.DRAINING}
    assert len(fleet.cold_starts(KEY)) == 2
    pid = pid_of(fleet, "b")
    assert do(fleet, StepKind.DRAIN, "b").accepted
    until_true(lambda: ended(see(fleet, "b")))
    assert process.identity_of(pid) is None
    assert do(fleet, StepKind.SHRINK, "b").accepted
    os.kill(pid_of(fleet, "a"), signal.SIGKILL)
    until(fleet, ReplicaState.FAILED)


def test_replicas_end_when_their_owner_is_gone(opened: Opener, tmp_path: Path) -> None:
    run_controller_and_kill_it(tmp_path, owned=True)
    fleet = opened()
    until_true(lambda: all(not r.address for r in fleet.membership(time.time()).replicas))
    states = {r.name: r.state for r in fleet.membership(time.time()).replicas}
    assert states == {"a": ReplicaState.FAILED, "b": ReplicaState.DRAINING}


def test_a_process_started_just_before_its_controller_died_is_found_by_its_environment(
    opened: Opener, tmp_path: Path
) -> None:
    fleet = opened()
    do(fleet, StepKind.WARM)
    pid = pid_of(fleet)
    fleet.close()
    state = tmp_path / "fleet.json"
    body = json.loads(state.read_text())
    body["replicas"]["a"] |= {"pid": 0, "start_ticks": 0}  # as written before the start
    body["replicas"]["never"] = body["replicas"]["a"] | {"name": "never"}
    state.write_text(json.dumps(body))
    again = opened()
    assert pid_of(again) == pid
    until(again, ReplicaState.READY)
    assert again.cold_starts(KEY) == ()  # nobody watched the whole start
    assert until(again, ReplicaState.FAILED, "never").address == ""


def test_a_recycled_pid_is_never_signalled(opened: Opener, tmp_path: Path) -> None:
    fleet = opened()
    do(fleet, StepKind.WARM)
    until(fleet, ReplicaState.READY)
    fleet.close()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        state = tmp_path / "fleet.json"
        body = json.loads(state.read_text())
        real = body["replicas"]["a"]["pid"]
        body["replicas"]["a"]["pid"] = stranger.pid
        state.write_text(json.dumps(body))
        again = opened()
        assert until(again, ReplicaState.FAILED).address == ""
        assert do(again, StepKind.CLEAR).accepted
        again.stop_all(grace_s=0.2)
        assert stranger.poll() is None
        stranger.kill()
    identity = process.identity_of(real)
    assert identity is not None
    assert process.send(identity, signal.SIGKILL)


def test_nothing_is_started_when_the_order_cannot_be_saved(opened: Opener, tmp_path: Path) -> None:
    fleet = opened()
    blocker = tmp_path / ".fleet.json.part"
    blocker.mkdir()  # as good as a full disk: the new state cannot be written
    assert ".fleet.json.part" in do(fleet, StepKind.WARM).detail
    assert fleet.membership(time.time()).replicas == ()
    blocker.rmdir()
    assert do(fleet, StepKind.WARM).accepted
