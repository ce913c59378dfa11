"""`tidegate dashboards`: Grafana boards and Prometheus rules as files."""

import argparse
import sys
from pathlib import Path

from tidegate.app.cli.main import EXIT_DONE
from tidegate.app.cli.parsers import add_action
from tidegate.terms.errors import BadInputError, RefusedError

EXAMPLE = "tidegate dashboards render --out grafana/ -f policy.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    render = add_action(actions, "render", "write them into a folder", example=EXAMPLE)
    render.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder to write into")
    render.add_argument(
        "-f",
        "--policy",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="take the objectives of these policies (default: of every service, as in docs/policy.md)",
    )
    render.add_argument("--check", action="store_true", help="write nothing; fail when a file is missing or differs")


def run(args: argparse.Namespace) -> int:
    """Write or compare the files; return 0."""
    from tidegate.dashboards.render import differing, rendered, write  # noqa: PLC0415  (keeps `--help` fast)
    from tidegate.dashboards.slo_rules import DEFAULT_OBJECTIVES, objectives  # noqa: PLC0415

    watched = DEFAULT_OBJECTIVES
    if args.policy:
        from tidegate.app.config import load_policies  # noqa: PLC0415  (only with -f)

        watched = objectives(load_policies(args.policy))
    files = rendered(watched)
    if args.check:
        wrong = differing(args.out, files)
        if wrong:
            again = f"tidegate dashboards render --out {args.out}"
            msg = f"{args.out}: missing or different: {', '.join(wrong)}; run `{again}`"
            raise RefusedError(msg)
        return EXIT_DONE
    try:
        write(args.out, files)
    except OSError as exc:
        msg = f"--out {args.out}: {exc.strerror or exc}"
        raise BadInputError(msg) from exc
    for name in sorted(files):
        sys.stdout.write(f"{args.out / name}\n")
    return EXIT_DONE
