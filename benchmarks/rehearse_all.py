"""Every policy at matched attainment on one load: what each costs, and how long the comparison takes.

By default a shipped three-hour trace times five. The full size is a 24 h trace times twenty, which must take at most
15 minutes on two cores when the oracle's schedule is kept from a run before:
    python benchmarks/rehearse_all.py --trace DAY.csv.gz --scale 20 --limit-s 900
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path

from tidegate.app.config import load_policies
from tidegate.app.rehearse.compare import CompareOptions, compare
from tidegate.app.rehearse.loads import LoadOptions, read_loads

EXAMPLES = Path(__file__).parents[1] / "examples"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=EXAMPLES / "traces" / "hybrid_azure_conv_3h.csv.gz")
    parser.add_argument("--policy", type=Path, default=EXAMPLES / "policies" / "rehearse.yaml")
    parser.add_argument("--against", default="all")
    parser.add_argument("--scale", type=float, default=5.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-oracles", action="store_true")
    parser.add_argument("--limit-s", type=float, help="exit 1 when the comparison takes longer")
    args = parser.parse_args()
    loads = read_loads(LoadOptions(traces=(args.trace,), scale=args.scale, block_tokens=512))
    options = CompareOptions(
        policy=load_policies([args.policy])[0],
        against=tuple(args.against.split(",")),
        jobs=args.jobs,
        capacity_check=False,
        oracles=not args.no_oracles,
    )
    began_s = time.perf_counter()
    done_at_s: dict[str, float] = {}

    def told(done: int, total: int, what: str) -> None:
        done_at_s[what] = time.perf_counter() - began_s
        sys.stderr.write(f"{done_at_s[what]:6.0f} s  {done}/{total}  {what}\n")

    document = compare(loads, options, told=told)
    took_s = time.perf_counter() - began_s
    for policy in document.policies:
        print(
            json.dumps(
                {
                    "policy": policy.name,
                    "attainment_ratio": round(policy.attainment_ratio, 5),
                    "gpu_hours": round(policy.gpu_hours, 2),
                    "matched_gpu_hours": None
                    if policy.matched_gpu_hours is None
                    else round(policy.matched_gpu_hours, 2),
                    "reason": policy.matched_gpu_hours_reason,
                    "setting": None if policy.matched is None else policy.matched.setting,
                    "gap_closed_ratio": None if policy.gap_closed_ratio is None else round(policy.gap_closed_ratio, 3),
                    "plays": len(policy.frontier),
                    "done_at_s": round(done_at_s.get(policy.name, took_s), 1),
                }
            )
        )
    plays = sum(len(policy.frontier) for policy in document.policies)
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        json.dumps(
            {
                "case": "whole",
                "trace": document.trace.name,
                "scale": args.scale,
                "requests": document.trace.requests,
                "plays": plays,
                "seconds": round(took_s, 1),
                "requests_per_s": round(plays * document.trace.requests / took_s),
                "worker_peak_rss_mib": round(workers.ru_maxrss / 1024.0),
                "limit_s": args.limit_s,
            }
        )
    )
    return 1 if args.limit_s is not None and took_s > args.limit_s else 0


if __name__ == "__main__":
    sys.exit(main())
