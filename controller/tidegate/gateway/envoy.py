"""The listener: what happens to every request before and after its route."""

import functools
import importlib.resources
from dataclasses import dataclass

from tidegate.gateway.content import Body, seconds, typed
from tidegate.gateway.routes import ROUTES_NAME
from tidegate.gateway.telemetry import access_logs, usage_filters

LISTENER_NAME = "tidegate"
# Plain answers are held whole to read their usage, and slow readers hold back their stream at this size.
_BUFFER_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """Where the gateway listens and logs. `access_log_path` may be `/dev/stdout`."""

    host: str = "127.0.0.1"
    port: int = 10000
    access_log_path: str = "/dev/stdout"


def listener(settings: ListenerSettings) -> Body:
    """Return the one listener. It depends on nothing that changes with the fleet, so it is never drained for that."""
    manager = typed(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="gateway",
        codec_type="AUTO",
        rds={
            "route_config_name": ROUTES_NAME,
            "config_source": {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": seconds(15)},
        },
        http_filters=[_scan(), *usage_filters(), _router()],
        access_log=access_logs(settings.access_log_path),
        local_reply_config=_local_replies(),
        early_header_mutation_extensions=[_strip_reserved_headers()],
        use_remote_address=True,
        normalize_path=True,
        merge_slashes=True,
        server_header_transformation="PASS_THROUGH",
        always_set_request_id_in_response=True,
        stream_idle_timeout=seconds(300),  # until a route with its own is chosen: bounds slow bodies
        request_timeout=seconds(120),  # to receive a whole request
        request_headers_timeout=seconds(10),
        common_http_protocol_options={"idle_timeout": seconds(600)},
        http2_protocol_options={"max_concurrent_streams": 1000},
    )
    return {
        "name": LISTENER_NAME,
        "address": {"socket_address": {"address": settings.host, "port_value": settings.port}},
        "per_connection_buffer_limit_bytes": _BUFFER_BYTES,
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }


@functools.cache  # a file of the package: read once
def scan_script() -> str:
    """Return the Lua source of the body scan."""
    return (importlib.resources.files("tidegate.gateway") / "lua" / "scan.lua").read_text(encoding="utf-8")


def _scan() -> Body:
    return {
        "name": "tg_scan",
        "typed_config": typed(
            "envoy.extensions.filters.http.lua.v3.Lua", default_source_code={"inline_string": scan_script()}
        ),
    }


def _router() -> Body:
    return {
        "name": "envoy.filters.http.router",
        "typed_config": typed("envoy.extensions.filters.http.router.v3.Router", suppress_envoy_headers=True),
    }


def _strip_reserved_headers() -> Body:
    # Before any route is looked up: a client may neither choose a route past the scan nor steer retries and timeouts.
    reserved = [{"remove_on_match": {"key_matcher": {"prefix": p}}} for p in ("x-tg-", "x-envoy-")]
    return {
        "name": "envoy.http.early_header_mutation.header_mutation",
        "typed_config": typed(
            "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation", mutations=reserved
        ),
    }


def _local_replies() -> Body:
    too_large = _error("%LOCAL_REPLY_BODY%", "invalid_request_error", "request_too_large")
    refused = _error("%LOCAL_REPLY_BODY%", "invalid_request_error", "%METADATA(ROUTE:tg:error_code)%")
    failed = _error("%LOCAL_REPLY_BODY%", "server_error", "%RESPONSE_CODE_DETAILS%")
    return {
        "mappers": [
            {"filter": _status_at_least(500), "body_format_override": failed},
            {"filter": _status("EQ", 413), "body_format_override": too_large},
            {"filter": _status_at_least(400), "body_format_override": refused},
        ]
    }


def _status(op: str, code: int) -> Body:
    value = {"default_value": code, "runtime_key": f"tg.local_reply.{op.lower()}_{code}"}
    return {"status_code_filter": {"comparison": {"op": op, "value": value}}}


def _status_at_least(code: int) -> Body:
    return _status("GE", code)


def _error(message: str, kind: str, code: str) -> Body:
    return {
        "json_format": {"error": {"message": message, "type": kind, "code": code}},
        "content_type": "application/json",
    }
