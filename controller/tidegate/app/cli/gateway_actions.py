"""What the actions of `tidegate gateway` do."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import requests

from tidegate.app import config
from tidegate.app.cli.flags import MAX_PORT, host_port
from tidegate.app.config_problem import did_you_mean
from tidegate.app.servers import find_binary
from tidegate.gateway import bootstrap as boot
from tidegate.gateway.content import CLUSTER, ENDPOINTS
from tidegate.gateway.envoy import ListenerSettings
from tidegate.gateway.snapshot import Snapshot, build
from tidegate.terms.errors import BadInputError, NotBuiltYetError, RefusedError, ServerUnreachableError
from tidegate.terms.fleet import Membership, PoolKey, Replica, ReplicaState
from tidegate.terms.policy import ServicePolicy

_VALIDATE_TIMEOUT_S = 60.0
_API_TIMEOUT_S = 5.0


def render(args: argparse.Namespace) -> None:
    """Print the snapshot of a policy: a summary, or every resource as JSON."""
    snapshot = _snapshot(args)
    if args.json:
        _print_json({"version": snapshot.version, "resources": snapshot.resources})
        return
    print(f"snapshot {snapshot.version}")
    for policy in config.load_policies(args.policy):
        print(f"  model {policy.model}")
        for pool in policy.pools:
            hosts = _hosts(snapshot, pool.key)
            print(f"    cluster {pool.key}: {', '.join(hosts) if hosts else 'no endpoint: answers 503'}")
    print("  any other model: 404; no model: 400; GET /v1/models: answered by Envoy")


def validate(args: argparse.Namespace) -> None:
    """Let Envoy itself check the snapshot, with endpoints and routes in one static file.

    Raises:
        MissingServerError: There is no Envoy.
        RefusedError: Envoy refuses the configuration; the text is Envoy's.
    """
    binary = find_binary("envoy")
    policies = config.load_policies(args.policy)
    snapshot = _snapshot(args)
    body = boot.static_bootstrap(
        snapshot, admin_port=9901, node_id="validate", thresholds_s=boot.thresholds_s(policies)
    )
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        path = Path(folder) / "envoy.json"
        path.write_text(json.dumps(body), encoding="utf-8")
        command: list[str | Path] = [binary, "--mode", "validate", "-c", path, "-l", "error"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_VALIDATE_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as exc:
            msg = f"{binary}: could not check the configuration: {exc}"
            raise ServerUnreachableError(msg) from exc
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        msg = f"Envoy refuses the configuration of {', '.join(map(str, args.policy))}: {lines[-1]}"
        raise RefusedError(msg)
    if args.json:
        _print_json({"valid": True, "version": snapshot.version, "envoy": str(binary)})
    else:
        print(f"valid: snapshot {snapshot.version}, {len(snapshot.resources[CLUSTER])} clusters")


def bootstrap(args: argparse.Namespace) -> None:
    """Print the bootstrap of one gateway.

    Raises:
        BadInputError: An address or port that cannot be used.
    """
    host, port = host_port("--ads", args.ads)
    if not 1 <= args.admin_port <= MAX_PORT:
        msg = f"--admin-port: must be 1 to {MAX_PORT}, got {args.admin_port}"
        raise BadInputError(msg)
    policies = config.load_policies(args.policy) if args.policy else ()
    _print_json(
        boot.bootstrap(
            ads_host=host,
            ads_port=port,
            admin_port=args.admin_port,
            node_id=args.node_id,
            thresholds_s=boot.thresholds_s(policies),
        )
    )


def status(args: argparse.Namespace) -> None:
    """Print what a running controller knows of its gateways.

    Raises:
        ServerUnreachableError: It does not answer.
        RefusedError: What answers is not a Tidegate controller.
    """
    url = f"{args.url.rstrip('/')}/v1/gateway"
    try:
        answer = requests.get(url, timeout=_API_TIMEOUT_S)
    except requests.RequestException as exc:
        msg = f"{url}: no controller answers ({type(exc).__name__}); give its address with --url"
        raise ServerUnreachableError(msg) from exc
    try:
        answer.raise_for_status()
        found = answer.json()
        lines = _status_lines(found)
    except (requests.RequestException, ValueError, KeyError, TypeError) as exc:
        msg = f"{url}: answered {answer.status_code}, but not with the state of gateways; is it a Tidegate controller?"
        raise RefusedError(msg) from exc
    if args.json:
        _print_json(found)
    else:
        print("\n".join(lines))


def _status_lines(found: dict[str, Any]) -> list[str]:
    count = len(found["gateways"])
    lines = [f"snapshot {found['version'] or 'none yet'}, {count} {'gateway' if count == 1 else 'gateways'}"]
    for gateway in found["gateways"]:
        state = "connected" if gateway["connected"] else f"gone for {gateway['seen_ago_s']:.0f} s"
        # What a gateway that is gone has now, nobody knows.
        verb = "has" if gateway["connected"] else "had"
        current = found["version"] is not None and gateway["has_version"] == found["version"]
        has = f"{verb} it" if current else f"{verb} {gateway['has_version'] or 'nothing'}"
        waiting = f", waiting for {', '.join(gateway['waiting_for'])}" if gateway["waiting_for"] else ""
        lines.append(f"  {gateway['node_id']}: {state}, {has}{waiting}")
        lines += [
            f"    refused {r['type_url'].rpartition('.')[2]} {r['name']}: {r['reason']}"
            f" ({'keeps the version before' if r['kept_version'] else 'has none'})"
            for r in gateway["refused"]
        ]
    return lines


def descriptors(args: argparse.Namespace) -> None:
    """Write the descriptors of the Envoy found to a file."""
    from tidegate.actuate.envoy_proto import write_descriptors  # noqa: PLC0415  (protobuf: this action only)

    binary = find_binary("envoy")
    count = write_descriptors(binary, args.out)
    print(f"{args.out}: {count} proto files of {binary}")


def serve(args: argparse.Namespace) -> None:
    """Refuse: serving a policy without a controller is not built yet."""
    msg = f"tidegate gateway {args.action}: not built yet; `tidegate run` serves xDS to Envoy"
    raise NotBuiltYetError(msg)


def _snapshot(args: argparse.Namespace) -> Snapshot:
    host, port = host_port("--listen", args.listen)
    policies = config.load_policies(args.policy)
    listening = ListenerSettings(host=host, port=port, access_log_path=args.access_log)
    return build(policies, _membership(args.endpoints, policies), listening=listening)


def _membership(given: Sequence[str], policies: Sequence[ServicePolicy]) -> Membership:
    keys = {str(pool.key): pool.key for policy in policies for pool in policy.pools}
    replicas: list[Replica] = []
    for text in given:
        pool, equals, addresses = text.partition("=")
        if not equals or not addresses:
            msg = f"--endpoints: must be POOL=HOST:PORT,…, got {text!r}"
            raise BadInputError(msg)
        if pool not in keys:
            msg = f"--endpoints: no policy has the pool {pool!r}{did_you_mean(pool, keys)}; have {', '.join(keys)}"
            raise BadInputError(msg)
        for address in addresses.split(","):
            host_port(f"--endpoints {pool}", address)
            name = f"{keys[pool].service}-{keys[pool].pool}-{len(replicas)}"
            ready = ReplicaState.READY
            replicas.append(Replica(name=name, pool=keys[pool], state=ready, address=address, ordered_at_s=0.0))
    return Membership(taken_at_s=0.0, replicas=tuple(replicas))


def _hosts(snapshot: Snapshot, key: PoolKey) -> list[str]:
    groups = snapshot.resources[ENDPOINTS][str(key)]["endpoints"]
    sockets = [h["endpoint"]["address"]["socket_address"] for group in groups for h in group["lb_endpoints"]]
    return [f"{s['address']}:{s['port_value']}" for s in sockets]


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2, sort_keys=True) + "\n")
