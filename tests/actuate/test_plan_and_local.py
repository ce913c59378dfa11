"""Plans carried out on real processes, second by second: grow, lose one, shrink, to nothing."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.actuate.local import LocalFleet
from tidegate.actuate.local_rules import LocalPoolSpec
from tidegate.actuate.plan import plan
from tidegate.terms.decision import Decision, PoolDecision, Reason, Verdict
from tidegate.terms.fleet import Membership, PoolKey, ReplicaState, Role
from tidegate.terms.observation import NodeInventory
from tidegate.terms.plan import Plan, StepKind

KEY = PoolKey(service="chat", pool="main")
NODES = tuple(NodeInventory(name=f"n{i}", accelerator="a", gpus=2, topology_domain="") for i in range(2))
ENGINE = str(Path(__file__).with_name("fake_engine.py"))
WAIT_S = 30.0


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[LocalFleet]:
    spec = LocalPoolSpec(
        key=KEY, profile="p", served_model="m", cold_start_s=0.1, command=(sys.executable, "-S", ENGINE)
    )
    with LocalFleet(tmp_path, {KEY: spec}, owner_pid=os.getpid()) as opened:
        yield opened
        opened.stop_all(grace_s=2.0)


def sweep(fleet: LocalFleet, asked: int, *, sequence: int) -> tuple[Membership, Plan]:
    """Do what the controller does each second, with a gateway that acknowledges at once."""
    now_s = time.time()
    pool = PoolDecision(
        key=KEY, role=Role.AGGREGATED, verdict=Verdict.HOLD, ready_replicas=0, starting_replicas=0,
        draining_replicas=0, asked_before_replicas=asked, wanted_replicas=asked, asked_replicas=asked,
        binding=Reason.STEADY, notes=(),
    )  # fmt: skip
    decision = Decision(decided_at_s=now_s, sequence=sequence, pools=(pool,))
    members = fleet.membership(now_s)
    made = plan(decision, members, nodes=NODES, gpus_per_replica={KEY: 1}, gateway_acked=True, now_s=now_s)
    for step in made.steps:
        receipt = fleet.apply(step, now_s)
        assert receipt.accepted, receipt
    return members, made


def settle(fleet: LocalFleet, asked: int, *, sequence: int) -> Membership:
    ends_s = time.monotonic() + WAIT_S
    while True:
        members, made = sweep(fleet, asked, sequence=sequence)
        supply = len(members.of(KEY, ReplicaState.READY, ReplicaState.STARTING))
        assert supply <= 4  # what the inventory holds, and never more than asked plus those to be shifted
        if not made.steps and {r.state for r in members.replicas} <= {ReplicaState.READY}:
            return members
        assert time.monotonic() < ends_s, (members, fleet.details())
        time.sleep(0.05)


def wait_until_missed(fleet: LocalFleet, name: str) -> None:
    """Wait until the fleet knows of a death: a killed process is a zombie some time before its status can be had."""
    ends_s = time.monotonic() + WAIT_S
    while any(r.name == name and r.state is ReplicaState.READY for r in fleet.membership(time.time()).replicas):
        assert time.monotonic() < ends_s, fleet.details()
        time.sleep(0.01)


def test_plans_grow_a_fleet_replace_what_dies_and_shrink_it_to_nothing(fleet: LocalFleet) -> None:
    three = settle(fleet, 3, sequence=1)
    assert [r.name for r in three.replicas] == ["chat.main.1.0", "chat.main.1.1", "chat.main.1.2"]
    assert sorted(r.node for r in three.replicas) in (["n0", "n0", "n1"], ["n0", "n1", "n1"])

    victim = fleet.pid_of("chat.main.1.1")
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    wait_until_missed(fleet, "chat.main.1.1")
    again = settle(fleet, 3, sequence=1)
    assert [r.name for r in again.replicas] == ["chat.main.1.0", "chat.main.1.2", "chat.main.1.3"]

    one = settle(fleet, 1, sequence=2)
    assert len(one.replicas) == 1
    assert len(fleet.drains(KEY)) == 2
    assert settle(fleet, 0, sequence=3).replicas == ()


def test_plans_fill_the_inventory_and_say_what_found_no_place(fleet: LocalFleet) -> None:
    _, made = sweep(fleet, 6, sequence=1)
    assert [s.kind for s in made.steps] == [StepKind.WARM] * 4
    assert {r.detail for r in made.refused} == {"not placed: 1 replica(s) need 1 GPU(s); 0 of 4 are free"}
    assert len(made.refused) == 2
