"""Starts real servers (Prometheus, Alertmanager, Envoy) on loopback, as children that cannot outlive us.

See `servers_process` for how; start them from the main thread.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tidegate.app.servers_config import ScrapeJob, alertmanager_config, prometheus_config
from tidegate.app.servers_find import BinaryName, MissingServerError, cache_dir, find_binary
from tidegate.app.servers_ports import LOOPBACK, PortInUseError, free_port, require_free
from tidegate.app.servers_process import Server, ServerStartError, launch

__all__ = [
    "BinaryName",
    "MissingServerError",
    "PortInUseError",
    "ScrapeJob",
    "Server",
    "ServerStartError",
    "cache_dir",
    "find_binary",
    "free_port",
    "launch",
    "require_free",
    "start_alertmanager",
    "start_envoy",
    "start_prometheus",
]


def start_prometheus(
    workdir: Path,
    *,
    port: int,
    scrape_interval_s: float,
    jobs: Sequence[ScrapeJob],
    rule_files: Sequence[Path] = (),
    alertmanager: str | None = None,
    wait: bool = True,
) -> Server:
    """Return a Prometheus on loopback; its data in `workdir` survives a restart.

    Args:
        workdir: Made if missing; holds `prometheus.yml`, `data/` and `prometheus.log`.
        port: Of its HTTP interface.
        scrape_interval_s: Between scrapes and between rule evaluations.
        jobs: What it scrapes.
        rule_files: Absolute paths of rule files.
        alertmanager: host:port that gets the alerts, or None.
        wait: False returns at once; call `wait_ready` then.

    Raises:
        MissingServerError: Prometheus is not installed.
        PortInUseError: The port is taken.
        ServerStartError: It ended, or was not ready within 30 s.
    """
    binary = find_binary("prometheus")
    config = prometheus_config(
        jobs, scrape_interval_s=scrape_interval_s, rule_files=rule_files, alertmanager=alertmanager
    )
    config_path = _write(workdir / "prometheus.yml", yaml.safe_dump(config, sort_keys=False))
    argv: list[str | Path] = [
        binary,
        f"--config.file={config_path}",
        f"--storage.tsdb.path={config_path.parent / 'data'}",
        f"--web.listen-address={LOOPBACK}:{port}",
        "--web.enable-lifecycle",
    ]
    return _ready(
        launch(
            argv,
            name="prometheus",
            ports=(port,),
            log_path=config_path.with_name("prometheus.log"),
            ready_path="/-/ready",
        ),
        wait=wait,
    )


def start_alertmanager(
    workdir: Path, *, port: int, webhook_url: str, bearer_token_file: Path, wait: bool = True
) -> Server:
    """Return an Alertmanager on loopback that sends every alert to one webhook with a bearer token.

    Args:
        workdir: Made if missing; holds `alertmanager.yml`, `data/` and `alertmanager.log`.
        port: Of its HTTP interface; it opens no cluster port.
        webhook_url: Where alerts are posted.
        bearer_token_file: Holds the token it sends.
        wait: False returns at once; call `wait_ready` then.

    Raises:
        MissingServerError: Alertmanager is not installed.
        PortInUseError: The port is taken.
        ServerStartError: It ended, or was not ready within 30 s.
    """
    binary = find_binary("alertmanager")
    config = alertmanager_config(webhook_url=webhook_url, bearer_token_file=bearer_token_file)
    config_path = _write(workdir / "alertmanager.yml", yaml.safe_dump(config, sort_keys=False))
    argv: list[str | Path] = [
        binary,
        f"--config.file={config_path}",
        f"--storage.path={config_path.parent / 'data'}",
        f"--web.listen-address={LOOPBACK}:{port}",
        "--cluster.listen-address=",
    ]
    return _ready(
        launch(
            argv,
            name="alertmanager",
            ports=(port,),
            log_path=config_path.with_name("alertmanager.log"),
            ready_path="/-/ready",
        ),
        wait=wait,
    )


def start_envoy(
    workdir: Path,
    *,
    bootstrap: Mapping[str, Any],
    concurrency: int = 1,
    extra_args: Sequence[str] = (),
    wait: bool = True,
) -> Server:
    """Return an Envoy whose admin interface answers; listeners that come by xDS may still be on their way.

    Args:
        workdir: Made if missing; holds `envoy.json` and `envoy.log`.
        bootstrap: Envoy's bootstrap as proto3 JSON; its admin address must be on loopback.
        concurrency: Worker threads.
        extra_args: Further command line options.
        wait: False returns at once; call `wait_ready` then.

    Raises:
        MissingServerError: Envoy is not installed.
        PortInUseError: The admin port or the port of a static listener is taken.
        ServerStartError: It ended, or its admin interface did not answer within 30 s.
    """
    binary = find_binary("envoy")
    config_path = _write(workdir / "envoy.json", json.dumps(bootstrap, indent=1))
    # Hot restart needs a shared memory name per Envoy on the machine; nothing here uses it.
    argv: list[str | Path] = [
        binary,
        "-c",
        config_path,
        "--concurrency",
        str(concurrency),
        "--disable-hot-restart",
        *extra_args,
    ]
    server = launch(
        argv,
        name="envoy",
        ports=_envoy_ports(bootstrap),
        log_path=config_path.with_name("envoy.log"),
        ready_path="/server_info",
    )
    return _ready(server, wait=wait)


def _envoy_ports(bootstrap: Mapping[str, Any]) -> tuple[int, ...]:
    listeners = bootstrap.get("static_resources", {}).get("listeners", [])
    owners = [bootstrap["admin"], *listeners]
    return tuple(int(owner["address"]["socket_address"]["port_value"]) for owner in owners)


def _write(path: Path, text: str) -> Path:
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _ready(server: Server, *, wait: bool) -> Server:
    if wait:
        # Ctrl-C while it starts must not leave it behind in a process that goes on.
        with contextlib.ExitStack() as undo:
            undo.callback(server.stop)
            server.wait_ready()
            undo.pop_all()
    return server
