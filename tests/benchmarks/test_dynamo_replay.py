"""The parts of the comparison in NVIDIA's simulator that run without it: loads, and Tidegate as a scaling policy."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.dynamo.fidelity import figures_of, run
from benchmarks.dynamo.loads import SHAPES, Load, load_of, made
from benchmarks.dynamo.tidegate_policy import TidegatePolicy

from tidegate.perf.profile import EngineProfile
from tidegate.sim.fleet import FleetSim


def _profile(role: str) -> EngineProfile:
    ms = 1_000_000_000
    return EngineProfile(
        name=role,
        model="m",
        accelerator="nvidia-h200",
        engine="vllm",
        engine_version="0",
        tensor_parallel=2,
        source="test",
        dated="2026-01-01",
        step_base_ps=3 * ms,
        weight_read_ps=10 * ms,
        compute_ps_per_token=ms // 20 if role == "prefill" else 1,
        smooth_max_power=2.0,
        compute_factor_ratio=1.0,
        kv_read_ps_per_token=30_000,
        attention_ps_per_pair=0,
        host_fixed_ps=0,
        host_ps_per_sequence=ms // 40,
        front_end_ps=0,
        kv_capacity_tokens=320_000,
        block_tokens=16,
        token_budget=8192,
        max_sequences=256,
        max_context_tokens=320_000,
    )


PROFILES = (_profile("prefill"), _profile("decode"))


def _snapshot(now_s: float, *, requests: float, active: dict[str, list[int]], starting: int = 0) -> dict[str, Any]:
    """Return what their simulator hands over, as far as the policy reads it."""
    snapshot: dict[str, Any] = {
        "now_ms": 1000.0 * now_s,
        "traffic": {
            "duration_s": 15.0,
            "num_req": requests,
            "avg_isl": 2500.0,
            "avg_osl": 150.0,
            "shape_count": requests,
        },
    }
    for role, ids in active.items():
        waiting = list(range(100, 100 + starting)) if role == "prefill" else []
        snapshot |= {
            f"active_{role}_ids": ids,
            f"starting_{role}_ids": waiting,
            f"draining_{role}_ids": [],
            f"non_draining_{role}_count": len(ids) + len(waiting),
            f"{role}_fpm_snapshots": [
                {"worker_id": n, f"num_{role}_requests": 1, f"num_queued_{role}": 0} for n in ids
            ],
        }
    return snapshot


def test_policy_grows_the_role_that_is_short_and_leaves_the_other() -> None:
    policy = TidegatePolicy(prefill=PROFILES[0], decode=PROFILES[1])
    assert policy.initial_tick_ms() == 15_000.0
    answer = policy.on_tick(_snapshot(15.0, requests=300.0, active={"prefill": [0], "decode": [0]}))
    assert answer["target_prefill"] > 1
    assert answer["target_decode"] is None
    assert answer["next_tick_ms"] == 30_000.0


def test_policy_counts_what_starts_as_ordered() -> None:
    policy = TidegatePolicy(prefill=PROFILES[0], decode=PROFILES[1])
    first = policy.on_tick(_snapshot(15.0, requests=300.0, active={"prefill": [0], "decode": [0]}))
    ordered = first["target_prefill"] - 1
    later = policy.on_tick(_snapshot(30.0, requests=300.0, active={"prefill": [0], "decode": [0]}, starting=ordered))
    again = later["target_prefill"]
    assert again is None or again > 1 + ordered


def test_policy_does_nothing_before_a_request_was_answered() -> None:
    policy = TidegatePolicy(prefill=PROFILES[0], decode=PROFILES[1])
    answer = policy.on_tick(_snapshot(15.0, requests=0.0, active={"prefill": [0], "decode": [0]}))
    assert (answer["target_prefill"], answer["target_decode"]) == (None, None)


def test_made_load_follows_its_shape_and_its_seed() -> None:
    load, again, other = made("fast", 1), made("fast", 1), made("fast", 2)
    assert np.array_equal(load.arrival_s, again.arrival_s)
    assert not np.array_equal(load.arrival_s[:100], other.arrival_s[:100])
    shape = SHAPES["fast"]
    for start_s in (0.0, 1200.0, 2010.0):
        seen = np.sum((load.arrival_s >= start_s) & (load.arrival_s < start_s + 240.0)) / 240.0
        assert seen == pytest.approx(np.mean([shape.rate(t) for t in np.arange(start_s, start_s + 240.0)]), rel=0.15)
    assert load.prompt_tokens.mean() == pytest.approx(2500.0, rel=0.02)
    assert load.output_tokens.mean() == pytest.approx(152.0, rel=0.02)


def test_load_is_written_with_blocks_nobody_shares(tmp_path: Path) -> None:
    load = load_of("fast", 1).first(1.0)
    load.write_mooncake(tmp_path / "load.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "load.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == len(load)
    blocks = [b for row in rows for b in row["hash_ids"]]
    assert len(set(blocks)) == len(blocks) == sum(-(-row["input_length"] // 512) for row in rows)


def test_recorded_load_is_multiplied_and_in_order() -> None:
    load = load_of("azure", 1)
    assert len(load) == 6 * 19_366
    assert bool(np.all(np.diff(load.arrival_s) >= 0.0))


def test_fidelity_figures_are_of_the_requests_as_sent() -> None:
    load = Load(
        name="two",
        arrival_s=np.array([0.0, 10.0]),
        prompt_tokens=np.array([1000, 1000]),
        output_tokens=np.array([11, 11]),
    )
    found = figures_of(run((1, 1), load, PROFILES, FleetSim))
    # 3 + sqrt(10^2 + 50^2) + 0.025 ms to prefill, then one decode step of 3 + 10 + 0.025 + 0.03 ms.
    assert found["ttft_p50_ms"] == pytest.approx(53.99 + 0.025 + 13.055, abs=0.05)
    assert found["tpot_p50_ms"] == pytest.approx(13.055, abs=0.01)
    assert found["goodput_ratio"] == 1.0
