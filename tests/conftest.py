"""Real servers for the tests, and proof at the end that none of them is left."""

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import pytest

from tidegate.app import servers
from tidegate.app.servers import Server

# Every process a test starts inherits this variable, and keeps it when its parent dies: so orphans are found too.
_MARK = "TIDEGATE_TEST_SESSION"
# A process that was told to stop may need a moment; one that is there after this was forgotten.
_GRACE_S = 3.0


class Leftover(NamedTuple):
    """A process that outlived the tests."""

    pid: int
    command: str
    test: str


# A busy machine makes an example slow, not wrong: no test here is a stopwatch.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

_LEFTOVERS = pytest.StashKey[list[Leftover]]()


_TOKEN = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Mark what this run starts; the process that only hands out tests stays unmarked, so that its workers are too."""
    worker: dict[str, str] | None = getattr(config, "workerinput", None)
    token = worker["mark"] if worker else secrets.token_hex(8)
    config.stash[_TOKEN] = token
    if worker or not getattr(config.option, "numprocesses", None):
        os.environ[_MARK] = token


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:  # noqa: ANN401  (xdist publishes no types)
    """Hand the mark to a worker."""
    node.workerinput["mark"] = node.config.stash[_TOKEN]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that watch a clock for minutes in one worker, one after another; the others share the rest."""
    for item in items:
        if item.get_closest_marker("e2e"):
            item.add_marker(pytest.mark.xdist_group("e2e"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        return  # the process that started the workers looks for what they all left
    mark = session.config.stash[_TOKEN]
    left = leftovers(mark)
    deadline_s = time.monotonic() + _GRACE_S
    while left and time.monotonic() < deadline_s:
        time.sleep(0.1)
        left = leftovers(mark)
    session.config.stash[_LEFTOVERS] = left
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    if left and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for process in config.stash.get(_LEFTOVERS, []):
        terminalreporter.write_line(
            f"ERROR left running by {process.test}: pid {process.pid}: {process.command}", red=True, bold=True
        )


def leftovers(mark: str) -> list[Leftover]:
    """Return the living processes, ours excepted, whose environment carries this session's mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environ = (entry / "environ").read_bytes()  # empty for a zombie
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue  # ended while we looked, or another user's
        variables = dict(pair.split("=", 1) for pair in environ.decode(errors="replace").split("\0") if "=" in pair)
        if variables.get(_MARK) == mark:
            test = variables.get("PYTEST_CURRENT_TEST", "code outside a test")
            found.append(Leftover(int(entry.name), command.replace(b"\0", b" ").decode(errors="replace").strip(), test))
    return found


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """An empty folder for the files of one test's servers."""
    return tmp_path


@pytest.fixture
def free_port() -> Callable[[], int]:
    """A function that returns another free loopback port at each call."""
    return servers.free_port


@pytest.fixture
def prometheus_factory(workdir: Path) -> Iterator[Callable[..., Server]]:
    """Starts real Prometheus servers and stops them after the test.

    Takes what `start_prometheus` takes, by keyword; folder, port and an interval of 0.5 s are chosen unless given.
    """
    with contextlib.ExitStack() as running:

        def start(*, workdir: Path | None = None, port: int | None = None, **settings: Any) -> Server:  # noqa: ANN401
            port = port or servers.free_port()
            settings = {"jobs": (), "scrape_interval_s": 0.5, **settings}
            started = servers.start_prometheus(workdir or base / f"prometheus-{port}", port=port, **settings)
            return running.enter_context(started)

        base = workdir
        yield start


@pytest.fixture
def alertmanager_factory(workdir: Path) -> Iterator[Callable[..., Server]]:
    """Starts real Alertmanagers and stops them after the test; takes what `start_alertmanager` takes, by keyword."""
    with contextlib.ExitStack() as running:

        def start(*, workdir: Path | None = None, port: int | None = None, **settings: Any) -> Server:  # noqa: ANN401
            port = port or servers.free_port()
            started = servers.start_alertmanager(workdir or base / f"alertmanager-{port}", port=port, **settings)
            return running.enter_context(started)

        base = workdir
        yield start


@pytest.fixture
def envoy_factory(workdir: Path) -> Iterator[Callable[..., Server]]:
    """Starts real Envoys and stops them after the test; takes what `start_envoy` takes, by keyword."""
    with contextlib.ExitStack() as running:

        def start(*, bootstrap: dict[str, Any], workdir: Path | None = None, **settings: Any) -> Server:  # noqa: ANN401
            port = bootstrap["admin"]["address"]["socket_address"]["port_value"]
            started = servers.start_envoy(workdir or base / f"envoy-{port}", bootstrap=bootstrap, **settings)
            return running.enter_context(started)

        base = workdir
        yield start
