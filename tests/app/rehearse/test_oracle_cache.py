"""The fair oracle's schedules, kept from run to run."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tidegate.app.config import load_policies
from tidegate.app.rehearse.loads import Loads
from tidegate.app.rehearse.oracle_cache import kept, name_of
from tidegate.app.rehearse.plays import Stage, world_of
from tidegate.baselines.oracle import Oracle
from tidegate.baselines.schedule import Schedule
from tidegate.baselines.search import Tried
from tidegate.sim.trace import Trace

POLICY = load_policies([Path(__file__).parents[3] / "examples" / "policies" / "chat.yaml"])[0]
POOL = POLICY.pools[0]
FOUND = Oracle(
    schedule=Schedule(step_s=15.0, counts={POOL.key: (1, 2, 1)}),
    gpu_hours=1.5,
    attainment_ratio=0.99,
    tried=(Tried(setting=0.9, attainment_ratio=0.99, gpu_hours=1.6),),
    passes=2,
)
TRACE = Trace(
    name="t",
    arrival_ps=np.arange(4) * 10**12,
    prompt_tokens=np.full(4, 64, dtype=np.int64),
    output_tokens=np.full(4, 8, dtype=np.int64),
    hash_block_tokens=16,
    hash_start=np.array([0, 1, 2, 3, 4], dtype=np.int64),
    hashes=np.array([1, 1, 2, 2], dtype=np.int64),
    prefix_id=np.array([1, 1, 2, 2], dtype=np.int64),
)


def name(trace: Trace, *, target_ratio: float = 0.99, speed_ratio: float = 1.0) -> str:
    loads = Loads(name="t", files=(), format="tidegate-csv", trace=trace)
    stage = Stage(loads=loads, world=world_of(POLICY, trace, peak_per_s=1.0), seeds=(0,))
    conditions = stage.conditions(seed=0, speed_ratio=speed_ratio)
    return name_of(trace, conditions, target_ratio=target_ratio, capacity_per_s=7.0)


def test_schedule_is_found_once_and_then_kept(tmp_path: Path) -> None:
    asked = []

    def find() -> Oracle:
        asked.append(1)
        return FOUND

    assert [kept("n", POOL, find, folder=tmp_path / "new") for _ in range(3)] == [FOUND] * 3
    assert len(asked) == 1
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["n.json"]


def test_schedule_out_of_reach_is_kept_with_its_reason(tmp_path: Path) -> None:
    none = replace(FOUND, schedule=None, gpu_hours=None, reason="out of reach")
    assert kept("n", POOL, lambda: none, folder=tmp_path) == none
    assert kept("n", POOL, lambda: FOUND, folder=tmp_path) == none


@pytest.mark.parametrize(
    "change",
    [
        {"counts": []},
        {"counts": [0, 1]},
        {"counts": [-5]},
        {"counts": [100_000]},
        {"counts": [float("inf")]},
        {"counts": "many"},
        {"step_s": 0},
        {"step_s": None},
        {"tried": [1]},
    ],
)
def test_file_that_holds_no_schedule_of_this_pool_is_found_again_and_mended(
    tmp_path: Path, change: dict[str, object]
) -> None:
    kept("n", POOL, lambda: FOUND, folder=tmp_path)
    path = tmp_path / "n.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    other = replace(FOUND, passes=7)
    assert kept("n", POOL, lambda: other, folder=tmp_path) == other
    assert kept("n", POOL, lambda: FOUND, folder=tmp_path) == other


@pytest.mark.parametrize("text", ["", "null", "[]", '"x"', "{", "\udcff"])
def test_file_that_is_no_document_is_found_again(tmp_path: Path, text: str) -> None:
    (tmp_path / "n.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert kept("n", POOL, lambda: FOUND, folder=tmp_path) == FOUND


def test_schedule_is_used_where_it_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert kept("n", POOL, lambda: FOUND, folder=tmp_path / "file" / "below") == FOUND


def test_names_differ_with_all_that_a_schedule_depends_on() -> None:
    names = [
        name(TRACE),
        name(TRACE, target_ratio=0.95),
        name(TRACE, speed_ratio=0.9),
        name(replace(TRACE, hash_start=np.array([0, 0, 2, 3, 4], dtype=np.int64))),
        name(replace(TRACE, prefix_id=np.array([1, 2, 2, 2], dtype=np.int64))),
        name(replace(TRACE, output_tokens=TRACE.output_tokens + 1)),
    ]
    assert len(set(names)) == len(names)
    assert name(TRACE) == names[0]
