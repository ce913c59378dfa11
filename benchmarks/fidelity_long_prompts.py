"""How to calibrate the compute factor m for long prompts, what it is worth, and disaggregated serving beside it.

`python benchmarks/fidelity_long_prompts.py` simulates the runs of measured_pd_vs_aggregated_llama8b.csv in
benchmarks/data, prompts of 8 k and 10 k tokens that share nothing, and prints JSON rows. Only means, medians and 99th
percentiles of each run are known, so arrivals are made: evenly spaced (the measured p99 TTFT of most two-replica H100
runs lies 10 % above the median, which Poisson arrivals cannot give) to replicas by chance, means over seeds. Per
accelerator m is fitted to the two-replica runs alone; the three-replica runs are predictions. Spacing and routing are
inferred from the same data, so these rows show how to calibrate and are no proof. No limit.

The rows named llm-d-1p1d and -2p1d are set against as many aggregated replicas, as measured and as simulated. Their
measured p99 of the gap between tokens is that of aggregated serving, as long as computing a whole prompt takes; a
decode replica that computes no prompts has no such gaps. So whatever these runs were, their decode replicas computed
prompts, and `simulated_aggregated_to_measured` is the figure to look at.
"""

import argparse
import csv
import dataclasses
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tidegate.app.config_profile import load_profile
from tidegate.app.profiles.replay import ended
from tidegate.perf.profile import PS_PER_S, EngineProfile
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.fast.fleet import FastFleet
from tidegate.sim.setup import FleetSetup, KvLink, PoolSetup, Routing
from tidegate.sim.trace import Trace
from tidegate.terms.fleet import PoolKey, Role

