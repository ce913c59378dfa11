"""How far the simulator is from a logged fleet, TTFT, TPOT and end-to-end time apart.

`python benchmarks/fidelity.py` replays the logged arrivals of benchmarks/data (two vLLM replicas of Llama-3.1-8B, 40
chat and 40 short-prompt loads, requests to the replicas in turn) and prints JSON rows: what was fitted to which loads,
one row a load, and a summary of the loads that nothing was fitted to. Fitted, on five named loads of each kind: the
front end, its growth with the requests in flight, the compute factor m, and of the chat loads the prefix reuse. All
else is the shipped profile: kernels from a grid of step times, host cost per sequence from ML.ENERGY's inter-token
latencies. The same again with one share of every prompt cached, the cruder description. Exits 1 beyond the limits.

Another log: `python benchmarks/fidelity.py --log FILE --prior PROFILE --replicas N [--train LOAD …]`; the limits hold
for workloads called sharegpt or chat (TTFT p50, TPOT p50, E2E mean) and short (TTFT p50).
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tidegate.app.config_profile import load_profile
from tidegate.app.profiles.calibrate import Calibration, Row, calibrated
from tidegate.app.profiles.cases import Case, cases_of, requests
from tidegate.app.profiles.host import host_costs, read_latencies
from tidegate.app.profiles.log import read_log
from tidegate.app.profiles.report import SHOWN, found_lines, summaries
from tidegate.perf.fit import StepFit
from tidegate.perf.profile import EngineProfile
from tidegate.sim.fast.fleet import FastFleet

DATA = Path(__file__).parent / "data"
LOG = DATA / "measured_llama8b_a100_tp1_x2.csv.gz"
TRAIN = tuple(f"{workload} {qps}" for workload in ("sharegpt", "short") for qps in ("1.0", "3.0", "5.0", "7.0", "9.0"))
FITTED = ("front-end", "front-end-per-live", "compute-factor")
CHAT = {"TTFT p50": 0.15, "TPOT p50": 0.02, "E2E mean": 0.02}
LIMITS = {"sharegpt": CHAT, "chat": CHAT, "short": {"TTFT p50": 0.06}}


def say(**row: object) -> None:
    """Print one JSON row."""
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def host_row(prior: EngineProfile) -> None:
    """Print what ML.ENERGY's latencies say of the host cost per sequence, on the accelerator they have."""
    h100 = load_profile("h100-llama8b-tp1")
    points = read_latencies(DATA / "timing_mlenergy_itl.csv")[("llama8b", "h100", 1)]
    kernels = StepFit(
        step_base_ps=h100.step_base_ps,
        weight_read_ps=h100.weight_read_ps,
        compute_ps_per_token=h100.compute_ps_per_token,
        smooth_max_power=h100.smooth_max_power,
        kv_read_ps_per_token=h100.kv_read_ps_per_token,
        attention_ps_per_pair=h100.attention_ps_per_pair,
        error_ratio=h100.fit_error_ratio,
        worst_error_ratio=1.0,
    )
    found = host_costs(points, kernels)
    if found is not None:
        say(
            part="host cost per sequence",
            data="ML.ENERGY, H100, Llama-3.1-8B, batch 8 to 256",
            found_us=round(found.ps_per_sequence / 1e6, 1),
            itl_error_ratio=round(found.error_ratio, 4),
            used_us=prior.host_ps_per_sequence / 1e6,
        )


def load_row(model: str, row: Row) -> None:
    """Print one load."""
    errors = {name: error for name, metric, level in SHOWN if (error := row.error_ratio(metric, level)) is not None}
    say(
        part="load",
        model=model,
        load=row.case.name,
        use="held out" if row.case.held_out else "fitted",
        requests=row.case.until - row.case.first,
        errors={name: round(error, 4) for name, error in errors.items()},
    )


def summary_rows(model: str, rows: Iterable[Row], *, limited: bool) -> bool:
    """Print the summary of the loads held out, by workload; return whether all are within their limits."""
    kept = [row for row in rows if row.case.held_out]
    within = True
    for workload in dict.fromkeys(row.case.workload for row in kept):
        for one in summaries(row for row in kept if row.case.workload == workload):
            limit = LIMITS.get(workload, {}).get(one.figure) if limited else None
            ok = limit is None or one.mean_error_ratio <= limit
            within &= ok
            say(
                part="held out",
                model=model,
                workload=workload,
                figure=one.figure,
                loads=one.loads,
                mean_error_ratio=round(one.mean_error_ratio, 4),
                largest_error_ratio=round(one.largest_error_ratio, 4),
                bias_ratio=round(one.bias_ratio, 4),
                **({} if limit is None else {"limit": limit, "ok": ok}),
            )
    return within


def fitted(cases: tuple[Case, ...], prior: EngineProfile, reuse: str, settings: tuple[str, ...]) -> Calibration:
    """Fit and say what was fitted to what."""
    began_s = time.perf_counter()
    found = calibrated(cases, prior, settings=settings, reuse=reuse, make_fleet=FastFleet)
    train = [case for case in cases if not case.held_out]
    say(
        part="fitted",
        model=reuse,
        loads=[case.name for case in train],
        requests=requests(train),
        found=found_lines(found),
        prior=prior.name,
        seconds=round(time.perf_counter() - began_s, 1),
    )
    return found


def main() -> int:
    """Fit, replay, print; return 1 when a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, default=LOG)
    parser.add_argument("--prior", default="a100-llama8b-tp1")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--train", nargs="+", default=None, metavar="LOAD")
    parser.add_argument("--fit", default=",".join(FITTED))
    args = parser.parse_args()
    train = args.train or (TRAIN if args.log == LOG else ())
    prior = load_profile(args.prior)
    host_row(prior)
    cases = cases_of(read_log(args.log, replicas=args.replicas), train=train)
    settings = tuple(args.fit.split(","))
    share = fitted(cases, prior, "share", settings)
    summary_rows("share", share.rows, limited=False)
    turns = fitted(cases, prior, "turns", settings)
    for row in turns.rows:
        load_row("turns", row)
    return 0 if summary_rows("turns", turns.rows, limited=True) else 1


if __name__ == "__main__":
    sys.exit(main())
