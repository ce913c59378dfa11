"""`tidegate gateway`: render, check and inspect the Envoy gateway."""

import argparse
from pathlib import Path

from tidegate.app.cli.main import EXIT_DONE
from tidegate.app.cli.parsers import add_action

EXAMPLE = "tidegate gateway render -f policy.yaml --endpoints chat/main=127.0.0.1:8000 --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    render = add_action(actions, "render", "show what Envoy would be given for a policy", example=EXAMPLE)
    _add_policy(render)
    render.add_argument("--json", action="store_true", help="print every resource as proto3 JSON")

    validate = add_action(
        actions,
        "validate",
        "let a real Envoy check that configuration",
        example="tidegate gateway validate -f policy.yaml",
    )
    _add_policy(validate)
    validate.add_argument("--json", action="store_true", help="answer in JSON")

    boot = add_action(
        actions,
        "bootstrap",
        "print the bootstrap an Envoy must be started with (JSON)",
        example="tidegate gateway bootstrap -f policy.yaml --ads 127.0.0.1:8781 > envoy.json",
    )
    boot.add_argument(
        "-f", "--policy", nargs="+", type=Path, default=[], metavar="FILE",
        help="policies whose latency thresholds become histogram bounds",
    )  # fmt: skip
    boot.add_argument(
        "--ads", default="127.0.0.1:8781", metavar="HOST:PORT", help="the controller's xDS (default: %(default)s)"
    )
    boot.add_argument(
        "--admin-port",
        type=int,
        default=9901,
        metavar="PORT",
        help="Envoy's admin page, on loopback (default: %(default)s)",
    )
    boot.add_argument(
        "--node-id", default="gateway-0", metavar="NAME", help="unique name of this Envoy (default: %(default)s)"
    )
    boot.add_argument("--json", action="store_true", help="print JSON, which is also the default")

    status = add_action(
        actions,
        "status",
        "ask a running controller what each gateway has and has refused",
        example="tidegate gateway status --url http://127.0.0.1:8780",
    )
    status.add_argument(
        "--url", default="http://127.0.0.1:8780", metavar="URL", help="the controller's API (default: %(default)s)"
    )
    status.add_argument("--json", action="store_true", help="print the API's answer")

    descriptors = add_action(
        actions,
        "descriptors",
        "write Envoy's message descriptors to a file, so that a controller image needs no Envoy",
        example="tidegate gateway descriptors --out envoy.binpb",
    )
    descriptors.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="to be named in TIDEGATE_ENVOY_DESCRIPTORS"
    )

    add_action(actions, "serve", "serve a policy without a controller (not built yet)")


def _add_policy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--policy", nargs="+", type=Path, required=True, metavar="FILE", help="service policies")
    parser.add_argument(
        "--endpoints", action="append", default=[], metavar="POOL=HOST:PORT,…",
        help="ready replicas of a pool, e.g. chat/main=127.0.0.1:8000; repeat it",
    )  # fmt: skip
    parser.add_argument(
        "--listen", default="127.0.0.1:8080", metavar="HOST:PORT", help="where Envoy listens (default: %(default)s)"
    )
    parser.add_argument(
        "--access-log", default="/dev/stdout", metavar="PATH", help="Envoy's access log (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Carry out the action and return 0."""
    from tidegate.app.cli import gateway_actions as actions  # noqa: PLC0415  (pydantic and protobuf are slow to import)

    chosen = {
        "render": actions.render,
        "validate": actions.validate,
        "bootstrap": actions.bootstrap,
        "status": actions.status,
        "descriptors": actions.descriptors,
        "serve": actions.serve,
    }
    chosen[args.action](args)
    return EXIT_DONE
