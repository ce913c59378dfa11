"""Speed and memory of the compiled fleet simulator, beside the plain one and two published simulators.

`python benchmarks/simulator_speed.py [--trace FILE] [--prefix-trace FILE] [--day-trace FILE] [--peers] [--out FILE]`

Prints one JSON row per figure, each measured in a process of its own, best of several runs after one that compiles:
{"case", "requests", "replicas", "seconds", "requests_per_s", …}. Exits 1 when the compiled simulator makes fewer than
1,000,000 requests/s without caches or 200,000 with prefix caches and tiers, or holds 1 GiB for a day. `--peers` also
installs `vllm-sr-sim` and `vidur` from the package index, each into an environment of its own under `.cache/`, and runs
them on the same trace; what does not run says why in its row.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from tidegate.app.config import load_profile
from tidegate.app.traces.read import read_trace
from tidegate.app.traces.shape import taken
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.fast.fleet import FastFleet
from tidegate.sim.fleet import FleetSim
from tidegate.sim.fleet_protocol import Fleet
from tidegate.sim.setup import CacheSetup, FleetSetup, PoolSetup
from tidegate.sim.trace import Trace
from tidegate.terms.fleet import PoolKey, Role

ROOT = Path(__file__).resolve().parent.parent
TRACES = ROOT / "examples" / "traces"
PROFILE = "a100-llama8b-tp1"
END_PS = 1 << 60
RUNS = 7
DAY_S = 86_400
SLICE = 1000  # requests that the plain simulator is given
LIMITS_PER_S = {"compiled": 1e6, "compiled_prefix_tiers": 2e5}
LIMIT_MIB = 1024
PEER_TIMEOUT_S = 900
CACHE = CacheSetup(
    hash_block_tokens=512,
    cpu_blocks=4000,
    cpu_load_ps_per_token=5_000_000,
    remote_blocks=40_000,
    remote_load_ps_per_token=20_000_000,
    load_base_ps=1_000_000_000,
    store_ps_per_token=1_000_000,
)
_SR_SIM = """
import csv, json, sys, time
from fleet_sim.core.fleet import Fleet, FleetConfig, PoolConfig
from fleet_sim.core.request import Request
from fleet_sim.gpu_profiles import A100_80GB
rows = [(float(t), int(p), int(o)) for t, p, o in csv.reader(open(sys.argv[1]))]
best = None
for _ in range(3):
    load = [(t, Request(req_id=i, arrival_time=t, l_in=p, l_out=o)) for i, (t, p, o) in enumerate(rows)]
    pool = PoolConfig(pool_id="main", gpu=A100_80GB, n_gpus=4, max_ctx=8192)
    fleet = Fleet(FleetConfig(pools=[pool], router_type="LeastLoadedRouter"))
    began = time.perf_counter()
    fleet.run(load)
    took = time.perf_counter() - began
    best = took if best is None else min(best, took)
