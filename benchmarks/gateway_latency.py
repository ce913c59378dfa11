"""What Envoy with the whole chain adds to a direct call of the same upstream, as ratios within one interleaved run.

`python benchmarks/gateway_latency.py [--rounds 7] [--requests 400]` prints one JSON row per way and shape, then rows of
ratios: against no Envoy at all, and against one that only proxies. The upstream answers at once, so the ratio is the
worst there can be: against an engine that takes hundreds of milliseconds what counts is the added time. Rounds of all
ways alternate, and each figure is the median over the rounds, because a shared machine drifts.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import uvloop

from tidegate.actuate.xds import AdsServer
from tidegate.app.config import load_policies
from tidegate.app.servers import free_port, launch, start_envoy
from tidegate.gateway.bootstrap import bootstrap
from tidegate.gateway.content import Body, typed
from tidegate.gateway.envoy import ListenerSettings
from tidegate.gateway.snapshot import build
from tidegate.terms.fleet import Membership, Replica, ReplicaState

POLICY = Path(__file__).parents[1] / "examples" / "policies" / "chat.yaml"
STREAM_TOKENS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of load."""

    name: str
    body_bytes: int
    connections: int
    stream: bool = False
    share: float = 1.0  # of the requests asked for


SHAPES = (
    Shape(name="json 1 KiB, 1 connection", body_bytes=1 << 10, connections=1),
    Shape(name="json 1 KiB, 8 connections", body_bytes=1 << 10, connections=8, share=2.0),
    Shape(name="json 32 KiB, 1 connection", body_bytes=32 << 10, connections=1),
    Shape(
        name=f"stream of {STREAM_TOKENS} tokens, 8 connections",
        body_bytes=1 << 10,
        connections=8,
        stream=True,
        share=0.5,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to the upstream: where to ask, and the Envoy on it (0: none)."""

    port: int
    pid: int


class Upstream(asyncio.Protocol):
    """Answers every request at once, with a small JSON body or a stream of chunks."""

    def __init__(self) -> None:
        self.data = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.data += data
        while b"\r\n\r\n" in self.data:
            head, _, rest = self.data.partition(b"\r\n\r\n")
            _, found, length = head.lower().partition(b"content-length:")
            size = int(length.split(b"\r\n")[0]) if found else 0
            if len(rest) < size:
                return
            body, self.data = rest[:size], rest[size:]
            if b'"stream": true' in body:
                self.transport.write(STREAM_HEAD)
                for _ in range(STREAM_TOKENS):
                    self.transport.write(STREAM_CHUNK)
                self.transport.write(STREAM_END)
            else:
                self.transport.write(PLAIN)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


ANSWER = json.dumps(
    {"choices": [{"text": "x" * 200}], "usage": {"prompt_tokens": 256, "completion_tokens": 50}}
).encode()
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STREAM_CHUNK = chunk(b'data: {"choices": [{"delta": {"content": "word"}}]}\n\n')
STREAM_USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 256, "completion_tokens": %d}}\n\n' % STREAM_TOKENS
STREAM_END = chunk(STREAM_USAGE) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


async def serve_upstream(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


async def client(port: int, request: bytes, count: int) -> list[float]:
    """Return the seconds each of `count` requests took on one kept-alive connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    took = []
    for _ in range(count):
        started = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(head.decode())
        if b"chunked" in head:
            await reader.readuntil(b"\r\n0\r\n\r\n")
        else:
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        took.append(time.perf_counter() - started)
    writer.close()
    return took


def request_for(shape: Shape, model: str) -> bytes:
    """Return one request of the shape."""
    fields: dict[str, Any] = {"model": model, "stream": shape.stream, "messages": [{"role": "user", "content": ""}]}
    missing = shape.body_bytes - len(json.dumps(fields))
    fields["messages"][0]["content"] = "w" * max(0, missing)
    body = json.dumps(fields).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    return head + b"content-length: %d\r\n\r\n%s" % (len(body), body)


def plain_bootstrap(port: int, upstream_port: int) -> Body:
    """Return an Envoy that only proxies: no scan, no usage, no metrics of ours, no log."""

    def address(number: int) -> Body:
        return {"socket_address": {"address": "127.0.0.1", "port_value": number}}

    endpoint = {"lb_endpoints": [{"endpoint": {"address": address(upstream_port)}}]}
    manager = typed(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="plain",
        route_config={
            "virtual_hosts": [
                {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "up"}}]}
            ]
        },
        http_filters=[
            {
                "name": "envoy.filters.http.router",
                "typed_config": typed("envoy.extensions.filters.http.router.v3.Router"),
            }
        ],
    )
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    return {
        "admin": {"address": address(free_port())},
        "static_resources": {
            "listeners": [{"name": "plain", "address": address(port), "filter_chains": [chain]}],
            "clusters": [
                {"name": "up", "type": "STATIC", "load_assignment": {"cluster_name": "up", "endpoints": [endpoint]}}
            ],
        },
    }


