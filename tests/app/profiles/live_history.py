"""Half an hour of a fleet's own metrics, made by the simulator, in the text that `promtool` makes blocks of."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tidegate.app.profiles.log import FloatArray
from tidegate.app.profiles.replay import plain_setup
from tidegate.app.servers import find_binary
from tidegate.perf.profile import PS_PER_S, EngineProfile
from tidegate.sim.fleet import FleetSim
from tidegate.sim.sample import Outcomes
from tidegate.sim.trace import Trace

SCRAPE_S = 15
WINDOW_S = 300
WINDOWS = 4
REPLICAS = 2
# vLLM's own bounds, as far as these requests go.
BOUNDS: dict[str, tuple[float, ...]] = {
    "vllm:time_to_first_token_seconds": (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5),
    "vllm:request_time_per_output_token_seconds": (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2),
    "vllm:e2e_request_latency_seconds": (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0),
    "vllm:request_prompt_tokens": (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000),
    "vllm:request_generation_tokens": (1, 2, 5, 10, 20, 50, 100, 200, 500),
}


def outcomes(truth: EngineProfile) -> Outcomes:
    """Return what a fleet like `truth` makes of a load that changes from window to window."""
    random = np.random.default_rng(11)
    arrivals = []
    for window in range(-1, WINDOWS):
        rate = 1.0 + 0.7 * (window % 3)
        start_s = (window + 1) * WINDOW_S
        arrivals.append(start_s + np.sort(random.uniform(0.0, WINDOW_S, round(rate * WINDOW_S))))
    at_s = np.concatenate(arrivals)
    trace = Trace(
        name="live",
        arrival_ps=np.round(at_s * PS_PER_S).astype(np.int64),
        prompt_tokens=np.maximum(1, random.exponential(600.0, len(at_s)).astype(np.int64)),
        output_tokens=np.maximum(2, random.exponential(20.0, len(at_s)).astype(np.int64)),
    )
    fleet = FleetSim(trace, plain_setup(truth, REPLICAS))
    fleet.run_until((WINDOWS + 2) * WINDOW_S * PS_PER_S)
    return fleet.outcomes()


def openmetrics(of: Outcomes, start_s: int) -> Iterator[str]:
    """Yield every family's lines; counters of a request move when it ends, as in vLLM, TTFT's at its first token."""
    times = np.arange(0, (WINDOWS + 1) * WINDOW_S + 1, SCRAPE_S)
    arrival, first, ended = (c / PS_PER_S for c in (of.trace.arrival_ps, of.first_ps, of.ended_ps))
    output = of.trace.output_tokens
    seen: dict[str, tuple[FloatArray, FloatArray]] = {
        "vllm:time_to_first_token_seconds": (first, first - arrival),
        "vllm:request_time_per_output_token_seconds": (ended, (ended - first) / (output - 1)),
        "vllm:e2e_request_latency_seconds": (ended, ended - arrival),
        "vllm:request_prompt_tokens": (ended, of.trace.prompt_tokens.astype(np.float64)),
        "vllm:request_generation_tokens": (ended, output.astype(np.float64)),
    }
    for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
        yield f"# TYPE {gauge} gauge\n"
        for replica in range(REPLICAS):
            mine = of.member == replica
            for s in times:
                live = int(np.count_nonzero((arrival[mine] <= s) & (ended[mine] > s))) if "running" in gauge else 0
                yield f"{gauge}{_labels(replica)} {live} {start_s + s}\n"
    for family, (when, value) in seen.items():
        yield f"# TYPE {family} histogram\n"
        for replica in range(REPLICAS):
            mine = of.member == replica
            for name, counts in _histogram(family, replica, when[mine], value[mine], times).items():
                yield from (f"{name} {count:.6f} {start_s + s}\n" for s, count in zip(times, counts, strict=True))
    yield "# EOF\n"


def _histogram(
    family: str, replica: int, when: FloatArray, value: FloatArray, times: npt.NDArray[np.int64]
) -> dict[str, list[float]]:
    """Return each series of one replica's histogram with its value at every scrape."""
    found: dict[str, list[float]] = {}
    for bound in (*BOUNDS[family], float("inf")):
        le = "+Inf" if bound == float("inf") else f"{float(bound)}"
        more = f',le="{le}"'
        found[f"{family}_bucket{_labels(replica, more)}"] = [
            float(np.count_nonzero((when <= s) & (value <= bound))) for s in times
        ]
    found[f"{family}_sum{_labels(replica)}"] = [float(np.sum(value[when <= s])) for s in times]
    found[f"{family}_count{_labels(replica)}"] = [float(np.count_nonzero(when <= s)) for s in times]
    return found


def _labels(replica: int, more: str = "") -> str:
    return f'{{service="chat",pool="main",replica="chat-{replica}",model_name="m"{more}}}'


def backfill(folder: Path, truth: EngineProfile, start_s: int) -> None:
    """Put the history into the data folder that a Prometheus will be started on."""
    text = folder / "history.txt"
    text.write_text("".join(openmetrics(outcomes(truth), start_s)), encoding="utf-8")
    (folder / "data").mkdir()
    subprocess.run(
        [find_binary("promtool"), "tsdb", "create-blocks-from", "openmetrics", text, folder / "data"],
        check=True,
        capture_output=True,
    )
