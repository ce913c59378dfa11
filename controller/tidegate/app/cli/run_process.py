"""The process around `tidegate run`: signals, logs and the live table."""

import asyncio
import contextlib
import logging
import signal
import sys
from pathlib import Path

from rich.console import Console
from rich.live import Live

from tidegate.app.controller import ControllerOptions, control
from tidegate.app.live import LiveTable

_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def serve(options: ControllerOptions, *, live: bool) -> None:
    """Run the controller until SIGINT or SIGTERM; the state folder must be there."""
    # A dry run may be made beside a controller, whose log is not its own.
    name = "controller.dry-run.log" if options.dry_run else "controller.log"
    _log_to(options.state_dir / name if live else None)
    asyncio.run(_serve(options, live=live))


def _log_to(path: Path | None) -> None:
    handler = logging.StreamHandler(sys.stderr) if path is None else logging.FileHandler(path)
    logging.basicConfig(level=logging.INFO, format=_FORMAT, handlers=[handler])
    # It warns of each stream that ends with the server; that a gateway has gone is told by us.
    logging.getLogger("grpc._cython.cygrpc").setLevel(logging.ERROR)


async def _serve(options: ControllerOptions, *, live: bool) -> None:
    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: hurry.set() if stop.is_set() else stop.set())
    with contextlib.ExitStack() as undo:
        show = None
        if live:
            screen = undo.enter_context(Live(console=Console(), auto_refresh=False, transient=False))
            show = LiveTable(screen).show
        await control(options, stop, hurry=hurry, show=show)
