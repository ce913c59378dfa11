"""Replicas come, go and die under load; a real Envoy between them and the clients."""

import asyncio
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.gateway.harness import Answer, Gateway, address_of, replica, running_gateway, running_upstreams, service
from tests.policies import MODEL

from tidegate.app.servers import Server


async def load(gateway: Gateway, stop: asyncio.Event, *, clients: int = 8) -> list[Answer]:
    """Ask without pause from several clients until `stop`; half of the requests are streams."""

    async def client(index: int) -> list[Answer]:
        answers = []
        while not stop.is_set():
            body = {"model": MODEL, "stream": index % 2 == 0, "tokens": 4, "token_s": 0.01, "first_s": 0.01}
            answers.append(await gateway.ask(body))
        return answers

    return [a for answers in await asyncio.gather(*(client(i) for i in range(clients))) for a in answers]


def failures(answers: list[Answer]) -> list[Answer]:
    return [a for a in answers if a.status != 200 or not a.whole]


async def test_replicas_added_and_removed_under_load_lose_no_request(
    envoy_factory: Callable[..., Server], workdir: Path
) -> None:
    with running_upstreams(workdir, "a", "b", "c") as servers:
        a, b, c = (replica(s.name, address_of(s)) for s in servers)
        async with running_gateway(envoy_factory, workdir) as gateway:
            await gateway.publish(a)
            stop = asyncio.Event()
            loading = asyncio.create_task(load(gateway, stop))
            for members in ((a, b), (a, b, c), (b, c), (c,), (a, c), (a, b, c), (b,)):
                await asyncio.sleep(0.25)
                await gateway.publish(*members)
            await asyncio.sleep(0.25)
            stop.set()
            answers = await loading
            assert failures(answers) == []
            assert len(answers) > 100
            lines = await gateway.logged(len(answers))
            assert set(Counter(line["replica"] for line in lines)) == {"a", "b", "c"}


async def test_a_stream_in_flight_survives_the_removal_of_its_replica(
    envoy_factory: Callable[..., Server], workdir: Path
) -> None:
    with running_upstreams(workdir, "a", "b") as servers:
        a, b = (replica(s.name, address_of(s)) for s in servers)
        async with running_gateway(envoy_factory, workdir) as gateway:
            await gateway.publish(a)
            body = {"model": MODEL, "stream": True, "tokens": 20, "token_s": 0.1}
            stream = asyncio.create_task(gateway.ask(body))
            await asyncio.sleep(0.3)
            await gateway.publish(b)
            # Acknowledged: from here on no new request may reach the removed replica.
            later = [await gateway.ask({"model": MODEL}) for _ in range(10)]
            assert {answer.json()["upstream"] for answer in later} == {"b"}
            assert not stream.done()
            finished = await stream
            assert finished.whole
            assert {e["upstream"] for e in finished.events() if "upstream" in e} == {"a"}
            assert len(finished.events()) == 21


async def test_unanswered_requests_of_a_killed_replica_are_retried_and_none_fails(
    envoy_factory: Callable[..., Server], workdir: Path
) -> None:
    with running_upstreams(workdir, "a", "b") as servers:
        async with running_gateway(envoy_factory, workdir) as gateway:
            await gateway.publish(*(replica(s.name, address_of(s)) for s in servers))
            # Half of the streams have their head out of the engine already, as vLLM's do, but no token yet.
            bodies = [
                {"model": MODEL, "stream": i % 2 == 0, "early_headers": i % 4 == 0, "first_s": 1.5, "tokens": 3}
                for i in range(40)
            ]
            asked = []
            for body in bodies:
                asked.append(asyncio.create_task(gateway.ask(body)))
                await asyncio.sleep(0.01)  # a request counts as load once its connection stands
            await asyncio.sleep(0.5)
            servers[0].send(signal.SIGKILL)
            # The dead replica is still an endpoint: new requests meet it too.
            late = [await gateway.ask({"model": MODEL}) for _ in range(20)]
            answers = [*await asyncio.gather(*asked), *late]
            assert failures(answers) == []
            assert await gateway.stat("envoy_cluster_upstream_rq_retry", envoy_cluster_name="chat/main") >= 10
            lines = await gateway.logged(60)
            assert {line["replica"] for line in lines} == {"b"}
            assert max(line["attempts"] for line in lines) > 1
            assert await gateway.stat("envoy_tg_streams_cut") == 0.0


