"""`tidegate profile`: engine profiles that ship, and profiles fitted to your own engine."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.app.cli.parsers import add_action
from tidegate.app.cli.prometheus_flags import add_prometheus_arguments, prometheus_config
from tidegate.terms.errors import BadInputError, RefusedError

if TYPE_CHECKING:
    from tidegate.app.profiles.cases import Case
    from tidegate.perf.profile import EngineProfile

EXAMPLE = "tidegate profile fit bench.csv --prior h100-llama8b-tp1 --replicas 2 --out my-h100.yaml"
_REUSE = ("auto", "none", "share", "turns")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's actions and their arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = add_action(actions, "list", "list the profiles that ship", example="tidegate profile list")
    listed.add_argument("--json", action="store_true", help="print JSON")
    shown = add_action(
        actions, "show", "show a profile and what it can carry", example="tidegate profile show h100-llama8b-tp1"
    )
    shown.add_argument("profile", metavar="PROFILE", help="a name that ships, or a file")
    shown.add_argument("--json", action="store_true", help="print JSON")
    _add_fit(
        add_action(actions, "fit", "calibrate a profile to a benchmark log or to a running fleet", example=EXAMPLE)
    )
    tables = add_action(
        actions,
        "from-tables",
        "make profiles of aiconfigurator's tables of step times",
        example="tidegate profile from-tables engine_tables --out profiles --only 'h100-*' 'h200-*'",
    )
    tables.add_argument("folder", type=Path, metavar="FOLDER", help="holds prefill_latency_ms.csv(.gz) and the others")
    tables.add_argument("--latencies", type=Path, metavar="FILE", help="ML.ENERGY's ITL by batch size, for host costs")
    tables.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the files")
    tables.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="names to make (default: all)")
    tables.add_argument("--dated", metavar="DATE", help="ISO date the tables were taken over (default: today)")


def _add_fit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "log",
        type=Path,
        nargs="?",
        metavar="CSV",
        help="benchmark log (.csv or .csv.gz): arrival_s, input_tokens, output_tokens, ttft_s, decode_s "
        "[, workload, qps, replicas]",
    )
    parser.add_argument(
        "--prior", required=True, metavar="PROFILE", help="where to start: a name that ships, or a file"
    )
    parser.add_argument(
        "--replicas", type=int, default=1, metavar="N", help="that served the log (default: %(default)s)"
    )
    parser.add_argument(
        "--train", nargs="+", default=[], metavar="LOAD", help="loads to fit to, e.g. 'chat 1.0' (default: every other)"
    )
    parser.add_argument(
        "--fit",
        default="front-end,front-end-per-live,step-base,compute-factor",
        metavar="NAMES",
        help="numbers to calibrate (default: %(default)s; also host-fixed, host-per-sequence, kv-capacity)",
    )
    parser.add_argument(
        "--reuse", choices=_REUSE, default="auto", help="prefix reuse of the load (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="profile to write; its stem becomes the name")
    parser.add_argument("--name", metavar="NAME", help="name of the profile (default: the stem of --out)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    live = parser.add_argument_group("a running fleet, in place of CSV")
    live.add_argument("--service", metavar="NAME", help="value of the label `service` of its series")
    live.add_argument("--pool", metavar="NAME", help="value of the label `pool` (default: any)")
    live.add_argument(
        "--replica-label",
        default="replica",
        metavar="LABEL",
        help="label that tells replicas apart (default: %(default)s)",
    )
    live.add_argument("--since", default="2h", metavar="TIME", help="how far back to look (default: %(default)s)")
    live.add_argument("--window", default="10m", metavar="TIME", help="length of one load (default: %(default)s)")
    add_prometheus_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Do one action and return 0.

    Raises:
        BadInputError: A flag, a file or a profile cannot be used.
        RefusedError: A fit is too bad to be used.
        ServerUnreachableError: Prometheus did not answer.
    """
    actions = {"list": _list, "show": _show, "fit": _fit, "from-tables": _from_tables}
    return actions[args.action](args)


def _list(args: argparse.Namespace) -> int:
    from tidegate.app.config_profile import load_profile, shipped_profiles  # noqa: PLC0415  (keeps `--help` fast)
    from tidegate.app.profiles.report import aligned  # noqa: PLC0415

    profiles = [load_profile(name) for name in shipped_profiles()]
    if args.json:
        json.dump([asdict(p) for p in profiles], sys.stdout, indent=2)
        print()
        return 0
    rows = [("NAME", "MODEL", "ACCELERATOR", "TP", "ENGINE", "FIT ERROR", "DATED")]
    rows += [
        (
            p.name,
            p.model,
            p.accelerator,
            str(p.tensor_parallel),
            f"{p.engine} {p.engine_version}",
            f"{p.fit_error_ratio:.1%}" if p.fit_error_ratio else "-",
            p.dated,
        )
        for p in profiles
    ]
    print("\n".join(aligned(rows)))
    return 0


def _show(args: argparse.Namespace) -> int:
    from tidegate.app.config_profile import load_profile  # noqa: PLC0415  (keeps `--help` fast)
    from tidegate.app.profiles.show import shown_lines  # noqa: PLC0415

    profile = load_profile(args.profile)
    if args.json:
        json.dump(asdict(profile), sys.stdout, indent=2)
        print()
    else:
        print("\n".join(shown_lines(profile)))
    return 0


