"""`tidegate export`: serve device or engine metrics for Prometheus to scrape."""

import argparse
import signal
import socket
import sys
import threading
from collections.abc import Callable

from tidegate.app.cli.main import EXIT_DONE
from tidegate.app.cli.parsers import add_action
from tidegate.terms.errors import BadInputError, ServerUnreachableError

_LONGEST_TIMEOUT_S = 60.0  # Prometheus' longest usual scrape
EXAMPLE = "tidegate export gpu --listen 127.0.0.1:9400"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    gpu = add_action(kinds, "gpu", "GPUs and NVLink of this machine, by NVML, under DCGM's names", example=EXAMPLE)
    _add_common(gpu, default_port=9400)
    gpu.add_argument("--hostname", help="value of the Hostname label (default: this machine's name)")

    engine = add_action(
        kinds,
        "engine",
        "engines' metrics under one schema, tidegate_engine_*",
        example="tidegate export engine --target http://127.0.0.1:8000 --once",
    )
    _add_common(engine, default_port=9401)
    engine.add_argument(
        "--target", action="append", default=[], metavar="URL", help="an engine, e.g. http://127.0.0.1:8000; repeat it"
    )
    engine.add_argument("--engine", default="vllm", help="kind of all targets (default: %(default)s)")
    engine.add_argument("--timeout", type=float, default=5.0, metavar="S", help="per target (default: %(default)s s)")


def _add_common(parser: argparse.ArgumentParser, *, default_port: int) -> None:
    parser.add_argument(
        "--listen", default=f"127.0.0.1:{default_port}", metavar="HOST:PORT", help="default: %(default)s"
    )
    parser.add_argument("--once", action="store_true", help="print the metrics and end")


def run(args: argparse.Namespace) -> int:
    """Print once, or serve until SIGTERM or Ctrl-C; return 0, or 3 for `--once` when no target can be read."""
    return _run_gpu(args) if args.kind == "gpu" else _run_engine(args)


def _run_gpu(args: argparse.Namespace) -> int:
    import pynvml  # noqa: PLC0415  (only this kind needs it)

    from tidegate.exporters.exposition import render  # noqa: PLC0415  (keeps `--help` fast)
    from tidegate.exporters.gpu import GpuExporter  # noqa: PLC0415

    exporter = GpuExporter(pynvml, hostname=args.hostname or socket.gethostname())
    try:
        return _deliver(args, lambda: render(exporter.collect()))
    finally:
        exporter.close()


def _run_engine(args: argparse.Namespace) -> int:
    from tidegate.app.clock import now_s  # noqa: PLC0415  (keeps `--help` fast)
    from tidegate.exporters.engine import EngineExporter  # noqa: PLC0415
    from tidegate.exporters.engine_fetch import Failed  # noqa: PLC0415
    from tidegate.exporters.exposition import render  # noqa: PLC0415

    if not 0 < args.timeout <= _LONGEST_TIMEOUT_S:
        msg = f"--timeout: must be above 0 and at most {_LONGEST_TIMEOUT_S:g} s, got {args.timeout:g}"
        raise BadInputError(msg)
    exporter = EngineExporter(args.target, engine=args.engine, timeout_s=args.timeout, clock=now_s)
    if not args.once:
        return _deliver(args, lambda: render(exporter.collect()))
    scrapes = exporter.scrape()
    sys.stdout.write(render(exporter.families(scrapes)))
    failed = [(s.target, s.result) for s in scrapes if isinstance(s.result, Failed)]
    if len(failed) == len(scrapes):
        target, why = failed[0]
        msg = f"{target}: {why.reason}: {why.detail}"
        raise ServerUnreachableError(msg)
    return EXIT_DONE


def _deliver(args: argparse.Namespace, page: Callable[[], str]) -> int:
    from tidegate.exporters.serve import MetricsServer  # noqa: PLC0415  (keeps `--help` fast)

    if args.once:
        sys.stdout.write(page())
        return EXIT_DONE
    server = MetricsServer(args.listen, page)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server.start()
    sys.stderr.write(f"tidegate: serving /metrics on port {server.port}\n")
    stop.wait()
    server.stop()
    return EXIT_DONE
