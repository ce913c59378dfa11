"""What a real Envoy answers to good, unknown and hostile requests."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.harness import CHAT, Gateway, address_of, replica, running_gateway, running_upstreams, service
from tests.policies import MODEL

from tidegate.app.servers import Server
from tidegate.terms.fleet import PoolKey

SMALL = PoolKey(service="small", pool="main")


@pytest.fixture
async def gateway(envoy_factory: Callable[..., Server], workdir: Path) -> AsyncIterator[Gateway]:
    policies = (service(), service("small", "tiny-1", max_body_bytes=1 << 20))
    with running_upstreams(workdir, "one", "two") as (one, two):
        async with running_gateway(envoy_factory, workdir, *policies) as running:
            await running.publish(replica("one", address_of(one)), replica("two", address_of(two), SMALL))
            yield running


async def test_requests_reach_the_pool_of_their_model(gateway: Gateway) -> None:
    plain = await gateway.ask({"model": MODEL})
    other = await gateway.ask({"messages": [], "model": "tiny-1"}, path="/v1/completions?x=1")
    streamed = await gateway.ask({"model": MODEL, "stream": True, "tokens": 4})
    assert (plain.status, plain.json()["upstream"]) == (200, "one")
    assert (other.status, other.json()["upstream"], other.json()["path"]) == (200, "two", "/v1/completions?x=1")
    assert streamed.whole
    assert [e.get("index") for e in streamed.events()] == [0, 1, 2, 3, None]


async def test_engines_see_none_of_our_headers_and_clients_cannot_set_them(gateway: Gateway) -> None:
    answer = await gateway.ask(
        {"model": MODEL}, headers=["x-tg-model: tiny-1", "X-TG-Body-Bytes: 9", "x-envoy-max-retries: 99", "x-own: 1"]
    )
    seen = answer.json()
    assert seen["upstream"] == "one"
    assert seen["headers"]["x-own"] == "1"
    assert not [h for h in seen["headers"] if h.startswith(("x-tg-", "x-envoy-max"))]
    assert seen["headers"]["x-request-id"] == answer.headers["x-request-id"]


async def test_a_spoofed_model_header_opens_no_route(gateway: Gateway) -> None:
    for method, path in (("GET", "/v1/chat/completions"), ("POST", "/metrics"), ("POST", "/v1/load_lora_adapter")):
        answer = await gateway.ask(b"x", method=method, path=path, headers=[f"x-tg-model: {MODEL}"])
        assert answer.status in {404, 405}, (method, path)
        assert "upstream" not in answer.body.decode()


async def test_models_are_listed_without_an_engine(gateway: Gateway) -> None:
    listed = await gateway.ask(method="GET", path="/v1/models")
    assert listed.headers["content-type"] == "application/json"
    assert [m["id"] for m in listed.json()["data"]] == [MODEL, "tiny-1"]
    for path in (f"/v1/models/{MODEL}", "/v1/models/meta-llama%2FLlama-3.1-8B-Instruct"):
        one = await gateway.ask(method="GET", path=path)
        assert (one.status, one.json()["id"]) == (200, MODEL)
    missing = await gateway.ask(method="GET", path="/v1/models/nope")
    assert missing.status == 404


async def test_an_unknown_model_is_a_404_in_openai_shape(gateway: Gateway) -> None:
    for model in ("nope", MODEL.upper(), "", "a\nb", "x" * 300, "mod\u00e8le", "(not printable ASCII)"):
        answer = await gateway.ask({"model": model})
        assert answer.status == 404, model
        assert answer.headers["content-type"] == "application/json"
        error = answer.error()
        assert set(error) == {"message", "type", "code"}
        assert (error["type"], error["code"]) == ("invalid_request_error", "model_not_found")


def deep(levels: int) -> bytes:
    return b'{"x":' + b"[" * levels + b"]" * levels + b',"model":"tiny-1"}'


GOOD_BODIES: list[tuple[str, bytes]] = [
    ("nested model first", b'{"metadata":{"model":"nope"},"model":"tiny-1"}'),
    ("model inside a string", b'{"prompt":"\\"model\\":\\"nope\\"","model":"tiny-1"}'),
    ("model as a value", b'{"a":"model","b":["model","x"],"model":"tiny-1"}'),
    ("backslashes before the quote", b'{"a":"\\\\","b":"\\\\\\"model\\":","model":"tiny-1"}'),
    ("spaces and new lines", b' \n{ "x" : [ { } , 1 ] ,\t"model" :\r\n "tiny-1" }\n '),
    ("escaped slash and code points", b'{"model":"\\u0074iny\\u002d1"}'),
    ("key in another case too", b'{"Model":"nope","MODEL":"nope","model":"tiny-1"}'),
    ("brackets in strings", b'{"a":"}]{[","model":"tiny-1"}'),
    ("150 levels", deep(150)),
    ("198,000 brackets", b'{"a":[' + b"{}," * 98_999 + b'{}],"model":"tiny-1"}'),
    ("utf-8", '{"a":"\u00fc\u4e2d\U0001f600","model":"tiny-1"}'.encode()),
]


async def test_the_scan_finds_the_top_level_model(gateway: Gateway) -> None:
    for name, body in GOOD_BODIES:
        json.loads(body)
        answer = await gateway.ask(body)
        assert (answer.status, answer.json().get("upstream")) == (200, "two"), name


BAD_BODIES: list[tuple[str, bytes]] = [
    ("empty", b""),
    ("no object", b"[1,2]"),
    ("a string", b'"model"'),
    ("no model", b'{"a":1}'),
    ("nested model only", b'{"a":{"model":"tiny-1"}}'),
    ("duplicate model", b'{"model":"tiny-1","model":"nope"}'),
    ("escaped duplicate", b'{"model":"tiny-1","mod\\u0065l":"nope"}'),
    ("number", b'{"model":7}'),
    ("null", b'{"model":null}'),
    ("cut short", b'{"model":"tiny-1"'),
    ("cut in a string", b'{"model":"tiny-1","a":"xx'),
    ("text behind", b'{"model":"tiny-1"} {"model":"nope"}'),
    ("brackets crossed", b'{"a":[1},"model":"tiny-1"]'),
    ("too deep", deep(5000)),
    ("only brackets", b"[" * 100_000),
    # The scan runs between two events of the worker: without a bound one body would stop every stream for seconds.
    ("too many brackets", b'{"model":"tiny-1","a":[' + b"{}," * 100_000 + b"1]}"),
    ("too many strings", b'{"model":"tiny-1","a":[' + b'"",' * 200_000 + b"1]}"),
    ("binary", bytes(range(256))),
    ("form", b"model=tiny-1"),
    ("only quotes", b'"' * 10_000),
    ("only backslashes", b'{"' + b"\\" * 100_000),
]


async def test_a_garbled_body_is_refused_with_400(gateway: Gateway) -> None:
    for name, body in BAD_BODIES:
        answer = await gateway.ask(body)
        assert answer.status == 400, name
        assert answer.error()["type"] == "invalid_request_error"
    assert await gateway.stat("envoy_http_lua_errors") == 0.0


async def test_large_bodies_pass_up_to_the_service_limit_and_no_further(gateway: Gateway) -> None:
    def body(model: str, size: int) -> bytes:
        head = json.dumps({"model": model, "prompt": ""})[:-2].encode()
        return head + b"a" * (size - len(head) - 2) + b'"}'

    most = await gateway.ask(body(MODEL, 8 << 20))
    assert (most.status, most.json()["bytes"]) == (200, 8 << 20)
    for model, size in ((MODEL, 9 << 20), ("tiny-1", (1 << 20) + 1)):
        refused = await gateway.ask(body(model, size))
        assert (refused.status, refused.error()["code"]) == (413, "request_too_large")
    assert (await gateway.ask(body("tiny-1", 1 << 20))).status == 200
    assert await gateway.stat("envoy_http_lua_errors") == 0.0


async def test_a_chunked_body_is_read_like_any_other(gateway: Gateway) -> None:
    body = json.dumps({"a": {"model": "nope"}, "model": "tiny-1"}).encode()
    answer = await gateway.ask(raw_chunks=[body[:5], body[5:21], body[21:]])
    assert (answer.status, answer.json()["bytes"]) == (200, len(body))
    too_large = await gateway.ask(raw_chunks=[b'{"model":"tiny-1","a":"' + b"x" * (1 << 20), b'"}'])
    assert too_large.status == 413


async def test_wrong_methods_and_paths_are_refused(gateway: Gateway) -> None:
    expected: dict[tuple[str, str], tuple[int, str]] = {
        ("GET", "/v1/chat/completions"): (405, "method_not_allowed"),
        ("PUT", "/v1/completions"): (405, "method_not_allowed"),
        ("POST", "/v1/models"): (404, "unknown_path"),
        ("GET", "/metrics"): (404, "unknown_path"),
        ("POST", "/v1/../metrics"): (404, "unknown_path"),
        ("POST", "//v1//chat/./completions/x"): (404, "unknown_path"),
    }
    for (method, path), (status, code) in expected.items():
        answer = await gateway.ask({"model": MODEL}, method=method, path=path)
        assert (answer.status, answer.error()["code"]) == (status, code), (method, path)


async def test_a_pool_without_ready_replicas_answers_503_in_openai_shape(gateway: Gateway) -> None:
    await gateway.publish(replica("two", "127.0.0.1:1", SMALL))
    answer = await gateway.ask({"model": MODEL})
    assert answer.status == 503
    error: dict[str, Any] = answer.error()
    assert (error["type"], error["code"]) == ("server_error", "no_healthy_upstream")
    assert await gateway.stat("envoy_tg_requests", service=CHAT.service, code_class="5xx") == 1.0
