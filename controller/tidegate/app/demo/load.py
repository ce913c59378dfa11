"""An open-loop load generator: sends each request at its scheduled time, whatever became of the ones before.

Streams are read by counting server-sent events, which costs a few microseconds per token; a full HTTP client costs a
core at the demo's rates and would slow the fleet it measures.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tidegate.sim.arrivals import Arrival
from tidegate.sim.outcome import Outcome

# One word is one token to the engine twin.
_WORD = "tide "
_EVENT_END = b"\n\n"
_DONE = b"data: [DONE]"


class Ending(StrEnum):
    """How a request ended, seen by its client."""

    DONE = "done"
    REFUSED = "refused"  # an HTTP status other than 200
    CUT = "cut"  # the stream ended before [DONE]
    NO_ANSWER = "no_answer"  # connection failed or closed before a status, or the deadline passed


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One request as its client saw it. Times are seconds after the start of the replay."""

    arrival: Arrival
    sent_s: float
    ending: Ending
    status: int  # 0: no status was received
    ttft_s: float | None
    finished_s: float
    output_tokens: int
    detail: str = ""

    @property
    def tpot_s(self) -> float | None:
        """Mean seconds per output token after the first; None for answers of one token or none."""
        if self.ttft_s is None or self.output_tokens <= 1:
            return None
        return (self.finished_s - self.sent_s - self.ttft_s) / (self.output_tokens - 1)

    @property
    def outcome(self) -> Outcome:
        """The answer in the words of a rehearsal, so that both are scored by one rule."""
        return Outcome(
            arrival=self.arrival,
            answered=self.ending is Ending.DONE,
            ttft_s=self.ttft_s,
            tpot_s=self.tpot_s,
            e2e_s=self.finished_s - self.sent_s,
        )

    @property
    def lag_s(self) -> float:
        """How late the generator itself was."""
        return self.sent_s - self.arrival.at_s


class _Stream(asyncio.Protocol):
    """One request on one connection."""

    def __init__(self, request: bytes, now: Callable[[], float], ended: asyncio.Future[None]) -> None:
        self._request = request
        self._now = now
        self._ended = ended
        self._head = b""
        self._tail = b""
        self.status = 0
        self.events = 0
        self.first_at: float | None = None
        self.last_at = 0.0
        self.complete = False
        self.body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  (for the type checker)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self.status:
            self._head += data
            if b"\r\n\r\n" not in self._head:
                return
            head, data = self._head.split(b"\r\n\r\n", 1)
            self.status = int(head.split(b" ", 2)[1])
        if self.status != 200:  # noqa: PLR2004
            self.body += data[:2000]
            return
        seam = self._tail + data
        ends = seam.count(_EVENT_END)
        if ends:
            self.events += ends
            self.last_at = self._now()
            if self.first_at is None:
                self.first_at = self.last_at
        if _DONE in seam:
            self.complete = True
        # Enough to join a "[DONE]" cut in two; never holds a whole event end, so none is counted twice.
        self._tail = seam[-len(_DONE) :].rpartition(_EVENT_END)[2]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        if not self._ended.done():
            self._ended.set_result(None)


def request_bytes(arrival: Arrival, *, model: str, host: str) -> bytes:
    """Return the HTTP/1.1 request of a streaming chat completion with exactly the arrival's token counts."""
    body = json.dumps(
        {
            "model": model,
            "stream": True,
            "stream_options": {"include_usage": True},  # lets the gateway measure time per output token
            "max_tokens": arrival.output_tokens,
            "messages": [{"role": "user", "content": (_WORD * arrival.prompt_tokens).strip()}],
        }
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


async def send(
    arrival: Arrival, *, host: str, port: int, model: str, now: Callable[[], float], deadline_s: float
) -> Answer:
    """Return what came of one request; never raises for anything the network does."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    stream = _Stream(request_bytes(arrival, model=model, host=f"{host}:{port}"), now, ended)
    sent_s = now()
    detail = ""
    transport: asyncio.BaseTransport | None = None
    try:
        async with asyncio.timeout(deadline_s):
            transport, _ = await loop.create_connection(lambda: stream, host, port)
            await ended
    except TimeoutError:
        detail = f"no end within {deadline_s:g} s"
    except OSError as exc:
        detail = str(exc)
    finally:
        if transport is not None:
            transport.close()
    return _answer(arrival, stream, sent_s=sent_s, ended_s=now(), detail=detail)


def _answer(arrival: Arrival, stream: _Stream, *, sent_s: float, ended_s: float, detail: str) -> Answer:
    if stream.status == 0:
        ending = Ending.NO_ANSWER
    elif stream.status != 200:  # noqa: PLR2004
        ending = Ending.REFUSED
        detail = stream.body.decode(errors="replace")[:300]
    else:
        ending = Ending.DONE if stream.complete else Ending.CUT
    # Two events are no token: the usage and [DONE].
    tokens = arrival.output_tokens if ending is Ending.DONE else min(stream.events, arrival.output_tokens)
    return Answer(
        arrival=arrival,
        sent_s=sent_s,
        ending=ending,
        status=stream.status,
        ttft_s=None if stream.first_at is None else stream.first_at - sent_s,
        finished_s=stream.last_at if ending is Ending.DONE else ended_s,
        output_tokens=tokens,
        detail=detail or ("stream ended before [DONE]" if ending is Ending.CUT else ""),
    )


async def replay(
    arrivals: Sequence[Arrival],
    *,
    host: str,
    port: int,
    model: str,
    deadline_s: float,
    on_answer: Callable[[Answer], None] | None = None,
    stop: asyncio.Event | None = None,
) -> list[Answer]:
    """Send every arrival at its time and return all answers in the order of the arrivals.

    Args:
        arrivals: Ascending by `at_s`.
        host: Gateway address.
        port: Gateway port.
        model: Model name to ask for.
        deadline_s: Longest life of one request.
        on_answer: Called as each request ends.
        stop: When set, nothing more is sent; what is under way is still awaited.
    """
    loop = asyncio.get_running_loop()
    start = loop.time()

    def now() -> float:
        return loop.time() - start

    async def one(arrival: Arrival) -> Answer:
        answer = await send(arrival, host=host, port=port, model=model, now=now, deadline_s=deadline_s)
        if on_answer is not None:
            on_answer(answer)
        return answer

    tasks: list[asyncio.Task[Answer]] = []
    for arrival in arrivals:
        wait_s = arrival.at_s - now()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        if stop is not None and stop.is_set():
            break
        tasks.append(asyncio.create_task(one(arrival)))
    return list(await asyncio.gather(*tasks))
