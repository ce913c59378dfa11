"""Runs a twin until it is told to stop: sockets, signals, cold start, drain, owner."""

import asyncio
import contextlib
import gc
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from tidegate.app.twin.owner import start_ticks
from tidegate.app.twin.server import Phase, TwinServer, TwinSettings
from tidegate.terms.errors import BadInputError

_OWNER_PERIOD_S = 1.0
_FLUSH_S = 2.0  # most time for the last bytes to leave at the end of a drain
_BACKLOG = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Where and how long."""

    host: str
    port: int
    uds: Path | None
    cold_start_s: float
    listen_early: bool  # else the port opens when warm, as vLLM's does
    drain_timeout_s: float
    owner_pid: int | None


class _Life:
    """The one task of the process: from cold start to exit code."""

    def __init__(self, settings: TwinSettings, serving: Serving) -> None:
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._serving = serving
        self._twin = TwinServer(settings, self._loop)
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._servers: list[asyncio.Server] = []
        self._owner_ticks: int | None = None

    async def live(self) -> int:
        """Return the exit code."""
        self._watch_owner(first=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._on_stop, number)
        self._loop.add_signal_handler(signal.SIGUSR1, self._twin.toggle_names)
        try:
            if self._serving.listen_early:
                await self._listen()
            self._loop.call_later(self._serving.cold_start_s, lambda: asyncio.ensure_future(self._warm()))
            code = await self._ended
            await self._close()
        finally:
            for server in self._servers:
                server.close()
            if self._serving.uds is not None and self._servers:
                self._serving.uds.unlink(missing_ok=True)
        return code

    async def _listen(self) -> None:
        serving = self._serving
        try:
            self._servers.append(
                await self._loop.create_server(
                    self._twin.connection, serving.host, serving.port, backlog=_BACKLOG, reuse_address=True
                )
            )
        except (OSError, UnicodeError) as exc:
            msg = f"--host {serving.host} --port {serving.port}: cannot listen: {exc}; choose a free port"
            raise BadInputError(msg) from exc
        if serving.uds is not None:
            _remove_stale(serving.uds)
            self._servers.append(await self._listen_uds(serving.uds))
        port = self._servers[0].sockets[0].getsockname()[1]
        self._say(
            f"engine twin of {self._settings.model} ({self._settings.profile.name}) on http://{serving.host}:{port}, "
            f"cold start {serving.cold_start_s:g} s"
        )

    async def _listen_uds(self, path: Path) -> asyncio.Server:
        try:
            return await self._loop.create_unix_server(self._twin.connection, str(path), backlog=_BACKLOG)
        except OSError as exc:
            msg = f"--uds {path}: cannot listen: {exc}"
            raise BadInputError(msg) from exc

    async def _warm(self) -> None:
        if self._twin.phase is not Phase.STARTING:
            return
        try:
            if not self._servers:
                await self._listen()
        except BadInputError as exc:
            if not self._ended.done():
                self._ended.set_exception(exc)
            return
        self._twin.phase = Phase.READY
        self._say("ready")

    def _on_stop(self, number: int) -> None:
        drain = number == signal.SIGTERM and self._twin.phase is Phase.READY and self._twin.engine.live > 0
        if not drain:
            # Interrupt, a second signal, or nothing to finish.
            cut = self._twin.engine.live
            self._finish(1 if cut else 0, f"stopped, {cut} requests cut" if cut else "stopped")
            return
        self._twin.phase = Phase.DRAINING
        self._say(f"draining, {self._twin.engine.live} requests left")
        self._twin.engine.on_idle = lambda: self._finish(0, "drained")
        self._loop.call_later(self._serving.drain_timeout_s, self._drain_over)

    def _drain_over(self) -> None:
        cut = self._twin.engine.live
        self._finish(1 if cut else 0, f"drain timeout of {self._serving.drain_timeout_s:g} s: {cut} requests cut")

    def _finish(self, code: int, text: str) -> None:
        if not self._ended.done():
            self._say(text)
            self._ended.set_result(code)

    async def _close(self) -> None:
        """Let the last bytes of finished answers leave, then close what is left."""
        for connection in tuple(self._twin.connections):
            connection.close_when_idle()
        waited_s = 0.0
        while self._twin.connections and self._twin.engine.live == 0 and waited_s < _FLUSH_S:
            await asyncio.sleep(0.01)
            waited_s += 0.01

    def _watch_owner(self, *, first: bool = False) -> None:
        pid = self._serving.owner_pid
        if pid is None:
            return
        ticks = start_ticks(pid)
        if first:
            self._owner_ticks = ticks
        if ticks is None or ticks != self._owner_ticks:
            if first:
                msg = f"--owner-pid {pid}: no such process, must be the process that starts the twin"
                raise BadInputError(msg)
            self._finish(1, f"owner process {pid} is gone")
            return
        self._loop.call_later(_OWNER_PERIOD_S, self._watch_owner)

    def _say(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _remove_stale(path: Path) -> None:
    """Remove a socket nobody listens on, left by a process that was killed; anything else is not ours to remove."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(ConnectionRefusedError):
        probe.connect(str(path))
        msg = f"--uds {path}: another server listens there, must be a free path"
        raise BadInputError(msg)
    path.unlink()


def serve(settings: TwinSettings, serving: Serving) -> int:
    """Run the twin and return its exit code: 0 stopped or drained, 1 when requests were cut or the owner is gone.

    Raises:
        BadInputError: The address cannot be listened on, or the owner is no process.
    """
    import uvloop  # noqa: PLC0415  (15 MB that only a running twin needs)

    async def main() -> int:
        life = _Life(settings, serving)
        # Nothing made so far is ever garbage: keep the collector from walking it at each pass.
        gc.collect()
        gc.freeze()
        return await life.live()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())
