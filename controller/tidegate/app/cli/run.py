"""`tidegate run`: the controller."""

import argparse
import os
from pathlib import Path

from tidegate.app.cli.flags import duration_s, host_port, writable_folder
from tidegate.app.cli.main import EXIT_DONE
from tidegate.app.cli.prometheus_flags import SCRAPES_PER_WINDOW, add_prometheus_arguments, prometheus_config
from tidegate.app.twin.owner import start_ticks
from tidegate.terms.errors import BadInputError

EXAMPLE = "tidegate run -f policy.yaml --prometheus http://127.0.0.1:9090 --state-dir ./state --live"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("-f", "--policy", nargs="+", type=Path, required=True, metavar="FILE", help="service policies")
    add_prometheus_arguments(parser, required=True)
    parser.add_argument("--rate-window", metavar="DURATION", help="window of rates (default: 6 scrape intervals)")
    parser.add_argument("--decide-every", default="15s", metavar="DURATION", help="between decisions (default: 15s)")
    parser.add_argument(
        "--state-dir", type=Path, default=Path("tidegate-state"), metavar="DIR",
        help="journal and local fleet; survives restarts (default: ./tidegate-state)",
    )  # fmt: skip
    parser.add_argument(
        "--listen", default="127.0.0.1:8780", metavar="HOST:PORT", help="status page and API (default: %(default)s)"
    )
    parser.add_argument(
        "--ads-listen", default="127.0.0.1:8781", metavar="HOST:PORT", help="xDS for Envoy (default: %(default)s)"
    )
    parser.add_argument(
        "--gateway-listen",
        default="127.0.0.1:8080",
        metavar="HOST:PORT",
        help="where Envoy listens (default: %(default)s)",
    )
    parser.add_argument(
        "--access-log", default="/dev/stdout", metavar="PATH", help="Envoy's access log (default: %(default)s)"
    )
    parser.add_argument("--nodes", type=Path, metavar="FILE", help="inventory of nodes for placement")
    parser.add_argument("--alert-token-file", type=Path, metavar="FILE", help="bearer token of POST /v1/alerts")
    parser.add_argument(
        "--owner-pid", type=int, metavar="PID",
        help="replicas end with this process (default: with the controller); lets the controller restart under load",
    )  # fmt: skip
    parser.add_argument(
        "--stop-grace", default="30s", metavar="DURATION",
        help="on a signal, how long running answers may go on before replicas end; a second signal ends them at once; "
        "not with --owner-pid (default: 30s)",
    )  # fmt: skip
    parser.add_argument(
        "--end-unnamed", action="store_true",
        help="drain and end replicas whose pool no policy names; without it a controller refuses to start beside them",
    )  # fmt: skip
    parser.add_argument(
        "--dry-run", action="store_true",
        help="advise and log the steps, carry none out, serve no gateway; its journal is "
        "STATE_DIR/journal.dry-run.jsonl; may run beside a controller, on another --listen",
    )  # fmt: skip
    parser.add_argument("--live", action="store_true", help="draw a table here; logs go to STATE_DIR/controller.log")


def run(args: argparse.Namespace) -> int:
    """Run the controller until SIGINT or SIGTERM and return 0."""
    # gRPC writes lines of its own to stderr, e.g. about a port in use; what it cannot do reaches us as an error too.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from tidegate.app.cli.run_process import serve  # noqa: PLC0415  (a second of imports; `--help` must not pay it)
    from tidegate.app.controller import Address, ControllerOptions  # noqa: PLC0415

    prometheus = prometheus_config(args)
    assert prometheus is not None  # noqa: S101  (the flag is required; for the type checker)
    if args.owner_pid is not None and (args.owner_pid < 1 or start_ticks(args.owner_pid) is None):
        msg = f"--owner-pid: must be the pid of a running process, got {args.owner_pid}"
        raise BadInputError(msg)
    interval_s = duration_s("--scrape-interval", args.scrape_interval)
    window_s = SCRAPES_PER_WINDOW * interval_s
    if args.rate_window is not None:
        window_s = duration_s("--rate-window", args.rate_window)
    options = ControllerOptions(
        policies=tuple(args.policy),
        prometheus=prometheus,
        scrape_interval_s=interval_s,
        rate_window_s=window_s,
        decide_every_s=duration_s("--decide-every", args.decide_every, least_s=1.0),
        state_dir=args.state_dir,
        listen=Address(*host_port("--listen", args.listen)),
        ads_listen=Address(*host_port("--ads-listen", args.ads_listen)),
        gateway_listen=Address(*host_port("--gateway-listen", args.gateway_listen)),
        access_log=args.access_log,
        nodes=args.nodes,
        alert_token_file=args.alert_token_file,
        owner_pid=args.owner_pid,
        stop_grace_s=duration_s("--stop-grace", args.stop_grace),
        end_unnamed=args.end_unnamed,
        dry_run=args.dry_run,
    )
    writable_folder("--state-dir", args.state_dir)
    serve(options, live=args.live)
    return EXIT_DONE
