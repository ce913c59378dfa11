import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from tidegate.app.demo.load import Answer, Ending, replay
from tidegate.sim.arrivals import Arrival

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


async def _body(reader: asyncio.StreamReader) -> dict[str, object]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length"))
    found: dict[str, object] = json.loads(await reader.readexactly(length))
    return found


async def _replay(handler: Handler, *arrivals: Arrival, deadline_s: float = 5.0) -> list[Answer]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        return await replay(arrivals, host="127.0.0.1", port=port, model="m", deadline_s=deadline_s)


def _arrival(at_s: float = 0.0, output_tokens: int = 4) -> Arrival:
    return Arrival(at_s=at_s, prompt_tokens=7, output_tokens=output_tokens)


async def test_replay_asks_for_exactly_the_trace_lengths_and_counts_a_whole_stream() -> None:
    asked: list[dict[str, object]] = []

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await _body(reader))
        writer.write(_HEAD)
        for _ in range(4):
            writer.write(b'data: {"choices": []}\n\n')
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.write(b"data: [DO")  # cut inside the marker
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.write(b"NE]\n\n")
        await writer.drain()
        writer.close()

    (answer,) = await _replay(stream, _arrival())
    assert answer.ending is Ending.DONE
    assert answer.status == 200
    assert asked[0]["max_tokens"] == 4
    messages = asked[0]["messages"]
    assert isinstance(messages, list)
    assert len(messages[0]["content"].split()) == 7
    assert answer.ttft_s is not None
    assert answer.tpot_s is not None
    assert 0.0 < answer.ttft_s < answer.finished_s


async def test_replay_names_a_stream_that_ends_before_done() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _body(reader)
        writer.write(_HEAD + b"data: {}\n\n")
        await writer.drain()
        writer.close()

    (answer,) = await _replay(cut, _arrival())
    assert answer.ending is Ending.CUT
    assert answer.output_tokens == 1


@pytest.mark.parametrize("status", ["503 Service Unavailable", "404 Not Found"])
async def test_replay_names_a_refusal_with_its_body(status: str) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _body(reader)
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 4\r\nConnection: close\r\n\r\nsick".encode())
        await writer.drain()
        writer.close()

    (answer,) = await _replay(refuse, _arrival())
    assert answer.ending is Ending.REFUSED
    assert answer.status == int(status[:3])
    assert answer.detail == "sick"
    assert answer.ttft_s is None


async def test_replay_gives_up_at_the_deadline_and_says_so() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _body(reader)
        await reader.read()  # until the client leaves
        writer.close()

    (answer,) = await _replay(hang, _arrival(), deadline_s=0.2)
    assert answer.ending is Ending.NO_ANSWER
    assert "0.2 s" in answer.detail


async def test_replay_reports_a_refused_connection() -> None:
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    (answer,) = await replay([_arrival()], host="127.0.0.1", port=port, model="m", deadline_s=2.0)
    assert answer.ending is Ending.NO_ANSWER
    assert answer.detail


async def test_replay_sends_at_the_scheduled_times_whatever_became_of_the_one_before() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _body(reader)
        await reader.read()
        writer.close()

    answers = await _replay(hang, _arrival(0.0), _arrival(0.1), _arrival(0.2), deadline_s=0.5)
    assert [a.arrival.at_s for a in answers] == [0.0, 0.1, 0.2]
    assert all(a.sent_s >= a.arrival.at_s for a in answers)
    assert answers[2].sent_s < answers[0].finished_s  # open loop: the third did not wait for the first
