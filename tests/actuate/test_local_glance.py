"""A look at another controller's fleet: as true as its own, and nothing in the folder changes."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidegate.actuate import local_process as process
from tidegate.actuate.local import LocalFleet
from tidegate.actuate.local_glance import FleetGlance
from tidegate.actuate.local_rules import LocalPoolSpec
from tidegate.terms.errors import BadInputError
from tidegate.terms.fleet import Membership, PoolKey, ReplicaState
from tidegate.terms.plan import Step, StepKind

KEY = PoolKey(service="chat", pool="main")
ENGINE = str(Path(__file__).with_name("fake_engine.py"))
SPEC = LocalPoolSpec(key=KEY, profile="p", served_model="m", cold_start_s=0.2, command=(sys.executable, "-S", ENGINE))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[LocalFleet]:
    with LocalFleet(tmp_path, {KEY: SPEC}) as held:
        yield held
        held.stop_all(grace_s=2.0)


def states(membership: Membership) -> list[tuple[str, ReplicaState, bool]]:
    return [(r.name, r.state, bool(r.address)) for r in membership.replicas]


def until(condition: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < ends_s, "it did not come true"
        time.sleep(0.05)


def test_glance_sees_readiness_and_death_beside_the_holder_and_changes_nothing(
    fleet: LocalFleet, tmp_path: Path
) -> None:
    fleet.apply(Step(kind=StepKind.WARM, pool=KEY, replica="a"), time.time())
    files = {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    glance = FleetGlance(tmp_path)
    # The holder has not looked since the order: its file says "starting".
    until(lambda: states(glance.membership(time.time())) == [("a", ReplicaState.READY, True)])
    first, second = (glance.membership(time.time()).replicas[0].ready_at_s for _ in range(2))
    assert first == second
    pid = fleet.pid_of("a")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: states(glance.membership(time.time())) == [("a", ReplicaState.FAILED, False)])
    assert {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()} == files


def test_glance_shows_what_the_holder_measured(fleet: LocalFleet, tmp_path: Path) -> None:
    fleet.apply(Step(kind=StepKind.WARM, pool=KEY, replica="a"), time.time())
    until(lambda: fleet.membership(time.time()).replicas[0].state is ReplicaState.READY)
    glance = FleetGlance(tmp_path)
    assert glance.cold_starts(KEY) == fleet.cold_starts(KEY) != ()
    now_s = time.time()
    assert glance.membership(now_s) == fleet.membership(now_s)


def test_glance_believes_no_process_of_another_boot(
    fleet: LocalFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.apply(Step(kind=StepKind.WARM, pool=KEY, replica="a"), time.time())
    glance = FleetGlance(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(process, "boot_id", lambda: "another")
        assert states(glance.membership(time.time())) == [("a", ReplicaState.FAILED, False)]


def test_glance_at_a_folder_without_a_fleet_is_empty_and_at_a_damaged_one_refused(tmp_path: Path) -> None:
    assert FleetGlance(tmp_path).membership(5.0) == Membership(taken_at_s=5.0, replicas=())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "fleet.json").write_text("[]")
    with pytest.raises(BadInputError, match="must be a fleet state of version"):
        FleetGlance(tmp_path)
