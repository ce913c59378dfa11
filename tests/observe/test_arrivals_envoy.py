"""The arrivals formula against a real Envoy: every request counts once, however its attempts end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.gateway.harness import Gateway, address_of, replica, running_gateway, running_upstreams
from tests.policies import MODEL

from tidegate.app.servers import Server
from tidegate.catalogue import gateway as names


@pytest.fixture
async def running(envoy_factory: Callable[..., Server], workdir: Path) -> AsyncIterator[tuple[Gateway, str]]:
    with running_upstreams(workdir, "one") as (one,):
        async with running_gateway(envoy_factory, workdir) as envoy:
            yield envoy, address_of(one)


async def arrivals(envoy: Gateway, expected: int) -> tuple[float, dict[str, float]]:
    """Return attempts less retries, and each counter, once they are as expected or have settled."""
    found: dict[str, float] = {}
    total = -1.0
    for _ in range(30):
        found = {n: await envoy.stat(n, envoy_cluster_name="chat/main") for n in (*names.ATTEMPTS, names.RETRIES)}
        total = sum(found[n] for n in names.ATTEMPTS) - found[names.RETRIES]
        if total == expected:
            break
        await asyncio.sleep(0.1)
    return total, found


async def test_arrivals_count_requests_that_succeed_at_once(running: tuple[Gateway, str]) -> None:
    envoy, address = running
    await envoy.publish(replica("chat-main-0", address))
    for _ in range(5):
        assert (await envoy.ask({"model": MODEL, "tokens": 1})).status == 200
    total, found = await arrivals(envoy, 5)
    assert total == 5, found


async def test_arrivals_count_requests_once_that_met_a_dead_replica(
    running: tuple[Gateway, str], free_port: Callable[[], int]
) -> None:
    envoy, address = running
    await envoy.publish(replica("chat-main-0", address), replica("chat-main-1", f"127.0.0.1:{free_port()}"))
    for _ in range(12):
        assert (await envoy.ask({"model": MODEL, "tokens": 1})).status == 200
    total, found = await arrivals(envoy, 12)
    assert found[names.RETRIES] > 0
    assert total == 12, found


async def test_arrivals_count_requests_once_that_an_engine_refused(running: tuple[Gateway, str]) -> None:
    envoy, address = running
    await envoy.publish(replica("chat-main-0", address))
    for _ in range(3):
        await envoy.ask({"model": MODEL, "status": 503})
    total, found = await arrivals(envoy, 3)
    assert total == 3, found


async def test_arrivals_count_requests_that_found_no_replica(running: tuple[Gateway, str]) -> None:
    envoy, _ = running
    await envoy.publish()
    for _ in range(4):
        assert (await envoy.ask({"model": MODEL, "tokens": 1})).status == 503
    total, found = await arrivals(envoy, 4)
    assert total == 4, found
