"""Holds the head of an answer back until its first body byte, so that an engine's early head does not end retrying.

vLLM sends the head of a streamed answer when it accepts the request, long before the first token. Once Envoy has passed
a head on, the request counts as answered and cannot be retried when the engine dies. Held inside the cluster's own
filter chain, the head is not seen by the router until the first token is there: a request without a token is retried.

No filter of Envoy's own waits for the first body chunk only, so this is a WebAssembly module of one instruction, made
here byte by byte:

    (module
      (func (export "proxy_abi_version_0_2_1"))
      (func (export "malloc") (param i32) (result i32) i32.const 0)
      (func (export "proxy_on_response_headers") (param $context i32) (param $headers i32) (param $end_of_stream i32)
        (result i32)
        (i32.eqz (local.get $end_of_stream)))            ;; 1: stop until the body; 0: go on, there is no body
      (memory (export "memory") 1))

It has no body callback, so chunks do not enter the VM.
"""

import base64

from tidegate.gateway.content import Body, typed

_I32 = 0x7F
_FUNCTION, _MEMORY = 0, 2
_END = 0x0B


def hold_filter() -> Body:
    """Return the upstream HTTP filter."""
    config = {
        "name": "tg_hold",
        "root_id": "tg_hold",
        "vm_config": {
            "vm_id": "tg_hold",
            "runtime": "envoy.wasm.runtime.v8",
            "code": {"local": {"inline_bytes": base64.b64encode(module()).decode()}},
        },
        # Without this Envoy would stop the body too, for ever.
        "allow_on_headers_stop_iteration": True,
        # If the VM fails, answers pass as if it were not there.
        "failure_policy": "FAIL_OPEN",
    }
    return {
        "name": "envoy.filters.http.wasm",
        "typed_config": typed("envoy.extensions.filters.http.wasm.v3.Wasm", config=config),
    }


def module() -> bytes:
    """Return the WebAssembly module."""
    types = _vector([_signature(0, 0), _signature(1, 1), _signature(3, 1)])
    functions = _vector([b"\x00", b"\x01", b"\x02"])  # the type of each function
    memory = _vector([b"\x00\x01"])  # at least one page, no most
    exports = _vector(
        [
            _export("proxy_abi_version_0_2_1", _FUNCTION, 0),
            _export("malloc", _FUNCTION, 1),
            _export("proxy_on_response_headers", _FUNCTION, 2),
            _export("memory", _MEMORY, 0),
        ]
    )
    code = _vector(
        [
            _body(b""),
            _body(b"\x41\x00"),  # i32.const 0
            _body(b"\x20\x02\x45"),  # local.get 2, i32.eqz
        ]
    )
    sections = [(1, types), (3, functions), (5, memory), (7, exports), (10, code)]
    return b"\x00asm\x01\x00\x00\x00" + b"".join(bytes([number]) + _sized(content) for number, content in sections)


def _signature(parameters: int, results: int) -> bytes:
    return b"\x60" + _sized(bytes([_I32] * parameters)) + _sized(bytes([_I32] * results))


def _export(name: str, kind: int, index: int) -> bytes:
    return _sized(name.encode()) + bytes([kind, index])


def _body(instructions: bytes) -> bytes:
    return _sized(b"\x00" + instructions + bytes([_END]))  # no local variables


def _vector(items: list[bytes]) -> bytes:
    return bytes([len(items)]) + b"".join(items)


def _sized(content: bytes) -> bytes:
    # One length byte is enough for all of it; LEB128 continues at 128.
    return bytes([len(content)]) + content
