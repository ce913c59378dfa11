"""`tidegate rehearse`: a real load played against this policy and its rivals, before anything is switched on."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.app.cli.flags import duration_s
from tidegate.app.cli.main import EXIT_DONE
from tidegate.app.cli.rehearse_flags import add_comparison_arguments, comparison, scale_of
from tidegate.terms.errors import BadInputError

if TYPE_CHECKING:
    from tidegate.app.rehearse.loads import LoadOptions
    from tidegate.app.traces.series import SeriesUnit

EXAMPLE = "tidegate rehearse --trace examples/traces/azure2023_conv.csv.gz --policy examples/policies/chat.yaml"
_UNITS = ("requests", "requests/min", "requests/s", "tokens", "tokens/min", "tokens/s")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    load = parser.add_argument_group("load")
    load.add_argument(
        "--trace",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="our CSV, Azure's CSV or Mooncake's JSON lines, plain or gzip; several are laid on top of each other",
    )
    load.add_argument("--series", default="", metavar="FILE:COLUMN", help="a load by time, in place of --trace")
    load.add_argument(
        "--series-unit", choices=_UNITS, help="what the column counts; left out: as its name says, else requests a step"
    )
    load.add_argument("--lengths-from", type=Path, metavar="TRACE", help="whose request lengths a --series gets")
    load.add_argument(
        "--spread", metavar="DURATION", help="spread each arrival over this long after it, for traces made of ticks"
    )
    load.add_argument(
        "--hash-block-tokens",
        type=int,
        default=512,
        metavar="N",
        help="prompt tokens that one prefix hash stands for (default: %(default)s)",
    )
    add_comparison_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Play the load, print or write the result, and return 0.

    Raises:
        BadInputError: A file or flag cannot be used.
    """
    from tidegate.app.cli.rehearse_output import deliver  # noqa: PLC0415  (with the rest: a second of imports)
    from tidegate.app.rehearse.compare import check, compare  # noqa: PLC0415
    from tidegate.app.rehearse.loads import read_loads  # noqa: PLC0415
    from tidegate.app.rehearse.progress import progress  # noqa: PLC0415

    options, output = comparison(args)
    check(options)
    load = _load(args)
    with progress(quiet=args.quiet) as told:
        loads = read_loads(load, told=lambda path, rows: told(rows, 0, f"reading {path.name}"))
        document = compare(loads, options, told=told)
    deliver(document, output, title=f"Rehearsal of {loads.name} under {options.policy.name}")
    return EXIT_DONE


def _load(args: argparse.Namespace) -> "LoadOptions":
    from tidegate.app.rehearse.loads import LoadOptions  # noqa: PLC0415

    if bool(args.trace) == bool(args.series):
        msg = "rehearse: must be given a load: either --trace FILE or --series FILE:COLUMN with --lengths-from TRACE"
        raise BadInputError(msg)
    for flag, given in (("--lengths-from", args.lengths_from), ("--series-unit", args.series_unit)):
        if given is not None and not args.series:
            msg = f"{flag}: only goes with --series"
            raise BadInputError(msg)
    if args.spread is not None and args.series:
        msg = "--spread: only goes with --trace; arrivals of a --series are spread inside its steps already"
        raise BadInputError(msg)
    if not 1 <= args.hash_block_tokens <= 1 << 20:
        msg = f"--hash-block-tokens: must be from 1 to {1 << 20}, got {args.hash_block_tokens}"
        raise BadInputError(msg)
    return LoadOptions(
        traces=tuple(args.trace),
        series=args.series,
        series_unit=_unit(args.series_unit),
        lengths_from=args.lengths_from,
        scale=scale_of(args),
        spread_s=None if args.spread is None else duration_s("--spread", args.spread, least_s=0.001),
        block_tokens=args.hash_block_tokens,
    )


def _unit(text: str | None) -> "SeriesUnit | None":
    from tidegate.app.traces.series import SeriesUnit  # noqa: PLC0415

    return None if text is None else SeriesUnit(text)
