"""A tiny OpenAI-like upstream for gateway tests: `python upstream_server.py NAME PORT`.

The request body steers it: `stream`, `tokens`, `first_s` (before the first token), `token_s` (between tokens),
`early_headers` (send the headers at once rather than with the first token), `status`. Every answer names the upstream,
counts the bytes it received and returns the request headers it saw. One named `draining` answers POST with 503.
"""

import asyncio
import json
import sys
from typing import Any

NAME, PORT = sys.argv[1], int(sys.argv[2])


async def read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        parts = []
        while size := int((await reader.readline()).strip() or b"0", 16):
            parts.append(await reader.readexactly(size))
            await reader.readline()
        await reader.readline()
        return b"".join(parts)
    return await reader.readexactly(int(headers.get("content-length", "0")))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def answer_plain(writer: asyncio.StreamWriter, asked: dict[str, Any], seen: dict[str, Any]) -> None:
    await asyncio.sleep(asked.get("first_s", 0.0))
    status = 503 if NAME == "draining" and seen["method"] == "POST" else asked.get("status", 200)
    body = json.dumps({**seen, "usage": {"prompt_tokens": 7, "completion_tokens": asked.get("tokens", 3)}}).encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


async def answer_stream(writer: asyncio.StreamWriter, asked: dict[str, Any], seen: dict[str, Any]) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    if asked.get("early_headers"):
        writer.write(head)
        await writer.drain()
    await asyncio.sleep(asked.get("first_s", 0.0))
    if not asked.get("early_headers"):
        writer.write(head)
    count = asked.get("tokens", 3)
    for index in range(count):
        if index:
            await asyncio.sleep(asked.get("token_s", 0.0))
        event = {"index": index, "upstream": NAME} | (seen if index == 0 else {})
        writer.write(chunk(b"data: " + json.dumps(event).encode() + b"\n\n"))
        await writer.drain()
    usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": count}}
    writer.write(chunk(b"data: " + json.dumps(usage).encode() + b"\n\n") + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    await writer.drain()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while line := await reader.readline():
            method, path, _ = line.decode().split()
            headers = {}
            while (raw := (await reader.readline()).decode().strip()) != "":
                key, _, value = raw.partition(":")
                headers[key.lower()] = value.strip()
            body = await read_body(reader, headers)
            try:
                asked = json.loads(body) if body else {}
            except ValueError:
                asked = {}
            asked = asked if isinstance(asked, dict) else {}
            seen = {"upstream": NAME, "method": method, "path": path, "bytes": len(body), "headers": headers}
            streams = asked.get("stream") and NAME != "draining"
            await (answer_stream if streams else answer_plain)(writer, asked, seen)
    except (ConnectionError, asyncio.IncompleteReadError):
        pass  # the gateway went away: nothing to answer
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", PORT, limit=1 << 24)
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
