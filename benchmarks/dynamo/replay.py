"""Judge scaling policies in NVIDIA's own replay simulator: their planner's modes, fixed sizes, and Tidegate's `decide`.

    .cache/dynamo/bin/python -m benchmarks.dynamo.replay [--load fast|slow|azure|FILE] [--minutes N] [--policies A,B,…]

Prints one JSON row per policy, then `fidelity` rows: the same fixed sizes on the same load in Tidegate's simulator.
Qwen3-32B on pairs of H200, prefill and decode apart, 120 s from order to ready, from one replica each; TTFT 1 s, ITL
30 ms, both to be met by a request to count.
"""

import argparse
import importlib
import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

from benchmarks.dynamo.engine import ITL_S, TTFT_S, engine_args, fitted
from benchmarks.dynamo.fidelity import compared
from benchmarks.dynamo.loads import Load, load_of
from benchmarks.dynamo.planner_policy import planner_policy
from benchmarks.dynamo.tidegate_policy import TidegatePolicy

from tidegate.perf.profile import EngineProfile

Report = Any  # theirs, untyped: summary, lifecycle_operations

# 32 replicas of each role, so that no ceiling decides.
MAX_GPUS = 128
SLA = {"optimization_target": "sla", "ttft_ms": 1000.0 * TTFT_S, "itl_ms": 1000.0 * ITL_S}
PLANNERS: dict[str, dict[str, Any]] = {
    "planner-throughput-arima": {**SLA, "load_predictor": "arima", "enable_load_scaling": False},
    "planner-throughput-kalman": {**SLA, "load_predictor": "kalman", "enable_load_scaling": False},
    "planner-hybrid-kalman": {**SLA, "load_predictor": "kalman", "enable_load_scaling": True},
    "planner-load": {**SLA, "enable_throughput_scaling": False, "enable_load_scaling": True},
    "planner-as-shipped": {"optimization_target": "throughput"},
}
STATIC = {"static-3p1d": (3, 1), "static-4p1d": (4, 1), "static-5p1d": (5, 1)}
TIDEGATE = ("tidegate", "tidegate-service-rate")
# Re-implemented here, to be held against the planner itself; only when asked for.
OURS = ("dynamo-throughput", "dynamo-load", "dynamo-hybrid")
ALL = (*TIDEGATE, *PLANNERS, *STATIC)


def run(policy: str, trace: Path, profiles: tuple[EngineProfile, EngineProfile]) -> Report:
    """Return their simulator's report of one policy on a load."""
    if policy in STATIC:
        return _replay(trace, None, STATIC[policy])
    if policy in OURS:
        return _replay(trace, planner_policy(policy, profiles), (1, 1))
    if policy in TIDEGATE:
        ours = TidegatePolicy(prefill=profiles[0], decode=profiles[1], service_rate=policy != TIDEGATE[0])
        return _replay(trace, ours, (1, 1))
    planner = importlib.import_module("dynamo.replay.planner").planner_replay_adapter
    config = {
        "mode": "disagg",
        "environment": "virtual",
        "max_gpu_budget": MAX_GPUS,
        "enable_throughput_scaling": True,
        "pre_deployment_sweeping_mode": "none",
        **PLANNERS[policy],
    }
    scope = planner(
        extra_engine_args=None,
        prefill_engine_args=engine_args("prefill"),
        decode_engine_args=engine_args("decode"),
        planner_config_arg=json.dumps(config),
        performance_model_metadata=None,
        benchmark_granularity=8,
        capture_details=False,
    )
    with scope as adapter:
        return _replay(trace, adapter, (1, 1))


def _replay(trace: Path, policy: object, size: tuple[int, int]) -> Report:
    replay = importlib.import_module("dynamo._core").run_mocker_trace_replay
    return replay(
        [str(trace)],
        prefill_engine_args=engine_args("prefill"),
        decode_engine_args=engine_args("decode"),
        num_prefill_workers=size[0],
        num_decode_workers=size[1],
        sla_ttft_ms=1000.0 * TTFT_S,
        sla_itl_ms=1000.0 * ITL_S,
        trace_format="mooncake",
        router_mode="round_robin",
        replay_mode="offline",
        scaling_policy=policy,
    )


def row_of(policy: str, load: Load, report: Report, cpu_s: float) -> dict[str, object]:
    """Return what is printed of one policy."""
    summary = report.summary
    quantiles = {
        f"{name}_{q}_ms": round(summary[f"{key}_{name}_ms"], 2) for name in ("ttft", "itl") for q, key in _QUANTILES
    }
    moves = [o for o in report.lifecycle_operations or () if o["cause"] == "planner_scale"]
    return {
        "row": "policy",
        "policy": policy,
        "load": load.name,
        "requests": summary["num_requests"],
        "goodput_ratio": round(summary["goodput_completed_requests"] / summary["num_requests"], 4),
        "gpu_hours": round(summary["gpu_hours"], 3),
        **quantiles,
        "scale_events": len(moves),
        "cpu_s": round(cpu_s, 1),
    }


_QUANTILES = (("p50", "median"), ("p95", "p95"), ("p99", "p99"))


def main() -> int:
    wanted = _parser().parse_args()
    policies = ALL if wanted.policies == "all" else tuple(wanted.policies.split(","))
    unknown = [p for p in policies if p not in (*ALL, *OURS)]
    if unknown:
        print(f"--policies: unknown {', '.join(unknown)}; known: {', '.join((*ALL, *OURS))}", file=sys.stderr)
        return 2
    logging.disable(logging.WARNING)
    load = load_of(wanted.load, wanted.seed).first(wanted.minutes)
    *both, errors = fitted()
    profiles = (both[0], both[1])
    print(json.dumps({"row": "profile", "mean_error_ratio": {k: round(v, 4) for k, v in errors.items()}}), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "load.jsonl"
        load.write_mooncake(trace)
        for policy in policies:
            started = process_time()
            report = run(policy, trace, profiles)
            print(json.dumps(row_of(policy, load, report, process_time() - started)), flush=True)
            if policy in STATIC and not wanted.no_fidelity:
                print(json.dumps(compared(policy, STATIC[policy], load, report.summary, profiles)), flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", default="fast", help="fast, slow, azure, or a .csv.gz with azure's columns")
    parser.add_argument("--minutes", type=float, help="only the first minutes of the load")
    parser.add_argument("--seed", type=int, default=1, help="of the made loads and of copies")
    parser.add_argument(
        "--policies", default="all", help=f"comma separated; all: {', '.join(ALL)}; also: {', '.join(OURS)}"
    )
    parser.add_argument("--no-fidelity", action="store_true", help="leave Tidegate's simulator out")
    return parser


if __name__ == "__main__":
    os.environ.setdefault("DYN_LOG", "error")  # read when their runtime is imported
    sys.exit(main())
