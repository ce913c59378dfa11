"""The flags that `rehearse` and `backtest` share: what is compared, how strictly, and where the result goes."""

import argparse
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.terms.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.app.rehearse.compare import CompareOptions
    from tidegate.terms.policy import ServicePolicy

# As `sim.setup.Routing`, but for the one that needs a length per pool and the one that needs weights.
ROUTINGS = ("least_request", "round_robin", "random", "prefix_hash", "kv_aware")
_MOST_SEEDS = 1000
_MOST_JOBS = 1024
_MOST_SCALE = 100_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where the result goes."""

    json: bool
    html: Path | None


def add_comparison_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what both verbs take."""
    parser.add_argument(
        "--policy", "-f", type=Path, required=True, metavar="FILE", help="what is promised and allowed: one service"
    )
    parser.add_argument(
        "--against",
        default="",
        metavar="NAME,…",
        help="rival policies to compare with, or all (default: none but the oracles)",
    )
    parser.add_argument(
        "--oracles",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="find the best static size and the fair oracle, which the gap closed is measured by (default: on)",
    )
    parser.add_argument(
        "--seeds", default="1", metavar="N", help="play this often, each under another seed (default: %(default)s)"
    )
    parser.add_argument(
        "--faults", default="", metavar="NAME,…", help="play again with each of these faults, or all of them"
    )
    parser.add_argument(
        "--scale", default="1", metavar="X", help="multiply the load: copies of requests, moved (default: %(default)s)"
    )
    parser.add_argument(
        "--target",
        default="0.99",
        metavar="RATIO",
        help="attainment at which all are compared by GPU hours (default: %(default)s)",
    )
    parser.add_argument(
        "--match",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="search each policy's main setting for the target; without it policies are played as set (default: on)",
    )
    parser.add_argument(
        "--capacity-check",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compare again with engines 10 per cent slower and faster than believed (default: on)",
    )
    parser.add_argument(
        "--routing",
        choices=ROUTINGS,
        default="least_request",
        help="how a request finds its replica (default: %(default)s)",
    )
    parser.add_argument("--jobs", default="", metavar="N", help="processes (default: one a core)")
    parser.add_argument("--json", action="store_true", help="print the whole result as one JSON document")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report that needs nothing but a browser")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def comparison(args: argparse.Namespace) -> "tuple[CompareOptions, Output]":
    """Return what the flags ask for.

    Raises:
        BadInputError: A flag's value cannot be used, or the policy file.
    """
    from tidegate.app.rehearse.compare import CompareOptions  # noqa: PLC0415  (a second of imports)
    from tidegate.sim.setup import Routing  # noqa: PLC0415

    options = CompareOptions(
        policy=_only(args.policy),
        against=tuple(listed(args.against)),
        seeds=tuple(range(_whole("--seeds", args.seeds, most=_MOST_SEEDS))),
        faults=tuple(listed(args.faults)),
        target_ratio=_target(args.target),
        jobs=_whole("--jobs", args.jobs, most=_MOST_JOBS) if args.jobs else len(os.sched_getaffinity(0)),
        capacity_check=args.capacity_check,
        oracles=args.oracles,
        match=args.match,
        routing=Routing(args.routing),
    )
    if args.html is not None and not args.html.parent.is_dir():
        msg = f"--html: {args.html}: its folder must exist, {args.html.parent} does not"
        raise BadInputError(msg)
    if args.html is not None and args.html.is_dir():
        msg = f"--html: {args.html}: must be a file, is a folder"
        raise BadInputError(msg)
    return options, Output(json=args.json, html=args.html)


def scale_of(args: argparse.Namespace) -> float:
    """Return `--scale`.

    Raises:
        BadInputError: It is no number above 0.
    """
    return _number("--scale", args.scale, 0.0, _MOST_SCALE, f"a number above 0, at most {_MOST_SCALE:g}")


def listed(text: str) -> "Iterable[str]":
    """Return the names in a comma-separated flag, each once."""
    return dict.fromkeys(name.strip() for name in text.split(",") if name.strip())


def _only(path: Path) -> "ServicePolicy":
    from tidegate.app.config import load_policies  # noqa: PLC0415  (pydantic is slow to import)

    policies = load_policies([path])
    if len(policies) != 1:
        names = ", ".join(p.name for p in policies)
        msg = f"--policy: {path}: must hold one service, holds {len(policies)} ({names})"
        raise BadInputError(msg)
    return policies[0]


def _target(text: str) -> float:
    ratio = _number("--target", text, 0.0, 1.0, "a share above 0 and below 1, such as 0.99")
    if ratio >= 1.0:
        msg = f"--target: must be a share above 0 and below 1, such as 0.99, got {text!r}"
        raise BadInputError(msg)
    return ratio


def _number(flag: str, text: str, above: float, most: float, must: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not above < number <= most:  # NaN fails too
        msg = f"{flag}: must be {must}, got {text!r}"
        raise BadInputError(msg)
    return number


def _whole(flag: str, text: str, *, most: int) -> int:
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:9]) <= most:
        msg = f"{flag}: must be a whole number from 1 to {most}, got {text!r}"
        raise BadInputError(msg)
    return int(text)
