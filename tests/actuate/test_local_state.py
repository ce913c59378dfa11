"""What the local fleet saves: a file that no controller wrote is refused before anything acts on it."""

import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tidegate.actuate.local import LocalFleet
from tidegate.actuate.local_rules import LocalPoolSpec
from tidegate.actuate.local_state import LocalReplica, PoolRecord
from tidegate.terms.errors import BadInputError
from tidegate.terms.fleet import PoolKey, ReplicaState
from tidegate.terms.plan import Step, StepKind

WRONG: dict[str, tuple[object, ...]] = {
    "port": ("x", None, True, [], -1, 0, 70_000, 8000.0),
    "pid": ("x", None, True, 1.5),
    "ordered_at_s": ("x", None, True, []),
    "ready_at_s": ("x", False, float("nan"), float("inf")),
    "name": (7, None, {}, "b"),
    "host": (7, None, []),
    "state": ("gone", None),
    "ended": (1, None),
}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *((("replicas", "a", name), value) for name, values in WRONG.items() for value in values),
        (("pools", "chat/main", "cold_starts_s"), "x"),
        (("pools", "chat/main", "cold_starts_s"), [None]),
        (("pools", "chat/main", "drains_s"), [float("inf")]),
        (("pools", "chat/main", "failures"), None),
        (("retired",), {"b": "x"}),
    ],
)
def test_a_state_file_with_a_field_of_another_kind_is_refused(
    tmp_path: Path, place: tuple[str, ...], value: object
) -> None:
    replica = LocalReplica(
        name="a", service="chat", pool="main", node="", host="127.0.0.1", port=8000, state=ReplicaState.FAILED,
        ordered_at_s=1.0, ready_at_s=2.0, ended=True,
    )  # fmt: skip
    body: dict[str, Any] = {
        "version": 1, "fleet_id": "f", "boot_id": "b", "retired": {"c": 1.0}, "replicas": {"a": asdict(replica)},
        "pools": {"chat/main": asdict(PoolRecord(cold_starts_s=(1.0, 2), drains_s=(3.0,)))},
    }  # fmt: skip
    state = tmp_path / "fleet.json"
    state.write_text(json.dumps(body))
    LocalFleet(tmp_path, {}).close()
    inner = body
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    state.write_text(json.dumps(body))
    with pytest.raises(BadInputError, match=r"fleet\.json: must be a fleet state of version 1"):
        LocalFleet(tmp_path, {})


def test_a_replica_of_another_model_drains_when_the_controller_comes_back(tmp_path: Path) -> None:
    key = PoolKey(service="chat", pool="main")
    engine = str(Path(__file__).with_name("fake_engine.py"))
    spec = LocalPoolSpec(
        key=key, profile="p", served_model="old", cold_start_s=0.0, command=(sys.executable, "-S", engine)
    )
    with LocalFleet(tmp_path, {key: spec}) as fleet:
        assert fleet.apply(Step(kind=StepKind.WARM, pool=key, replica="a"), time.time()).accepted
    with LocalFleet(tmp_path, {key: spec}) as same:
        assert same.membership(time.time()).replicas[0].state is not ReplicaState.DRAINING
    with LocalFleet(tmp_path, {key: replace(spec, served_model="new")}) as other:
        (replica,) = other.membership(time.time()).replicas
        assert (replica.state, bool(replica.address)) == (ReplicaState.DRAINING, True)
        assert other.details() == {"a": "serves old, its pool new now"}
        assert other.apply(Step(kind=StepKind.DRAIN, pool=key, replica="a"), time.time()).detail == "told to end"
        other.stop_all(grace_s=5.0)


@pytest.mark.parametrize(("name", "is_folder"), [("lock", True), ("logs", False), (".fleet.json.part", True)])
def test_a_state_folder_that_cannot_be_used_is_named(tmp_path: Path, name: str, *, is_folder: bool) -> None:
    taken = tmp_path / name
    taken.mkdir() if is_folder else taken.touch()
    with pytest.raises(BadInputError, match=f"{name}: not usable in a state folder: "):
        LocalFleet(tmp_path, {})
