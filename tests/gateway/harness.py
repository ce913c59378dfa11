"""What the gateway tests share: policies, upstreams, a small HTTP client, and a gateway with its ADS server."""

import asyncio
import contextlib
import json
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.policies import MODEL, service_policy

from tidegate.actuate.xds import AdsServer
from tidegate.app.servers import Server, free_port, launch
from tidegate.gateway.bootstrap import bootstrap
from tidegate.gateway.envoy import ListenerSettings
from tidegate.gateway.snapshot import Snapshot, build
from tidegate.terms.fleet import Membership, PoolKey, Replica, ReplicaState
from tidegate.terms.policy import GatewayPolicy, ServicePolicy

CHAT = PoolKey(service="chat", pool="main")
_DEADLINE_S = 20.0


def service(
    name: str = "chat",
    model: str = MODEL,
    pools: Iterable[str] = ("main",),
    *,
    max_body_bytes: int = 8 << 20,
    retries: int = 3,
    idle_timeout_s: float = 300.0,
) -> ServicePolicy:
    gateway = GatewayPolicy(retries=retries, idle_timeout_s=idle_timeout_s, max_body_bytes=max_body_bytes)
    return service_policy(name, tuple(pools), model=model, gateway=gateway)


def replica(name: str, address: str, key: PoolKey = CHAT, state: ReplicaState = ReplicaState.READY) -> Replica:
    return Replica(name=name, pool=key, state=state, address=address, ordered_at_s=0.0)


def fleet(*replicas: Replica) -> Membership:
    return Membership(taken_at_s=0.0, replicas=tuple(sorted(replicas, key=lambda r: r.name)))


def start_upstream(name: str, workdir: Path) -> Server:
    """Start one upstream process of `upstream_server.py`; it listens when this returns."""
    port = free_port()
    script = Path(__file__).with_name("upstream_server.py")
    server = launch(
        [sys.executable, str(script), name, str(port)],
        name=name,
        ports=(port,),
        log_path=workdir / f"{name}.log",
        ready_path="/v1/models",
    )
    server.wait_ready()
    return server


def address_of(server: Server) -> str:
    return f"127.0.0.1:{server.ports[0]}"


@dataclass(slots=True)
class Answer:
    """One HTTP answer; `whole` is False when it broke off."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool

    def json(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """The JSON events of a stream."""
        lines = [line[6:] for line in self.body.split(b"\n") if line.startswith(b"data: ") and line != b"data: [DONE]"]
        return [json.loads(line) for line in lines]

    def error(self) -> dict[str, Any]:
        found = self.json()["error"]
        assert isinstance(found, dict)
        return found


async def ask(
    port: int,
    body: object = None,
    *,
    path: str = "/v1/chat/completions",
    method: str = "POST",
    headers: Iterable[str] = (),
    raw_chunks: Iterable[bytes] | None = None,
) -> Answer:
    """Send one request on a connection of its own and read the answer to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        payload = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        framing = "transfer-encoding: chunked" if raw_chunks is not None else f"content-length: {len(payload)}"
        head = [f"{method} {path} HTTP/1.1", "host: gateway", framing, "content-type: application/json", *headers]
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + payload)
        for part in raw_chunks or ():
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
        if raw_chunks is not None:
            writer.write(b"0\r\n\r\n")
        async with asyncio.timeout(_DEADLINE_S):
            return await _read_answer(reader)
    finally:
        writer.close()


async def _read_answer(reader: asyncio.StreamReader) -> Answer:
    status = int((await reader.readline()).split()[1])
    headers: dict[str, str] = {}
    while line := (await reader.readline()).decode().strip():
        key, _, value = line.partition(":")
        headers[key.lower()] = value.strip()
    body = b""
    try:
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await reader.readuntil(b"\r\n"), 16):
                body += await reader.readexactly(size)
                await reader.readexactly(2)
        else:
            body = await reader.readexactly(int(headers.get("content-length", "0")))
    except (asyncio.IncompleteReadError, ConnectionError):
        return Answer(status, headers, body, whole=False)
    return Answer(status, headers, body, whole=True)


@dataclass(slots=True)
class Gateway:
    """A real Envoy fed by a real ADS server."""

    ads: AdsServer
    envoy: Server
    port: int
    admin_port: int
    ads_port: int
    access_log: Path
    policies: tuple[ServicePolicy, ...] = field(default_factory=lambda: (service(),))

    def snapshot(self, *replicas: Replica) -> Snapshot:
        listening = ListenerSettings(port=self.port, access_log_path=str(self.access_log))
        return build(self.policies, fleet(*replicas), listening=listening)

    async def publish(self, *replicas: Replica) -> str:
        """Publish these replicas and wait until Envoy has them."""
        snapshot = self.snapshot(*replicas)
        self.ads.publish(snapshot)
        assert await self.ads.wait_acked(snapshot.version, _DEADLINE_S), self.ads.status()
        return snapshot.version

    async def ask(self, body: object = None, **settings: Any) -> Answer:  # noqa: ANN401 - as `ask`
        return await ask(self.port, body, **settings)

    async def stat(self, name: str, **labels: str) -> float:
        """Return the sum of Envoy's counters `name` with these labels."""
        text = await asyncio.to_thread(self._scrape)
        total = 0.0
        for line in text.splitlines():
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name and all(f'{k}="{v}"' in series for k, v in labels.items()):
                total += float(value)
        return total

    def _scrape(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/stats/prometheus", timeout=5.0) as answer:
            return str(answer.read(), "utf-8")

    async def logged(self, count: int) -> list[dict[str, Any]]:
        """Return the access log once it has `count` lines; Envoy writes it every few seconds."""
        await asyncio.to_thread(self._flush_logs)
        async with asyncio.timeout(_DEADLINE_S):
            while True:
                text = self.access_log.read_text() if self.access_log.exists() else ""
                lines = [json.loads(line) for line in text.splitlines()]
                if len(lines) >= count:
                    return lines
                await asyncio.sleep(0.1)

    def _flush_logs(self) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin_port}/reopen_logs", method="POST")
        urllib.request.urlopen(request, timeout=5.0).close()


@contextlib.asynccontextmanager
async def running_gateway(
    envoy_factory: Callable[..., Server], workdir: Path, *policies: ServicePolicy, node_id: str = "gateway-0"
) -> AsyncIterator[Gateway]:
    """Start an ADS server and one Envoy; nothing is published yet."""
    ads_port, admin_port, port = free_port(), free_port(), free_port()
    ads = AdsServer("127.0.0.1", ads_port)
    await ads.start()
    try:
        boot = bootstrap(ads_host="127.0.0.1", ads_port=ads_port, admin_port=admin_port, node_id=node_id)
        envoy = envoy_factory(bootstrap=boot, wait=False)  # children are started by the main thread only
        await asyncio.to_thread(envoy.wait_ready)
        yield Gateway(
            ads=ads,
            envoy=envoy,
            port=port,
            admin_port=admin_port,
            ads_port=ads_port,
            access_log=workdir / "access.jsonl",
            policies=policies or (service(),),
        )
    finally:
        await ads.stop()


@contextlib.contextmanager
def running_upstreams(workdir: Path, *names: str) -> Iterator[list[Server]]:
    """Start upstream processes and stop them after the block."""
    with contextlib.ExitStack() as running:
        yield [running.enter_context(start_upstream(name, workdir)) for name in names]