DATA = Path(__file__).parent / "data" / "measured_pd_vs_aggregated_llama8b.csv"
PRIORS = {"A100": "a100-llama8b-tp1", "H100": "h100-llama8b-tp1"}
# What a run's length is not told; the tail of runs near their limit grows with it.
REQUESTS = 300
FIGURES = ("mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "median_tpot_ms")
FACTORS = tuple(np.arange(1.0, 1.41, 0.02).round(2).tolist())
# 131,072 bytes of KV a token over 400 Gb/s InfiniBand at 49.5 GB/s; no set-up time is published, none is assumed.
LINK = KvLink(name="rdma", base_ps=0, ps_per_token=round(131_072 / 49.5e9 * PS_PER_S))
# Replicas: (aggregated, prefill, decode).
LAYOUTS = {"vllm-2replicas": (2, 0, 0), "vllm-3replicas": (3, 0, 0), "llm-d-1p1d": (0, 1, 1), "llm-d-2p1d": (0, 2, 1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Runs of one layout at one load, averaged."""

    gpu: str
    layout: str
    rate_per_s: float
    prompt_tokens: int
    output_tokens: int
    measured: dict[str, float]
    p99_itl_ms: float


def runs() -> Iterator[Run]:
    """Yield the layouts of the file."""
    with DATA.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    for key in dict.fromkeys((r["gpu"], r["layout"]) for r in rows):
        same = [r for r in rows if (r["gpu"], r["layout"]) == key]
        yield Run(
            gpu=key[0],
            layout=key[1],
            rate_per_s=float(same[0]["rate"]),
            prompt_tokens=int(same[0]["input_tokens"]),
            output_tokens=int(same[0]["output_tokens"]),
            measured={f: float(np.mean([float(r[f]) for r in same])) for f in FIGURES},
            p99_itl_ms=float(np.mean([float(r["p99_itl_ms"]) for r in same])),
        )


def setup(run: Run, profile: EngineProfile, seed: int) -> FleetSetup:
    """Return the run's fleet, all replicas ready."""
    roles = (Role.AGGREGATED, Role.PREFILL, Role.DECODE)
    pools = tuple(
        PoolSetup(
            key=PoolKey(service="run", pool=role.value),
            role=role,
            profile=profile,
            cold_start=ColdStart(samples_s=(0.0,)),
            initial=count,
        )
        for role, count in zip(roles, LAYOUTS[run.layout], strict=True)
        if count
    )
    link = LINK if LAYOUTS[run.layout][1] else None
    return FleetSetup(pools=pools, routing=Routing.RANDOM, link=link, seed=seed)


def simulated(run: Run, profile: EngineProfile, seeds: int) -> dict[str, float]:
    """Return the run's figures, in ms, means over seeds."""
    trace = Trace(
        name=run.layout,
        arrival_ps=np.round(np.arange(REQUESTS) / run.rate_per_s * PS_PER_S).astype(np.int64),
        prompt_tokens=np.full(REQUESTS, run.prompt_tokens, dtype=np.int64),
        output_tokens=np.full(REQUESTS, run.output_tokens, dtype=np.int64),
    )
    found = []
    for seed in range(seeds):
        out = ended(FastFleet(trace, setup(run, profile, seed)))
        ttft, tpot = out.ttft_s * 1e3, out.decode_s * 1e3 / (run.output_tokens - 1)
        found.append((ttft.mean(), np.median(ttft), np.quantile(ttft, 0.99), tpot.mean(), np.median(tpot)))
    return dict(zip(FIGURES, np.mean(found, axis=0).tolist(), strict=True))


def errors(run: Run, profile: EngineProfile, seeds: int) -> dict[str, float]:
    """Return relative errors by figure."""
    made = simulated(run, profile, seeds)
    return {f: made[f] / run.measured[f] - 1.0 for f in FIGURES}


def misfit(found: dict[str, float]) -> float:
    """Return what m is chosen by: the mean error of TTFT and TPOT, means and medians."""
    return float(np.mean([abs(e) for f, e in found.items() if not f.startswith("p99")]))


def main() -> int:
    """Fit m, print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    seeds = parser.parse_args().seeds
    every = list(runs())
    for gpu, name in PRIORS.items():
        prior = load_profile(name)
        with_factor = {m: dataclasses.replace(prior, compute_factor_ratio=m) for m in FACTORS}
        [train] = [run for run in every if run.gpu == gpu and run.layout == "vllm-2replicas"]
        best = min(FACTORS, key=lambda m: misfit(errors(train, with_factor[m], seeds)))
        say(part="fitted", gpu=gpu, run=train.layout, compute_factor=best, prior=name)
        for run in (r for r in every if r.gpu == gpu and r.layout.startswith("vllm")):
            for m in (1.0, best):
                say(
                    part="run",
                    gpu=gpu,
                    layout=run.layout,
                    load=f"{run.rate_per_s:g}/s of {run.prompt_tokens} + {run.output_tokens}",
                    use="fitted" if run is train and m == best else "predicted",
                    compute_factor=m,
                    errors={f: round(e, 3) for f, e in errors(run, with_factor[m], seeds).items()},
                )
        disaggregation(gpu, every, with_factor[best], seeds)
    return 0


def disaggregation(gpu: str, every: list[Run], profile: EngineProfile, seeds: int) -> None:
    """Print what disaggregating does to each figure at equal GPUs, measured and simulated."""
    for aggregated, apart in (("vllm-2replicas", "llm-d-1p1d"), ("vllm-3replicas", "llm-d-2p1d")):
        [one] = [r for r in every if (r.gpu, r.layout) == (gpu, aggregated)]
        [two] = [r for r in every if (r.gpu, r.layout) == (gpu, apart)]
        before, after = simulated(one, profile, seeds), simulated(two, profile, seeds)
        say(
            part="disaggregated to aggregated",
            gpu=gpu,
            layouts=f"{apart} to {aggregated}",
            measured={f: round(two.measured[f] / one.measured[f], 2) for f in FIGURES},
            simulated_disaggregated={f: round(after[f] / before[f], 2) for f in FIGURES},
            simulated_aggregated_to_measured={f: round(before[f] / two.measured[f], 2) for f in FIGURES},
            measured_p99_itl_ms={r.layout: round(r.p99_itl_ms, 1) for r in (one, two)},
        )


def say(**row: object) -> None:
    """Print one JSON row."""
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
