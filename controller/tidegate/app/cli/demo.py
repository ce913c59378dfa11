"""`tidegate demo`: the whole loop on this machine."""

import argparse
import os
from pathlib import Path

from tidegate.app.cli.flags import duration_s
from tidegate.app.demo.options import LEAST_SECONDS, NODES, POLICY, SECONDS, TRACE, DemoOptions

EXAMPLE = "tidegate demo --seconds 120s --out demo-out"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    default = os.environ.get("DEMO_SECONDS", f"{SECONDS:.0f}")
    parser.add_argument(
        "--seconds",
        default=f"{default}s" if default.replace(".", "", 1).isdecimal() else default,
        metavar="DURATION",
        help="length of the replay (default: 240s, or DEMO_SECONDS)",
    )
    parser.add_argument(
        "--policy",
        type=Path,
        default=POLICY,
        metavar="FILE",
        help="what is promised and allowed (default: %(default)s)",
    )
    parser.add_argument(
        "--nodes",
        type=Path,
        default=NODES,
        metavar="FILE",
        help="the inventory replicas are placed on (default: %(default)s)",
    )
    parser.add_argument(
        "--trace", type=Path, default=TRACE, metavar="FILE", help="arrivals to replay (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("demo-out"), metavar="DIR", help="folder for the report (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the final table as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the demo; 0 only if no request failed and every decision has a reason."""
    from tidegate.app.demo.run import demo  # noqa: PLC0415  (a second of imports; `--help` must not pay it)

    return demo(
        DemoOptions(
            seconds=duration_s("--seconds", args.seconds, least_s=LEAST_SECONDS),
            policy=args.policy,
            nodes=args.nodes,
            trace=args.trace,
            out=args.out,
            json=args.json,
        )
    )
