"""The delta ADS server: gives every connected gateway the newest snapshot and knows what each of them has."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from tidegate.actuate.envoy_proto import EnvoyMessages, find_messages
from tidegate.actuate.xds_session import Push, Refusal, Request, Session, plain_reason
from tidegate.gateway.content import Body
from tidegate.gateway.snapshot import Snapshot
from tidegate.terms.errors import BadInputError

_log = logging.getLogger(__name__)

_SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
_DISCOVERY = "envoy.service.discovery.v3.Delta"
_MAX_MESSAGE_BYTES = 64 << 20  # 50,000 endpoints are about 4 MB
_MAX_GATEWAYS = 256
# A gateway that lost its stream still serves what it last had; it counts until it has been away this long.
_FORGET_AFTER_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayStatus:
    """One gateway as the server sees it."""

    node_id: str
    connected: bool
    seen_ago_s: float
    has_version: str | None  # newest snapshot it acknowledged whole
    resources: Mapping[str, int]  # acknowledged resources by short type name
    waiting_for: tuple[str, ...]  # short type names sent and not yet answered
    refused: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdsStatus:
    """All gateways and the snapshot they should have."""

    version: str | None
    gateways: tuple[GatewayStatus, ...]


@dataclass(slots=True, eq=False)
class _Stream:
    session: Session
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    connected: bool = True
    seen_at_s: float = 0.0  # monotonic
    has_version: str | None = None


class AdsServer:
    """Serves delta ADS. All methods belong to the event loop that started it."""

    def __init__(self, host: str, port: int, *, messages: EnvoyMessages | None = None) -> None:
        """Prepare a server for `host:port`; `messages` defaults to those of the Envoy found."""
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._messages = messages or find_messages()
        self._request = self._messages.of(_DISCOVERY + "DiscoveryRequest")
        self._response = self._messages.of(_DISCOVERY + "DiscoveryResponse")
        self._snapshot: Snapshot | None = None
        self._encoded: dict[tuple[str, str, str], bytes] = {}
        self._streams: dict[str, _Stream] = {}  # newest stream of each node
        self._changed = asyncio.Event()
        self._server: Any = None

    async def start(self) -> None:
        """Listen.

        Raises:
            BadInputError: The port is in use or not ours to listen on.
        """
        options = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES)]
        server = grpc.aio.server(options=options)
        handler = grpc.stream_stream_rpc_method_handler(
            self._serve,
            request_deserializer=self._request.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_SERVICE, {"DeltaAggregatedResources": handler}),)
        )
        try:
            bound = server.add_insecure_port(self._address)
        except RuntimeError:
            bound = 0
        if not bound:
            msg = f"gateway ADS address {self._address}: cannot listen there; must be a free address of this machine"
            raise BadInputError(msg)
        await server.start()
        self._server = server

    async def stop(self, grace_s: float = 0.2) -> None:
        """Close every stream; gateways go on with what they have."""
        if self._server is not None:
            await self._server.stop(grace_s)
            self._server = None

    def publish(self, snapshot: Snapshot) -> None:
        """Make this the snapshot every gateway should have. A version that is current already changes nothing.

        Raises:
            EncodingError: A resource does not fit Envoy's messages; the snapshot before it stays.
        """
        if self._snapshot is not None and self._snapshot.version == snapshot.version:
            return
        encoded = {
            (kind, name, snapshot.versions[kind][name]): self._encode(kind, name, snapshot.versions[kind][name], body)
            for kind, named in snapshot.resources.items()
            for name, body in named.items()
        }
        self._encoded, self._snapshot = encoded, snapshot
        for stream in self._streams.values():
            stream.wake.set()
        self._note_change()

    def _encode(self, kind: str, name: str, version: str, body: Body) -> bytes:
        return self._encoded.get((kind, name, version)) or self._messages.encode(kind, body)

    def acked(self, version: str | None = None) -> bool:
        """Whether there is a gateway, and every gateway has exactly the snapshot `version` (None: the newest)."""
        snapshot = self._snapshot
        if snapshot is None or version not in {None, snapshot.version}:
            return False
        self._forget()
        streams = self._streams.values()
        return bool(streams) and all(s.connected and s.session.settled(snapshot) for s in streams)

    async def wait_acked(self, version: str, timeout_s: float) -> bool:
        """Wait until every gateway has `version`; False after `timeout_s`, or when another version took its place."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self.acked(version):
                    changed = self._changed
                    await changed.wait()
                return True
        return False

    def status(self) -> AdsStatus:
        """Return what each gateway has, is being sent and has refused."""
        self._forget()
        now_s = time.monotonic()
        return AdsStatus(
            version=self._snapshot.version if self._snapshot else None,
            gateways=tuple(_status(s, now_s) for _, s in sorted(self._streams.items())),
        )

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _forget(self) -> None:
        old_s = time.monotonic() - _FORGET_AFTER_S
        for node_id in [n for n, s in self._streams.items() if not s.connected and s.seen_at_s < old_s]:
            del self._streams[node_id]

    async def _serve(self, requests: AsyncIterator[Any], context: Any) -> None:  # noqa: ANN401 - grpc publishes no types
        first = await anext(requests, None)
        if first is None:
            return
        node_id = str(first.node.id)
        self._forget()
        if len(self._streams) >= _MAX_GATEWAYS and node_id not in self._streams:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {_MAX_GATEWAYS} gateways")
        before = self._streams.get(node_id)
        stream = _Stream(session=Session(node_id), has_version=before.has_version if before else None)
        self._streams[node_id] = stream
        _log.info("gateway connected node=%s", node_id)
        writer = asyncio.create_task(self._write(stream, context))
        try:
            self._handle(stream, first)
            async for request in requests:
                self._handle(stream, request)
        finally:
            stream.connected = False
            stream.seen_at_s = time.monotonic()
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writer
            _log.info("gateway gone node=%s", node_id)
            self._note_change()

    def _handle(self, stream: _Stream, request: Any) -> None:  # noqa: ANN401 - a message class made at run time
        stream.seen_at_s = time.monotonic()
        error = request.error_detail.message or "no reason given" if request.HasField("error_detail") else None
        if error is not None:
            _log.warning(
                "gateway refused configuration node=%s type=%s reason=%s",
                stream.session.node_id,
                _short(request.type_url),
                plain_reason(error),
            )
        stream.session.handle(
            Request(
                type_url=request.type_url,
                nonce=request.response_nonce,
                error=error,
                subscribe=tuple(request.resource_names_subscribe),
                unsubscribe=tuple(request.resource_names_unsubscribe),
                initial_versions=dict(request.initial_resource_versions),
            )
        )
        self._note_progress(stream)
        stream.wake.set()

    def _note_progress(self, stream: _Stream) -> None:
        if self._snapshot is not None and stream.session.settled(self._snapshot):
            stream.has_version = self._snapshot.version
        self._note_change()

    async def _write(self, stream: _Stream, context: Any) -> None:  # noqa: ANN401 - grpc publishes no types
        while True:
            await stream.wake.wait()
            stream.wake.clear()
            snapshot = self._snapshot
            if snapshot is None:
                continue
            # All made before the first is sent: a snapshot published meanwhile drops the bodies of this one.
            for message in [self._message(push, snapshot) for push in stream.session.advance(snapshot)]:
                await context.write(message)
            self._note_progress(stream)

    def _message(self, push: Push, snapshot: Snapshot) -> Any:  # noqa: ANN401 - a message class made at run time
        response: Any = self._response()
        response.type_url = push.type_url
        response.nonce = push.nonce
        response.system_version_info = snapshot.version
        response.removed_resources.extend(push.removed)
        for name, version in sorted(push.versions.items()):
            resource = response.resources.add()
            resource.name = name
            resource.version = version
            resource.resource.type_url = push.type_url
            resource.resource.value = self._encoded[push.type_url, name, version]
        return response


def _status(stream: _Stream, now_s: float) -> GatewayStatus:
    session = stream.session
    kinds = session.types()
    return GatewayStatus(
        node_id=session.node_id,
        connected=stream.connected,
        seen_ago_s=max(0.0, now_s - stream.seen_at_s),
        has_version=stream.has_version,
        resources={_short(kind): len(session.has_versions(kind)) for kind in kinds},
        waiting_for=tuple(_short(kind) for kind in session.waiting_for()),
        refused=session.refusals(),
    )


def _short(type_url: str) -> str:
    return type_url.rpartition(".")[2]
