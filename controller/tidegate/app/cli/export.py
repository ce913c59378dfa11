"""`tidegate export`: serve device or engine metrics for Prometheus to scrape."""

import argparse
import signal
import socket
import sys
import threading
from collections.abc import Callable

from tidegate.app.cli.main import EXIT_DONE

EXAMPLE = "tidegate export gpu --listen 127.0.0.1:9400"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    gpu = kinds.add_parser("gpu", help="GPUs and NVLink of this machine, by NVML, under DCGM's names")
    _add_common(gpu, default_port=9400)
    gpu.add_argument(
        "--hostname", default=socket.gethostname(), help="value of the Hostname label (default: %(default)s)"
    )


def _add_common(parser: argparse.ArgumentParser, *, default_port: int) -> None:
    parser.add_argument(
        "--listen", default=f"127.0.0.1:{default_port}", metavar="HOST:PORT", help="default: %(default)s"
    )
    parser.add_argument("--once", action="store_true", help="print the metrics and end")


def run(args: argparse.Namespace) -> int:
    """Print once, or serve until SIGTERM or Ctrl-C; return 0."""
    import pynvml  # noqa: PLC0415  (only this kind needs it)

    from tidegate.exporters.exposition import render  # noqa: PLC0415  (keeps `--help` fast)
    from tidegate.exporters.gpu import GpuExporter  # noqa: PLC0415

    exporter = GpuExporter(pynvml, hostname=args.hostname)
    try:
        return _deliver(args, lambda: render(exporter.collect()))
    finally:
        exporter.close()


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