def _fit(args: argparse.Namespace) -> int:
    if (args.log is None) == (args.prometheus is None):
        msg = "profile fit: give either a CSV or --prometheus URL with --service NAME"
        raise BadInputError(msg)
    from tidegate.app.config_profile import load_profile  # noqa: PLC0415  (keeps `--help` fast)
    from tidegate.app.profiles.calibrate import SETTINGS  # noqa: PLC0415
    from tidegate.app.profiles.fit import Order, fit  # noqa: PLC0415
    from tidegate.app.profiles.report import document, found_lines, row_table, summary_table  # noqa: PLC0415
    from tidegate.app.profiles.write import write_profile  # noqa: PLC0415

    settings = _settings(args.fit, tuple(SETTINGS))
    if args.out is not None and not args.out.parent.is_dir():
        msg = f"--out: {args.out.parent}: must be a folder that exists"
        raise BadInputError(msg)
    prior = load_profile(args.prior)
    cases, data = _from_log(args) if args.log is not None else _from_live(args, prior)
    name = args.name or (args.out.stem if args.out is not None else f"{prior.name}-fitted")
    order = Order(cases=cases, data=data, prior=prior, settings=settings, reuse=args.reuse, name=name)
    fitted = fit(order, progress=lambda what: print(f"{what} …", file=sys.stderr))
    found = fitted.calibration
    if args.json:
        json.dump(document(found, fitted.refused), sys.stdout, indent=2)
        print()
    else:
        print("\n".join([*row_table(found.rows), "", *summary_table(found.rows), "", *found_lines(found)]))
    if fitted.refused:
        msg = f"profile refused: {'; '.join(fitted.refused)}"
        raise RefusedError(msg)
    if args.out is not None:
        write_profile(args.out, found.profile, fitted.notes)
        print(f"written: {args.out}", file=sys.stderr)
    return 0


def _settings(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    from tidegate.app.config_problem import did_you_mean  # noqa: PLC0415  (keeps `--help` fast)

    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if name not in known:
            msg = f"--fit: must be of {', '.join(known)}, got {name!r}{did_you_mean(name, known)}"
            raise BadInputError(msg)
    return names


def _from_log(args: argparse.Namespace) -> "tuple[tuple[Case, ...], str]":
    from tidegate.app.profiles.cases import cases_of  # noqa: PLC0415  (keeps `--help` fast)
    from tidegate.app.profiles.log import read_log  # noqa: PLC0415

    if args.replicas < 1:
        msg = f"--replicas: must be >= 1, got {args.replicas}"
        raise BadInputError(msg)
    loads = read_log(args.log, replicas=args.replicas)
    names = [load.name for load in loads]
    unknown = [name for name in args.train if name not in names]
    if unknown:
        msg = f"--train: there is no load {unknown[0]!r} in {args.log}; there are {', '.join(names)}"
        raise BadInputError(msg)
    return cases_of(loads, train=args.train), args.log.name


def _from_live(args: argparse.Namespace, prior: "EngineProfile") -> "tuple[tuple[Case, ...], str]":
    from tidegate.app import clock  # noqa: PLC0415  (keeps `--help` fast)
    from tidegate.app.cli.flags import duration_s  # noqa: PLC0415
    from tidegate.app.profiles.live import Source, live_cases  # noqa: PLC0415
    from tidegate.catalogue.engines import ENGINES  # noqa: PLC0415
    from tidegate.observe.matchers import any_of  # noqa: PLC0415
    from tidegate.observe.prometheus import PrometheusReader  # noqa: PLC0415

    config = prometheus_config(args)
    if config is None or not args.service:
        msg = "--service: must name the service whose series to read"
        raise BadInputError(msg)
    scrape_s = duration_s("--scrape-interval", args.scrape_interval, least_s=0.1)
    window_s = duration_s("--window", args.window, least_s=8 * scrape_s)
    since_s = duration_s("--since", args.since, least_s=2 * window_s)
    matchers = [any_of("service", [args.service])] + ([any_of("pool", [args.pool])] if args.pool else [])
    reader = PrometheusReader(config)
    try:
        source = Source(
            reader=reader,
            catalogue=ENGINES[prior.engine],
            matchers=tuple(matchers),
            replica_label=args.replica_label,
            scrape_interval_s=scrape_s,
        )
        seen = live_cases(source, now_s=clock.now_s(), since_s=since_s, window_s=window_s)
    finally:
        reader.close()
    for left_out in seen.left_out:
        print(f"left out: {left_out}", file=sys.stderr)
    return seen.cases, f"the histograms of service {args.service} over {args.since}"


def _from_tables(args: argparse.Namespace) -> int:
    from datetime import UTC, date, datetime  # noqa: PLC0415  (keeps `--help` fast)

    from tidegate.app import clock  # noqa: PLC0415
    from tidegate.app.cli.flags import writable_folder  # noqa: PLC0415
    from tidegate.app.profiles.host import read_latencies  # noqa: PLC0415
    from tidegate.app.profiles.make import make_all  # noqa: PLC0415
    from tidegate.app.profiles.tables import read_tables  # noqa: PLC0415

    dated = args.dated or datetime.fromtimestamp(clock.now_s(), tz=UTC).date().isoformat()
    try:
        date.fromisoformat(dated)
    except ValueError as exc:
        msg = f"--dated: must be an ISO date such as 2026-11-30, got {dated!r}"
        raise BadInputError(msg) from exc
    tables = read_tables(args.folder)
    latencies = read_latencies(args.latencies) if args.latencies else {}
    out = writable_folder("--out", args.out)
    for line in make_all(tables, latencies=latencies, out=out, only=args.only, dated=dated):
        print(line)
    return 0
