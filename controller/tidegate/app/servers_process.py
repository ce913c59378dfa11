"""A child process that cannot outlive us, and its readiness.

Each child asks the kernel to be killed when its parent dies (see `servers_exec`), so not even SIGKILL of the parent
leaves an orphan. The kernel ties that to the parent THREAD that started the child, not to the process (prctl(2)); hence
starting is allowed from the main thread only, which lives as long as the process. Waiting for readiness may happen in
any thread: `server = start_envoy(…, wait=False)`, then `await asyncio.to_thread(server.wait_ready)`.

Children get a session of their own: Ctrl-C reaches only us, and we stop them in order.
"""

import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tidegate.app import servers_exec
from tidegate.app.servers_ports import LOOPBACK, require_free
from tidegate.terms.errors import ServerUnreachableError

# Prometheus with an empty store and Envoy are ready in 0.2 s on two cores; thirty seconds is a machine in trouble.
_READY_TIMEOUT_S = 30.0
_POLL_S = 0.05
_PROBE_TIMEOUT_S = 2.0
_LOG_TAIL_LINES = 15


class ServerStartError(ServerUnreachableError):
    """A server ended, or did not become ready in time; the text carries the end of its log."""


class Server:
    """A running child process; leaving its `with` block stops it."""

    def __init__(
        self, process: subprocess.Popen[bytes], *, name: str, ports: tuple[int, ...], log_path: Path, ready_path: str
    ) -> None:
        self._process = process
        self._ready_path = ready_path
        self.name = name
        self.pid = process.pid
        self.ports = ports
        self.log_path = log_path

    @property
    def port(self) -> int:
        """The port it answers HTTP on."""
        return self.ports[0]

    @property
    def url(self) -> str:
        """The root of its HTTP interface, without a slash at the end."""
        return f"http://{LOOPBACK}:{self.port}"

    def alive(self) -> bool:
        """Return whether the process still runs; reaps it when it does not."""
        return self._process.poll() is None

    def log_tail(self, lines: int = _LOG_TAIL_LINES) -> str:
        """Return the last lines it wrote, indented by two spaces."""
        text = self.log_path.read_text(encoding="utf-8", errors="replace")
        return "\n".join(f"  {line}" for line in text.splitlines()[-lines:])

    def wait_ready(self, timeout_s: float = _READY_TIMEOUT_S) -> None:
        """Return once it answers its readiness path with 200; else stop it.

        Raises:
            ServerStartError: It ended, or did not answer in time.
        """
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            if not self.alive():
                status = self._process.returncode
                msg = f"{self.name} ended with status {status} before it was ready; its log ends:\n{self.log_tail()}"
                raise ServerStartError(msg)
            if self._answers():
                return
            time.sleep(_POLL_S)
        self.stop()
        msg = f"{self.name} on port {self.port} was not ready after {timeout_s:g} s; its log ends:\n{self.log_tail()}"
        raise ServerStartError(msg)

    def stop(self, timeout_s: float = 5.0) -> int:
        """Ask it to end, kill it if it has not after `timeout_s`, and reap it.

        Returns:
            Its exit status; negative is the signal that ended it. Stopping twice is harmless.
        """
        if self.alive():
            self._process.terminate()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
        return self._process.wait()

    def kill(self) -> None:
        """End it at once, as a crash would, and reap it."""
        self._process.kill()
        self._process.wait()

    def send(self, signum: signal.Signals) -> None:
        """Send it a signal, such as SIGSTOP to make it hang or SIGHUP to make it read its files again."""
        self._process.send_signal(signum)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=_PROBE_TIMEOUT_S)
        try:
            connection.request("GET", self._ready_path)
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def launch(
    argv: Sequence[str | Path],
    *,
    name: str,
    ports: tuple[int, ...],
    log_path: Path,
    ready_path: str,
    env: Mapping[str, str] | None = None,
) -> Server:
    """Start a program that dies with us; it is not waited for.

    Args:
        argv: The program (a path) and its arguments.
        name: How errors call it.
        ports: Where it will listen on loopback, the HTTP one first; each must be free.
        log_path: Gets its standard output and error, appended.
        ready_path: Answers 200 once it is ready.
        env: Its whole environment; ours when None.

    Raises:
        PortInUseError: One of the ports is taken.
        RuntimeError: Called outside the main thread (see the module's text).
    """
    if threading.current_thread() is not threading.main_thread():
        msg = f"{name} must be started from the main thread: it is killed when the thread that started it ends"
        raise RuntimeError(msg)
    for port in ports:
        require_free(port, needed_by=name)
    log_path.parent.mkdir(parents=True, exist_ok=True)
    wrapper = [sys.executable, "-I", "-S", servers_exec.__file__, str(os.getpid())]
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            [*wrapper, *map(str, argv)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=None if env is None else dict(env),
        )
    return Server(process, name=name, ports=ports, log_path=log_path, ready_path=ready_path)
