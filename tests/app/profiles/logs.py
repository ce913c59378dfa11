"""Benchmark logs made by the simulator itself: the truth is known."""

import dataclasses
from pathlib import Path

import numpy as np

from tidegate.app.config_profile import load_profile
from tidegate.app.profiles.cases import Case, cases_of
from tidegate.app.profiles.log import Load
from tidegate.app.profiles.replay import replayed
from tidegate.app.profiles.reuse import Reuse
from tidegate.perf.profile import EngineProfile
from tidegate.sim.fleet import FleetSim

PRIOR = load_profile("h100-llama8b-tp1")
TRUTH = dataclasses.replace(
    PRIOR,
    front_end_ps=20_000_000_000,
    front_end_ps_per_live=600_000_000,
    step_base_ps=PRIOR.step_base_ps + 1_000_000_000,
    compute_factor_ratio=1.2,
)


def made_load(qps: float, *, truth: EngineProfile = TRUTH, reuse: Reuse | None = None, count: int = 80) -> Load:
    """Return what two replicas like `truth` would have logged of chats at random moments."""
    random = np.random.default_rng(round(qps * 100))
    bare = Load(
        workload="chat",
        qps=f"{qps:g}",
        replicas=2,
        arrival_s=np.cumsum(random.exponential(1.0 / qps, count)),
        prompt_tokens=random.integers(300, 3000, count),
        output_tokens=random.integers(1, 40, count),
        ttft_s=np.ones(count),
        decode_s=np.ones(count),
    )
    [case] = cases_of([bare], train=["chat " + bare.qps])
    out = replayed(case, truth, reuse or Reuse(), make_fleet=FleetSim)
    return dataclasses.replace(bare, ttft_s=out.ttft_s, decode_s=out.decode_s)


def made_cases(*, truth: EngineProfile = TRUTH, reuse: Reuse | None = None) -> tuple[Case, ...]:
    return cases_of([made_load(qps, truth=truth, reuse=reuse) for qps in (3.0, 6.0, 10.0, 14.0)])


def write_csv(path: Path, loads: list[Load], *, columns: bool = True) -> Path:
    """Write loads as a benchmark log; without `columns` as one load without qps."""
    lines = ["workload,qps,arrival_s,input_tokens,output_tokens,ttft_s,decode_s"]
    if not columns:
        lines = ["arrival_s,input_tokens,output_tokens,ttft_s,decode_s"]
    for load in loads:
        for i in range(len(load)):
            row = f"{load.arrival_s[i]:.4f},{load.prompt_tokens[i]},{load.output_tokens[i]}"
            row += f",{load.ttft_s[i]:.5f},{load.decode_s[i]:.5f}"
            lines.append(f"{load.workload},{load.qps},{row}" if columns else row)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
