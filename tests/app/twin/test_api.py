"""The twin's HTTP surface, asked over real sockets."""

import contextlib
import json
import socket
from pathlib import Path

import pytest
import requests
from tests.app.twin.twin_process import MODEL, Twin, TwinFactory


def events(answer: requests.Response) -> list[str]:
    return [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]


def raw(twin: Twin, sent: bytes) -> bytes:
    """Send bytes and return all that comes until the twin closes."""
    with socket.create_connection(("127.0.0.1", twin.port), timeout=10) as link:
        link.sendall(sent)
        got = b""
        while piece := link.recv(65536):
            got += piece
    return got


def test_twin_streams_a_chat_token_by_token_with_usage_and_end_mark(start_twin: TwinFactory) -> None:
    answer = start_twin().ask(stream=True, tokens=4, stream_options={"include_usage": True})

    assert answer.status_code == 200
    assert answer.headers["server"] == "tidegate-engine-twin"
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, done = events(answer)
    assert done == "[DONE]"
    role, *tokens, usage = [json.loads(chunk) for chunk in chunks]
    assert role["object"] == "chat.completion.chunk"
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(t["choices"][0]["delta"]["content"] for t in tokens).split() == ["tide"] * 4
    assert [t["choices"][0]["finish_reason"] for t in tokens] == [None, None, None, "length"]
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def test_twin_leaves_usage_out_of_a_stream_that_does_not_ask(start_twin: TwinFactory) -> None:
    assert "usage" not in start_twin().ask(stream=True, tokens=1).text


def test_twin_answers_a_chat_in_one_body(start_twin: TwinFactory) -> None:
    answer = start_twin().ask(tokens=3, prompt="one two three four").json()

    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "tide tide tide"}
    assert answer["usage"] == {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}


@pytest.mark.parametrize(("prompt", "tokens"), [("a b c d", 4), ([5, 6, 7], 3), (["a b"], 2), ([[1, 2, 3, 4]], 4)])
def test_twin_completes_a_text_or_token_ids(start_twin: TwinFactory, prompt: object, tokens: int) -> None:
    twin = start_twin()
    answer = requests.post(f"{twin.url}/v1/completions", json={"model": MODEL, "prompt": prompt}, timeout=10).json()

    assert answer["object"] == "text_completion"
    assert answer["usage"]["prompt_tokens"] == tokens
    assert answer["usage"]["completion_tokens"] == 16  # the API's default


def test_twin_streams_a_text_completion(start_twin: TwinFactory) -> None:
    twin = start_twin()
    body = {"model": MODEL, "prompt": "a", "max_tokens": 2, "stream": True}
    got = events(requests.post(f"{twin.url}/v1/completions", json=body, timeout=10))

    assert "".join(json.loads(e)["choices"][0]["text"] for e in got[:-1]) == "tide tide"


def test_twin_lists_its_model(start_twin: TwinFactory) -> None:
    (card,) = requests.get(f"{start_twin().url}/v1/models", timeout=10).json()["data"]

    assert (card["id"], card["max_model_len"]) == (MODEL, 131072)


@pytest.mark.parametrize(
    ("body", "status", "kind", "said"),
    [
        (b"{", 400, "BadRequestError", "not JSON"),
        (b"\xff\x00", 400, "BadRequestError", "not JSON"),
        (b"[" * 100_000, 400, "BadRequestError", "not JSON"),
        (b"[]", 400, "BadRequestError", "object"),
        (b"{}", 400, "BadRequestError", "model"),
        (b'{"model": "other", "messages": []}', 404, "NotFoundError", "`other` does not exist"),
        (b'{"model": "test/model"}', 400, "BadRequestError", "messages"),
        (b'{"model": "test/model", "messages": [1]}', 400, "BadRequestError", "role"),
        (b'{"model": "test/model", "messages": [{"role": "user", "content": 5}]}', 400, "BadRequestError", "content"),
    ],
)
def test_twin_refuses_a_bad_body_in_the_api_s_own_shape(
    start_twin: TwinFactory, body: bytes, status: int, kind: str, said: str
) -> None:
    answer = requests.post(f"{start_twin().url}/v1/chat/completions", data=body, timeout=10)

    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (status, status, kind)
    assert said in error["message"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_tokens", 0), ("max_tokens", True), ("max_tokens", "9"), ("max_completion_tokens", -1), ("n", 2)],
)
def test_twin_names_the_field_that_is_wrong(start_twin: TwinFactory, field: str, value: object) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], field: value}
    error = requests.post(f"{start_twin().url}/v1/chat/completions", json=body, timeout=10).json()["error"]

    assert (error["code"], error["param"]) == (400, field)