async def test_streams_cut_by_a_killed_replica_are_counted_and_named(
    envoy_factory: Callable[..., Server], workdir: Path
) -> None:
    with running_upstreams(workdir, "a") as servers:
        async with running_gateway(envoy_factory, workdir) as gateway:
            await gateway.publish(replica("chat-main-7", address_of(servers[0])))
            begun = {"model": MODEL, "stream": True, "tokens": 100, "token_s": 0.1}
            asked = [asyncio.create_task(gateway.ask(begun)) for _ in range(3)]
            await asyncio.sleep(0.6)
            servers[0].send(signal.SIGKILL)
            answers = await asyncio.gather(*asked)
            assert [(a.status, a.whole) for a in answers] == [(200, False)] * 3
            lines = await gateway.logged(3)
            assert {line["replica"] for line in lines} == {"chat-main-7"}
            assert all(set(line["flags"].split(",")) & {"UC", "UPE", "UR"} for line in lines)
            assert await gateway.stat("envoy_tg_streams_cut", service="chat", pool="main") == 3.0
            assert await gateway.stat("envoy_tg_duration_count") == 0.0


async def test_a_draining_engine_answering_503_is_passed_over(
    envoy_factory: Callable[..., Server], workdir: Path
) -> None:
    with running_upstreams(workdir, "draining", "b") as servers:
        async with running_gateway(envoy_factory, workdir) as gateway:
            await gateway.publish(*(replica(s.name, address_of(s)) for s in servers))
            # A body of 4 MiB must be kept to be sent again.
            bodies = [
                {"model": MODEL, "stream": i % 2 == 0, "prompt": "x" * (4 << 20 if i == 0 else 10)} for i in range(12)
            ]
            answers = [await gateway.ask(body) for body in bodies]
            assert failures(answers) == []
            lines = await gateway.logged(12)
            assert {line["replica"] for line in lines} == {"b"}
            assert max(line["attempts"] for line in lines) == 2


async def test_a_503_of_every_replica_is_passed_on_as_the_engine_gave_it(
    envoy_factory: Callable[..., Server], workdir: Path
) -> None:
    with running_upstreams(workdir, "a") as servers:
        async with running_gateway(envoy_factory, workdir) as gateway:
            await gateway.publish(*(replica(s.name, address_of(s)) for s in servers))
            answer = await gateway.ask({"model": MODEL, "status": 503})
            assert (answer.status, answer.json()["upstream"]) == (503, "a")
            (line,) = await gateway.logged(1)
            assert line["attempts"] == 4


async def test_a_silent_engine_is_given_up_after_the_policys_idle_time(
    envoy_factory: Callable[..., Server], workdir: Path
) -> None:
    with running_upstreams(workdir, "a") as servers:
        async with running_gateway(envoy_factory, workdir, service(idle_timeout_s=1.0)) as gateway:
            await gateway.publish(*(replica(s.name, address_of(s)) for s in servers))
            flowing = {"model": MODEL, "stream": True, "tokens": 5, "token_s": 0.5}
            unanswered = {"model": MODEL, "first_s": 30}
            stuck = {"model": MODEL, "stream": True, "tokens": 5, "token_s": 30}
            good, refused, cut = await asyncio.gather(*(gateway.ask(body) for body in (flowing, unanswered, stuck)))
            assert good.whole
            assert refused.status in {408, 504}
            assert refused.error()["message"]
            assert (cut.status, cut.whole) == (200, False)
            assert await gateway.stat("envoy_tg_streams_cut") == 1.0


async def test_equal_load_is_spread_over_replicas(envoy_factory: Callable[..., Server], workdir: Path) -> None:
    with running_upstreams(workdir, "a", "b", "c") as servers:
        async with running_gateway(envoy_factory, workdir) as gateway:
            await gateway.publish(*(replica(s.name, address_of(s)) for s in servers))
            asked = []
            for _ in range(30):
                asked.append(asyncio.create_task(gateway.ask({"model": MODEL, "first_s": 1.5})))
                await asyncio.sleep(0.01)  # a request counts once its connection stands
            served = Counter(a.json()["upstream"] for a in await asyncio.gather(*asked))
            assert sum(served.values()) == 30
            assert max(served.values()) - min(served.values()) <= 2, served
