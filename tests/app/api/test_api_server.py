import asyncio
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tidegate.app import api_server
from tidegate.app.api import build_app
from tidegate.app.api_server import ApiServer
from tidegate.app.self_metrics import SelfMetrics
from tidegate.app.state import LiveState
from tidegate.terms.errors import BadInputError

T0 = 1_790_000_000.0
Make = Callable[..., Any]


def _server(state: LiveState, port: int = 0, host: str = "127.0.0.1") -> ApiServer:
    metrics = SelfMetrics(state, journal_writable=lambda: True)
    return ApiServer(build_app(state, clock=lambda: T0, metrics=metrics), host=host, port=port)


async def test_server_answers_on_loopback_and_stops(make_record: Make) -> None:
    state = LiveState(started_at_s=T0)
    state.publish(*make_record(T0))
    server = _server(state)
    await server.start()
    async with httpx2.AsyncClient(base_url=server.url, trust_env=False) as client:
        page = await client.get("/")
        answer = await client.get("/v1/state")
    await server.stop()
    assert "Tidegate" in page.text
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "server" not in page.headers
    assert answer.json()["ready"] is True
    assert server.url.startswith("http://127.0.0.1:")
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(server.url.rsplit(":", 1)[1]))) != 0


async def test_server_leaves_signals_to_the_controller() -> None:
    heard = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, heard.set)
    server = _server(LiveState(started_at_s=T0))
    await server.start()
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(heard.wait(), 5.0)
        async with httpx2.AsyncClient(base_url=server.url, trust_env=False) as client:
            assert (await client.get("/healthz")).status_code == 200
    finally:
        await server.stop()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)


async def test_server_stops_though_a_client_holds_its_connection() -> None:
    server = _server(LiveState(started_at_s=T0))
    await server.start()
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/alerts HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n")
    await writer.drain()
    await asyncio.wait_for(server.stop(), 10.0)
    writer.close()


async def test_connections_without_a_request_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_server, "_IDLE_S", 0.05)
    server = _server(LiveState(started_at_s=T0))
    await server.start()
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    begun = (b"", b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-half: ", b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\nGET")
    for sent in begun:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        answer = await asyncio.wait_for(reader.read(), 10.0)  # up to the end: the server closed it
        assert answer.startswith(b"HTTP/1.1 200") is sent.endswith(b"GET")
        writer.close()
    await server.stop()


async def test_a_header_without_end_is_refused() -> None:
    server = _server(LiveState(started_at_s=T0))
    await server.start()
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.1\r\nx: " + b"a" * 1_000_000)
    assert (await asyncio.wait_for(reader.readline(), 10.0)).startswith(b"HTTP/1.1 400")
    writer.close()
    await server.stop()


def test_port_in_use_is_bad_input_that_names_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BadInputError, match=rf"127\.0\.0\.1:{port}: the port is in use"):
            _server(LiveState(started_at_s=T0), port=port)


@pytest.mark.parametrize(("host", "port"), [("203.0.113.1", 0), ("no.such.invalid", 0), ("127.0.0.1", 70000)])
def test_address_that_cannot_be_bound_is_bad_input(host: str, port: int) -> None:
    with pytest.raises(BadInputError, match=f"status page address {host}:{port}"):
        _server(LiveState(started_at_s=T0), host=host, port=port)
