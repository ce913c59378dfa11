"""What a real Envoy counts and logs about the requests it carried."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.gateway.harness import Gateway, address_of, replica, running_gateway, running_upstreams
from tests.policies import MODEL

from tidegate.app.servers import Server


@pytest.fixture
async def gateway(envoy_factory: Callable[..., Server], workdir: Path) -> AsyncIterator[Gateway]:
    with running_upstreams(workdir, "one") as (one,):
        async with running_gateway(envoy_factory, workdir) as running:
            await running.publish(replica("chat-main-0", address_of(one)))
            yield running


async def counted(gateway: Gateway, name: str, expected: float, **labels: str) -> float:
    """Return the counter once it has the expected value, or what it is at last; histograms appear at the next flush."""
    value = await gateway.stat(name, **labels)
    for _ in range(50):
        if value == expected:
            break
        await asyncio.sleep(0.1)
        value = await gateway.stat(name, **labels)
    return value


async def test_requests_tokens_and_latencies_are_counted_per_service(gateway: Gateway) -> None:
    await gateway.ask({"model": MODEL, "tokens": 5})
    await gateway.ask({"model": MODEL, "stream": True, "tokens": 11, "first_s": 0.1, "token_s": 0.02})
    await gateway.ask({"model": MODEL, "status": 500})
    await gateway.ask({"model": "nope"})
    labels = {"service": "chat", "pool": "main", "model": MODEL}
    assert await counted(gateway, "envoy_tg_requests", 2.0, code_class="2xx", **labels) == 2.0
    assert await counted(gateway, "envoy_tg_requests", 1.0, code_class="5xx", **labels) == 1.0
    assert await counted(gateway, "envoy_tg_requests", 1.0, code_class="4xx", service="none") == 1.0
    assert await counted(gateway, "envoy_tg_output_tokens", 19.0, **labels) == 19.0  # 5 + 11, and 3 of the failed one
    assert await counted(gateway, "envoy_tg_prompt_tokens", 21.0, **labels) == 21.0
    assert await counted(gateway, "envoy_tg_duration_count", 2.0, **labels) == 2.0
    assert await counted(gateway, "envoy_tg_ttft_count", 1.0, **labels) == 1.0
    assert await counted(gateway, "envoy_tg_tpot_count", 1.0, **labels) == 1.0


async def test_ttft_and_tpot_are_the_streams_own(gateway: Gateway) -> None:
    # Early headers: a time to first byte that counted headers would be 0.
    body = {"model": MODEL, "stream": True, "early_headers": True, "tokens": 11, "first_s": 0.21, "token_s": 0.031}
    await gateway.ask(body)
    assert await counted(gateway, "envoy_tg_tpot_count", 1.0) == 1.0
    assert await gateway.stat("envoy_tg_ttft_bucket", le="199") == 0.0
    assert await gateway.stat("envoy_tg_tpot_bucket", le="29") == 0.0
    (line,) = await gateway.logged(1)
    assert line["ttft_ms"] >= 210
    assert line["duration_ms"] >= line["ttft_ms"] + 310


async def test_the_access_log_names_the_replica_and_holds_no_prompt(gateway: Gateway) -> None:
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "the secret plan"}]}
    answer = await gateway.ask(asked)
    await gateway.ask({**asked, "model": "nope"})
    await gateway.ask(b"the secret plan")
    good, unknown, garbled = await gateway.logged(3)
    assert good["request_id"] == answer.headers["x-request-id"]
    expected = {
        "service": "chat",
        "pool": "main",
        "model": MODEL,
        "replica": "chat-main-0",
        "status": 200,
        "attempts": 1,
    }
    assert {k: good[k] for k in expected} == expected
    assert (good["prompt_tokens"], good["output_tokens"]) == (7, 3)
    assert good["prompt_tokens_estimate"] == -(-good["request_bytes"] // 4)
    assert (unknown["status"], unknown["service"], unknown["replica"]) == (404, "none", None)
    assert garbled["status"] == 400
    assert "secret" not in gateway.access_log.read_text()


async def test_an_aborting_client_is_neither_cut_nor_measured(gateway: Gateway) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    body = b'{"model":"%s","stream":true,"tokens":500,"token_s":0.05}' % MODEL.encode()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    await reader.readuntil(b"data: ")
    writer.close()
    assert await counted(gateway, "envoy_tg_requests", 1.0) == 1.0
    assert await gateway.stat("envoy_tg_streams_cut") == 0.0
    assert await gateway.stat("envoy_tg_duration_count") == 0.0
    (line,) = await gateway.logged(1)
    assert "DC" in line["flags"] or "DR" in line["flags"]
