"""The local fleet when the wall clock jumps: its limits are spans of being watched, not of the calendar."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.actuate.local import LocalFleet
from tidegate.actuate.local_rules import LocalPoolSpec
from tidegate.terms.fleet import PoolKey, Replica, ReplicaState
from tidegate.terms.plan import Receipt, Step, StepKind

KEY = PoolKey(service="chat", pool="main")
ENGINE = str(Path(__file__).with_name("fake_engine.py"))
SPEC = LocalPoolSpec(key=KEY, profile="p", served_model="m", cold_start_s=0.2, command=(sys.executable, "-S", ENGINE))
WAIT_S = 20.0
HOUR_S = 3600.0

Opener = Callable[..., LocalFleet]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opener]:
    """Open the one fleet of a test; its replicas are ended afterwards."""
    fleets: list[LocalFleet] = []

    def open_(*extra: str) -> LocalFleet:
        fleets.append(LocalFleet(tmp_path, {KEY: replace(SPEC, extra_args=extra)}))
        return fleets[-1]

    yield open_
    for fleet in fleets:
        fleet.stop_all(grace_s=1.0)
        fleet.close()


def do(fleet: LocalFleet, kind: StepKind, name: str = "a", *, later_s: float = 0.0) -> Receipt:
    return fleet.apply(Step(kind=kind, pool=KEY, replica=name), time.time() + later_s)


def see(fleet: LocalFleet, name: str = "a", *, later_s: float = 0.0) -> Replica:
    return next(r for r in fleet.membership(time.time() + later_s).replicas if r.name == name)


def until(fleet: LocalFleet, state: ReplicaState, name: str = "a", *, later_s: float = 0.0) -> None:
    ends_s = time.monotonic() + WAIT_S
    while see(fleet, name, later_s=later_s).state is not state:
        assert time.monotonic() < ends_s, fleet.details()
        time.sleep(0.05)


def test_a_start_is_not_hung_because_the_clock_was_set_forward(opened: Opener) -> None:
    fleet = opened("--cold-start", "1000s")
    do(fleet, StepKind.WARM)
    see(fleet)
    for later_s in (0.0, 59.0):
        assert see(fleet, later_s=HOUR_S + later_s).state is ReplicaState.STARTING
    until(fleet, ReplicaState.FAILED, later_s=HOUR_S + 62.0)


def test_a_drain_is_not_overdue_because_the_clock_was_set_forward(opened: Opener) -> None:
    fleet = opened("--deaf")
    do(fleet, StepKind.WARM)
    until(fleet, ReplicaState.READY)
    do(fleet, StepKind.SHIFT)
    do(fleet, StepKind.DRAIN)
    see(fleet, later_s=HOUR_S)
    assert do(fleet, StepKind.DRAIN, later_s=HOUR_S).detail == "draining"
    assert do(fleet, StepKind.DRAIN, later_s=HOUR_S + SPEC.drain_timeout_s + 31.0).detail.startswith("killed")


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_a_start_is_not_timed_over_a_jump_of_the_clock(opened: Opener, jump_s: float) -> None:
    fleet = opened("--cold-start", "1s")
    do(fleet, StepKind.WARM)
    see(fleet)
    until(fleet, ReplicaState.READY, later_s=jump_s)
    assert fleet.cold_starts(KEY) == ()


def test_a_hang_is_seen_although_the_clock_was_set_back(opened: Opener, tmp_path: Path) -> None:
    sick = tmp_path / "sick"
    fleet = opened("--sick-when", str(sick))
    do(fleet, StepKind.WARM)
    until(fleet, ReplicaState.READY)
    sick.touch()
    states = [see(fleet, later_s=3.0 * look - HOUR_S).state for look in range(3)]
    assert states == [ReplicaState.READY, ReplicaState.READY, ReplicaState.DRAINING]


def test_starts_are_not_blocked_until_an_old_time_when_the_clock_was_set_back(opened: Opener) -> None:
    fleet = opened("--fail-with", "1")
    for later_s, name in ((0.0, "a"), (1.0, "b"), (20.0, "c")):
        assert do(fleet, StepKind.WARM, name, later_s=later_s).accepted
        until(fleet, ReplicaState.FAILED, name, later_s=later_s)
    see(fleet, later_s=-HOUR_S)
    assert not do(fleet, StepKind.WARM, "d", later_s=-HOUR_S).accepted
    assert do(fleet, StepKind.WARM, "d", later_s=60.0 - HOUR_S).accepted
