"""The end of all local replicas, and of those whose pool is gone."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.actuate.local import LocalFleet
from tidegate.actuate.local_process import identity_of
from tidegate.actuate.local_rules import LocalPoolSpec
from tidegate.terms.fleet import PoolKey, ReplicaState
from tidegate.terms.plan import Step, StepKind

KEY = PoolKey(service="chat", pool="main")
ENGINE = str(Path(__file__).with_name("fake_engine.py"))
SPEC = LocalPoolSpec(key=KEY, profile="p", served_model="m", cold_start_s=0.0, command=(sys.executable, "-S", ENGINE))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[LocalFleet]:
    """A fleet of two ready replicas that take half a second to drain."""
    with LocalFleet(tmp_path, {KEY: replace(SPEC, extra_args=("--drain-for", "0.5"))}) as held:
        for name in "ab":
            do(held, StepKind.WARM, name)
        until(lambda: {r.state for r in held.membership(time.time()).replicas} == {ReplicaState.READY})
        yield held
    with LocalFleet(tmp_path, {}) as last:
        last.stop_all(grace_s=2.0)


def do(fleet: LocalFleet, kind: StepKind, name: str) -> None:
    assert fleet.apply(Step(kind=kind, pool=KEY, replica=name), time.time()).accepted


def until(condition: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < ends_s, "it did not come true"
        time.sleep(0.05)


def test_all_replicas_are_told_once_to_finish_their_answers_and_waited_for(fleet: LocalFleet, tmp_path: Path) -> None:
    do(fleet, StepKind.SHIFT, "b")
    do(fleet, StepKind.DRAIN, "b")  # told already; told again it would end its answers
    told_at_s = time.time()
    assert "a" in fleet.drain_all(told_at_s)
    saved = json.loads((tmp_path / "fleet.json").read_text())["replicas"]
    assert (saved["a"]["state"], saved["a"]["told_to_end_at_s"]) == ("draining", told_at_s)
    assert saved["b"]["told_to_end_at_s"] < told_at_s
    until(lambda: not fleet.living())
    assert fleet.drain_all(time.time()) == ()


def test_replicas_of_a_pool_that_nobody_names_are_found_and_can_be_drained(fleet: LocalFleet, tmp_path: Path) -> None:
    assert fleet.unnamed() == {}
    fleet.close()
    with LocalFleet(tmp_path, {}) as other:
        assert other.unnamed() == {KEY: ("a", "b")}
        for name in "ab":
            do(other, StepKind.SHIFT, name)
            do(other, StepKind.DRAIN, name)
        until(lambda: not any(r.address for r in other.membership(time.time()).replicas))
        assert other.unnamed() == {}
        do(other, StepKind.SHRINK, "a")


def test_stop_all_ends_even_the_deaf(tmp_path: Path) -> None:
    with LocalFleet(tmp_path, {KEY: replace(SPEC, extra_args=("--deaf",))}) as fleet:
        for name in "ab":
            do(fleet, StepKind.WARM, name)
        until(lambda: {r.state for r in fleet.membership(time.time()).replicas} == {ReplicaState.READY})
        pids = [fleet.pid_of(name) for name in "ab"]
        fleet.stop_all(grace_s=0.3)
        assert [identity_of(pid) for pid in pids if pid is not None] == [None, None]
        assert fleet.membership(time.time()).replicas == ()
        assert json.loads(fleet.targets_path.read_text()) == []