def test_twin_refuses_a_context_that_is_too_long(start_twin: TwinFactory) -> None:
    answer = start_twin().ask(tokens=131_070, prompt="a b c")

    assert answer.status_code == 400
    assert "maximum context length is 131072" in answer.json()["error"]["message"]


def test_twin_refuses_other_paths_and_methods(start_twin: TwinFactory) -> None:
    twin = start_twin()

    assert requests.get(f"{twin.url}/nope", timeout=10).status_code == 404
    assert requests.get(f"{twin.url}/v1/chat/completions", timeout=10).status_code == 405
    assert requests.post(f"{twin.url}/health", timeout=10).status_code == 405


def test_twin_answers_many_requests_on_one_connection_in_order(start_twin: TwinFactory) -> None:
    twin = start_twin()
    one = b'{"model": "test/model", "prompt": "a", "max_tokens": %d}'
    sent = b""
    for tokens in (3, 1, 2):
        body = one % tokens
        sent += b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    sent += b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"

    got = raw(twin, sent)

    assert got.count(b"HTTP/1.1 200 OK") == 4
    assert [got.index(b'"completion_tokens": %d' % n) for n in (3, 1, 2)] == sorted(
        got.index(b'"completion_tokens": %d' % n) for n in (3, 1, 2)
    )


def test_twin_speaks_http_1_0_without_chunks(start_twin: TwinFactory) -> None:
    body = b'{"model": "test/model", "prompt": "a", "max_tokens": 2, "stream": true}'

    got = raw(start_twin(), b"POST /v1/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    head, _, stream = got.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert stream.startswith(b"data: ")
    assert stream.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", b"400"),  # a TLS hello
        (b"GET /health HTTP/9.9\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\nx: " + b"y" * 70_000 + b"\r\n\r\n", b"431"),
        (b"POST /v1/completions HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n" + b"x" * 33_600_000, b"413"),
    ],
)
def test_twin_refuses_what_is_no_sensible_http(start_twin: TwinFactory, sent: bytes, status: bytes) -> None:
    twin = start_twin()

    with socket.create_connection(("127.0.0.1", twin.port), timeout=20) as link:
        # The twin answers and closes as soon as it knows; it need not take the rest.
        with contextlib.suppress(OSError):
            link.sendall(sent)
        try:
            got = link.recv(65536)
        except ConnectionResetError:
            got = b""
    assert got == b"" or got.split(b" ")[1] == status
    assert requests.get(f"{twin.url}/health", timeout=10).status_code == 200


def test_twin_answers_expect_100_continue(start_twin: TwinFactory) -> None:
    twin = start_twin()
    body = b'{"model": "test/model", "prompt": "a", "max_tokens": 1}'
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", twin.port), timeout=10) as link:
        link.sendall(head)
        assert link.recv(1000).startswith(b"HTTP/1.1 100")
        link.sendall(body)
        assert link.recv(1000).startswith(b"HTTP/1.1 200")


def test_twin_listens_on_a_unix_socket_too(start_twin: TwinFactory, tmp_path: Path) -> None:
    path = tmp_path / "s"
    twin = start_twin("--uds", str(path))
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(path))
        link.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        assert link.recv(1000).startswith(b"HTTP/1.1 200")

    twin.stop()
    assert not path.exists()