async def measure(way: Way, shape: Shape, model: str, requests: int) -> dict[str, float]:
    """Return one round's figures."""
    each = max(1, round(requests * shape.share / shape.connections))
    cpu_before = cpu_s(way.pid)
    started = time.perf_counter()
    request = request_for(shape, model)
    per_client = await asyncio.gather(*(client(way.port, request, each) for _ in range(shape.connections)))
    wall_s = time.perf_counter() - started
    took = sorted(t for times in per_client for t in times)
    return {
        "p50_ms": 1e3 * took[len(took) // 2],
        "p99_ms": 1e3 * took[min(len(took) - 1, int(len(took) * 0.99))],
        "requests_per_s": len(took) / wall_s,
        "cpu_us": 1e6 * (cpu_s(way.pid) - cpu_before) / len(took),
    }


def cpu_s(pid: int) -> float:
    """Return the CPU seconds a process has used; 0 for no process."""
    if not pid:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def run(rounds: int, requests: int) -> None:
    (policy,) = load_policies([POLICY])
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        work = Path(folder)
        upstream_port, ads_port, port, plain_port = free_port(), free_port(), free_port(), free_port()
        ads = AdsServer("127.0.0.1", ads_port)
        await ads.start()
        command = [sys.executable, __file__, "--serve", str(upstream_port)]
        boot = bootstrap(ads_host="127.0.0.1", ads_port=ads_port, admin_port=free_port(), node_id="bench")
        with (
            launch(
                command, name="upstream", ports=(upstream_port,), log_path=work / "up.log", ready_path="/"
            ) as upstream,
            start_envoy(work / "gateway", bootstrap=boot, wait=False) as envoy,
            start_envoy(work / "plain", bootstrap=plain_bootstrap(plain_port, upstream_port), wait=False) as plain,
        ):
            await asyncio.to_thread(upstream.wait_ready)
            await asyncio.to_thread(envoy.wait_ready)
            await asyncio.to_thread(plain.wait_ready)
            replica = Replica(name="r", pool=policy.pools[0].key, state=ReplicaState.READY,
                              address=f"127.0.0.1:{upstream_port}", ordered_at_s=0.0)  # fmt: skip
            listening = ListenerSettings(port=port, access_log_path=str(work / "access.jsonl"))
            snapshot = build([policy], Membership(taken_at_s=0.0, replicas=(replica,)), listening=listening)
            ads.publish(snapshot)
            if not await ads.wait_acked(snapshot.version, 15.0):
                raise SystemExit(str(ads.status()))
            ways = {
                "direct": Way(port=upstream_port, pid=0),
                "plain": Way(port=plain_port, pid=plain.pid),
                "gateway": Way(port=port, pid=envoy.pid),
            }
            for shape in SHAPES:
                await compare(shape, ways, policy.model, rounds=rounds, requests=requests)
        await ads.stop()


async def compare(shape: Shape, ways: dict[str, Way], model: str, *, rounds: int, requests: int) -> None:
    """Print the medians of every way for one shape, and their ratios."""
    for way in ways.values():
        await measure(way, shape, model, max(50, requests // 4))  # warm
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for index in range(rounds):
        order = list(ways.items()) if index % 2 == 0 else list(ways.items())[::-1]
        for name, way in order:
            seen[name].append(await measure(way, shape, model, requests))
    middle = {
        name: {key: statistics.median(r[key] for r in figures) for key in figures[0]} for name, figures in seen.items()
    }
    for name, figures in middle.items():
        print_row({"shape": shape.name, "way": name, "rounds": rounds, **figures})
    for base in ("direct", "plain"):
        print_row({"shape": shape.name, "way": f"gateway against {base}", **_ratios(middle["gateway"], middle[base])})


def _ratios(gateway: dict[str, float], base: dict[str, float]) -> dict[str, float]:
    ratios = {
        "added_p50_ms": gateway["p50_ms"] - base["p50_ms"],
        "added_p99_ms": gateway["p99_ms"] - base["p99_ms"],
        "p50_ratio": gateway["p50_ms"] / base["p50_ms"],
        "throughput_ratio": gateway["requests_per_s"] / base["requests_per_s"],
    }
    if base["cpu_us"]:
        ratios["cpu_ratio"] = gateway["cpu_us"] / base["cpu_us"]
    return ratios


def print_row(row: dict[str, Any]) -> None:
    rounded = {k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}
    print(json.dumps(rounded), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=400, help="per round and way")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    uvloop.run(serve_upstream(args.serve) if args.serve else run(args.rounds, args.requests))


if __name__ == "__main__":
    main()