print(json.dumps({"seconds": best}))
"""


def setup_of(replicas: int, cache: CacheSetup | None = None) -> FleetSetup:
    """Return a fleet of equal A100 replicas."""
    pool = PoolSetup(
        key=PoolKey(service="chat", pool="main"),
        role=Role.AGGREGATED,
        profile=load_profile(PROFILE),
        cold_start=ColdStart(samples_s=(60.0,)),
        initial=replicas,
        cache=cache,
    )
    return FleetSetup(pools=(pool,))


def best_s(make: Callable[[], Fleet], runs: int = RUNS) -> tuple[float, Fleet]:
    """Return the least CPU seconds of a whole run, and the fleet of the last one."""
    best, fleet = float("inf"), make()
    for _ in range(runs):
        fleet = make()
        began = time.process_time()
        fleet.run_until(END_PS)
        best = min(best, time.process_time() - began)
    return best, fleet


def row_of(case: str, trace: Trace, replicas: int, make: Callable[[], Fleet], runs: int = RUNS) -> dict[str, object]:
    """Return the row of one simulator on one trace."""
    seconds, fleet = best_s(make, runs)
    answered = int(np.count_nonzero(fleet.outcomes().ended_ps >= 0))
    return {
        "case": case,
        "trace": trace.name,
        "requests": len(trace),
        "answered": answered,
        "replicas": replicas,
        "seconds": round(seconds, 5),
        "requests_per_s": round(len(trace) / seconds),
    }


def compiled(trace: Trace, replicas: int, cache: CacheSetup | None = None) -> Callable[[], Fleet]:
    """Return what makes a compiled fleet."""
    setup = setup_of(replicas, cache)
    return lambda: FastFleet(trace, setup)


def first_run(trace: Trace) -> dict[str, object]:
    """Return how long the first run of this process takes, which compiles unless a process before has."""
    fleet = FastFleet(trace, setup_of(4))
    began = time.perf_counter()
    fleet.run_until(0)
    fleet.sample()
    return {"case": "first_call", "seconds": round(time.perf_counter() - began, 2)}


def measure_plain(trace: Trace) -> list[dict[str, object]]:
    """Return both simulators on the same slice, and the ratio."""
    part = taken(trace, np.arange(min(SLICE, len(trace)), dtype=np.int64))
    setup = setup_of(4)
    plain = row_of("plain_slice", part, 4, lambda: FleetSim(part, setup), runs=1)
    fast = row_of("compiled_slice", part, 4, lambda: FastFleet(part, setup))
    ratio = float(str(plain["seconds"])) / float(str(fast["seconds"]))
    return [plain, fast, {"case": "plain_to_compiled", "ratio": round(ratio)}]


def measure_day(trace: Trace) -> list[dict[str, object]]:
    """Return rows over growing parts of a day made of the trace end to end, and the peak memory of the process."""
    lap_ps = int(trace.arrival_ps[-1]) + 1
    laps = max(1, round(DAY_S * 10**12 / lap_ps))
    day = replace(
        trace,
        name=f"{trace.name} x{laps} end to end",
        arrival_ps=np.concatenate([trace.arrival_ps + lap * lap_ps for lap in range(laps)]),
        prompt_tokens=np.tile(trace.prompt_tokens, laps),
        output_tokens=np.tile(trace.output_tokens, laps),
    )
    rows = []
    for share in (8, 4, 2, 1):
        part = replace(
            day,
            arrival_ps=day.arrival_ps[: len(day) // share],
            prompt_tokens=day.prompt_tokens[: len(day) // share],
            output_tokens=day.output_tokens[: len(day) // share],
        )
        rows.append(row_of("compiled_day", part, 8, compiled(part, 8), runs=3) | {"share_of_day": f"1/{share}"})
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [*rows, {"case": "day_peak_rss", "requests": len(day), "rss_mib": round(peak_mib, 1)}]


def measure(case: str, args: argparse.Namespace) -> list[dict[str, object]]:
    """Return the rows of one case, measured in this process."""
    if case == "prefix":
        trace = read_trace(args.prefix_trace).trace
        compiled(trace, 8, CACHE)().run_until(0)
        return [row_of("compiled_prefix_tiers", trace, 8, compiled(trace, 8, CACHE))]
    if case == "day":
        return measure_day(read_trace(args.day_trace).trace)
    trace = read_trace(args.trace).trace
    if case == "plain":
        return measure_plain(trace)
    return [first_run(trace), row_of("compiled", trace, 4, compiled(trace, 4))]


def environment(name: str) -> Path:
    """Return the interpreter of an environment that has a package, installing it if need be.

    Raises:
        subprocess.CalledProcessError: It cannot be installed.
    """
    folder = ROOT / ".cache" / "simulator_speed" / name
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "-q", name], check=True, capture_output=True, text=True)
    return python


def peer(name: str, trace: Trace, command: Callable[[Path, Path], list[str]]) -> dict[str, object]:
    """Return the row of a published simulator: its own time if it prints it, else that of the process; or why not."""
    row: dict[str, object] = {"case": f"peer_{name}", "trace": trace.name, "requests": len(trace), "replicas": 4}
    with tempfile.TemporaryDirectory() as folder:
        try:
            arguments = command(environment(name), Path(folder))
            began = time.perf_counter()
            done = subprocess.run(
                arguments,
                cwd=folder,
                capture_output=True,
                text=True,
                check=True,
                timeout=PEER_TIMEOUT_S,
                env=os.environ | {"HF_HUB_OFFLINE": "1"},  # nothing is fetched but packages
            )
        except subprocess.CalledProcessError as exc:
            lines = [line for line in str(exc.stderr).strip().splitlines() if line.strip()]
            return row | {"error": lines[-1][:300] if lines else f"exit code {exc.returncode}"}
        except subprocess.TimeoutExpired:
            return row | {"error": f"not done after {PEER_TIMEOUT_S} s"}
        seconds = time.perf_counter() - began
        if done.stdout.startswith("{"):
            seconds = float(json.loads(done.stdout)["seconds"])
    return row | {"seconds": round(seconds, 3), "requests_per_s": round(len(trace) / seconds)}


def sr_sim(trace: Trace) -> Callable[[Path, Path], list[str]]:
    """Return the command that times vllm-sr-sim on a trace."""

    def command(python: Path, folder: Path) -> list[str]:
        columns = (trace.arrival_ps / 1e12, trace.prompt_tokens, trace.output_tokens)
        np.savetxt(folder / "trace.csv", np.column_stack(columns), fmt=["%.6f", "%d", "%d"], delimiter=",")
        return [str(python), "-c", _SR_SIM, str(folder / "trace.csv")]

    return command


def vidur(trace: Trace) -> Callable[[Path, Path], list[str]]:
    """Return the command that runs vidur on a trace, whole process."""

    def command(python: Path, folder: Path) -> list[str]:
        lines = ["Date,Time,PromptTokenCount,CompletionTokenCount"]
        at_s = (trace.arrival_ps / 1e12).tolist()
        for second, prompt, output in zip(
            at_s, trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True
        ):
            lines.append(f"2023-11-16,{second:.6f},{prompt},{output}")
        file = folder / "trace.csv"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return [
            *(str(python), "-m", "vidur.main"),
            *("--cluster_config_num_replicas", "4"),
            *("--replica_config_model_name", "meta-llama/Llama-3-8B"),
            *("--replica_config_device", "a100"),
            *("--request_generator_config_type", "trace_replay"),
            *("--trace_request_generator_config_trace_file", str(file)),
            *("--trace_request_generator_config_date", "2023-11-16"),
            *("--trace_request_generator_config_prefill_scale_factor", "1"),
            *("--trace_request_generator_config_time_scale_factor", "1"),
            *("--trace_request_generator_config_max_tokens", "131072"),
        ]

    return command


def in_own_process(case: str) -> list[dict[str, object]]:
    """Return the rows of one case, measured in a fresh process with the arguments of this one."""
    done = subprocess.run(
        [sys.executable, __file__, *sys.argv[1:], "--case", case], stdout=subprocess.PIPE, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def misses(rows: list[dict[str, object]]) -> list[str]:
    """Return what is beyond its limit."""
    found = []
    for row in rows:
        limit = LIMITS_PER_S.get(str(row["case"]))
        if limit is not None and float(str(row["requests_per_s"])) < limit:
            found.append(f"{row['case']}: {row['requests_per_s']} requests/s, must be >= {limit:.0f}")
        if float(str(row.get("rss_mib", 0.0))) >= LIMIT_MIB:
            found.append(f"{row['case']}: {row['rss_mib']} MiB, must be < {LIMIT_MIB}")
    return found


def main() -> int:
    """Measure and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=TRACES / "azure2023_conv.csv.gz")
    parser.add_argument("--prefix-trace", type=Path, default=TRACES / "mooncake_conversation_30min.csv.gz")
    parser.add_argument("--day-trace", type=Path, default=TRACES / "hybrid_azure_conv_3h.csv.gz")
    parser.add_argument("--peers", action="store_true", help="also run published simulators; installs them")
    parser.add_argument("--out", type=Path, help="also write the rows to this file")
    parser.add_argument("--case", choices=("speed", "prefix", "day", "plain"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        sys.stdout.writelines(json.dumps(row) + "\n" for row in measure(args.case, args))
        return 0
    rows: list[dict[str, object]] = []
    for case in ("speed", "prefix", "day", "plain"):
        rows += in_own_process(case)
    if args.peers:
        trace = read_trace(args.trace).trace
        rows += [peer("vllm-sr-sim", trace, sr_sim(trace)), peer("vidur", trace, vidur(trace))]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    sys.stdout.write(lines)
    if args.out:
        args.out.write_text(lines, encoding="utf-8")
    problems = misses(rows)
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
