"""What Envoy itself measures and logs about each request; never prompt text."""

import math
from collections.abc import Sequence

from tidegate.gateway.content import Body, typed

STAT_PREFIX = "tg"
# Thresholds that objectives commonly name.
_COMMON_LATENCIES_MS = (
    50, 100, 200, 250, 300, 400, 500, 750, 1_000, 1_500, 2_000, 3_000, 5_000, 7_500, 10_000, 15_000, 20_000, 30_000,
    60_000, 120_000, 300_000,
)  # fmt: skip
_COMMON_TPOTS_MS = (2, 5, 8, 10, 15, 20, 25, 30, 40, 50, 60, 75, 80, 100, 120, 150, 200, 250, 300, 400, 500, 1_000)

_TTFT_MS = "%COMMON_DURATION(DS_RX_BEG:US_RX_BODY_BEG:ms)%"
# Mean time per output token after the first, of one request: (duration - TTFT) / (output tokens - 1), in ms.
_TPOT_MS = (
    "%CEL(int((double(request.duration.getSeconds() * 1000 + request.duration.getMilliseconds())"
    " - metadata.filter_metadata['tg'].ttft_us / 1000.0) / (metadata.filter_metadata['tg'].output_tokens - 1.0)))%"
)
_OUTPUT_TOKENS = "%DYNAMIC_METADATA(tg:output_tokens)%"
_PROMPT_TOKENS = "%DYNAMIC_METADATA(tg:prompt_tokens)%"
_SERVICE = "%METADATA(ROUTE:tg:service)%"
_MODEL = "%METADATA(ROUTE:tg:model)%"
_POOL = "%METADATA(CLUSTER:tg:pool)%"
# Flags of an answer that ended without its end: upstream connection lost (UC), reset (UR), local reset (LR), broken
# protocol (UPE), upstream timeout (UT), silence (SI), route time limit (DT).
_CUT_FLAGS = ("UC", "UR", "LR", "UPE", "UT", "SI", "DT")


def histogram_bounds(thresholds_s: Sequence[float]) -> list[Body]:
    """Return the bucket bounds of our histograms, in ms: one below each common threshold and each of `thresholds_s`.

    Values are whole milliseconds, rounded down, and Envoy counts with two significant digits, giving a bucket all of
    the bin its bound lies in: `le="1000"` would hold everything below 1100 ms, while `le="999"` holds exactly what took
    less than 1000 ms. So a threshold of more than two significant digits is read at the next bin: 1.25 s at 1.3 s.
    """
    own = {math.ceil(round(t * 1000, 6)) for t in thresholds_s}  # 1.1 s is 1100.0000000000002 ms in floats
    return [
        _buckets("ttft", {*_COMMON_LATENCIES_MS, *own}),
        _buckets("duration", {*_COMMON_LATENCIES_MS, *own}),
        _buckets("tpot", {*_COMMON_TPOTS_MS, *own}),
    ]


def _buckets(stat: str, thresholds_ms: set[int]) -> Body:
    bounds = [float(t - 1) for t in sorted(thresholds_ms) if t > 1]
    return {"match": {"prefix": f"{STAT_PREFIX}.{stat}"}, "buckets": bounds}


def usage_filters() -> list[Body]:
    """Return the HTTP filters that note the `usage` of an answer, plain or streamed, as metadata."""
    rules = [
        _usage_rule(("usage", "completion_tokens"), "output_tokens"),
        _usage_rule(("usage", "prompt_tokens"), "prompt_tokens"),
        _usage_rule(("usage", "prompt_tokens_details", "cached_tokens"), "cached_tokens"),
    ]
    plain = typed(
        "envoy.extensions.filters.http.json_to_metadata.v3.JsonToMetadata",
        response_rules={
            "rules": rules,
            "allow_content_types": ["application/json", "application/json; charset=utf-8"],
        },
    )
    streamed = typed(
        "envoy.extensions.filters.http.sse_to_metadata.v3.SseToMetadata",
        response_rules={
            "max_event_size": 65_536,
            "content_parser": {
                "name": "envoy.content_parsers.json",
                "typed_config": typed(
                    "envoy.extensions.content_parsers.json.v3.JsonContentParser", rules=[{"rule": r} for r in rules]
                ),
            },
        },
    )
    return [
        {"name": "envoy.filters.http.json_to_metadata", "typed_config": plain},
        {"name": "envoy.filters.http.sse_to_metadata", "typed_config": streamed},
    ]


def _usage_rule(path: tuple[str, ...], key: str) -> Body:
    return {
        "selectors": [{"key": k} for k in path],
        "on_present": {"metadata_namespace": "tg", "key": key, "type": "NUMBER"},
    }


def access_logs(path: str) -> list[Body]:
    """Return the access loggers: one JSON line a request into `path`, and the metrics of `STAT_PREFIX`."""
    return [_json_log(path), *_metric_logs()]


def _json_log(path: str) -> Body:
    fields = {
        "time": "%START_TIME%",
        "request_id": "%REQ(X-REQUEST-ID)%",
        "method": "%REQ(:METHOD)%",
        "path": "%PATH(NQ)%",
        "service": _SERVICE,
        "model": _MODEL,
        "cluster": "%UPSTREAM_CLUSTER%",
        "pool": _POOL,
        "replica": "%UPSTREAM_METADATA(tg:replica)%",
        "upstream": "%UPSTREAM_HOST%",
        "status": "%RESPONSE_CODE%",
        "flags": "%RESPONSE_FLAGS%",
        "details": "%RESPONSE_CODE_DETAILS%",
        "upstream_failure": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
        "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
        "ttft_ms": _TTFT_MS,
        "duration_ms": "%DURATION%",
        "request_bytes": "%BYTES_RECEIVED%",
        "response_bytes": "%BYTES_SENT%",
        "prompt_tokens_estimate": "%DYNAMIC_METADATA(tg:prompt_estimate)%",
        "prompt_tokens": _PROMPT_TOKENS,
        "cached_tokens": "%DYNAMIC_METADATA(tg:cached_tokens)%",
        "output_tokens": _OUTPUT_TOKENS,
    }
    return {
        "name": "envoy.access_loggers.file",
        "typed_config": typed(
            "envoy.extensions.access_loggers.file.v3.FileAccessLog",
            path=path,
            log_format={"json_format": fields, "omit_empty_values": False},
        ),
    }


def _metric_logs() -> list[Body]:
    tags = {"service": _SERVICE, "pool": _POOL, "model": _MODEL}
    code = "%CEL(response.code >= 500 ? '5xx' : response.code >= 400 ? '4xx' : response.code >= 200 ? '2xx' : '0')%"
    requests = _stats(counters=[_stat("requests", {**tags, "code_class": code}, value_fixed=1)])
    cut = _stats(
        counters=[_stat("streams_cut", tags, value_fixed=1)],
        log_filter={
            "and_filter": {
                "filters": [
                    {"response_flag_filter": {"flags": list(_CUT_FLAGS)}},
                    _cel("response.code >= 200 && response.code < 300"),
                ]
            }
        },
    )
    # Without the filter a missing number is an error line in Envoy's log, request by request.
    tokens = [
        _stats(
            counters=[_stat(key, tags, value_format=f"%DYNAMIC_METADATA(tg:{key})%")],
            log_filter=_cel(f"'{key}' in metadata.filter_metadata['tg']"),
        )
        for key in ("output_tokens", "prompt_tokens")
    ]
    # Latencies of whole answers only: a refusal is fast and a cut stream is short, neither is good.
    whole = "response.code >= 200 && response.code < 300 && response.flags == 0"
    duration = _stats(
        histograms=[{**_stat("duration", tags, value_format="%DURATION%"), "unit": "Milliseconds"}],
        log_filter=_cel(f"{whole} && has(upstream.address)"),
    )
    streamed = f"{whole} && 'ttft_us' in metadata.filter_metadata['tg']"
    ttft = _stats(
        histograms=[{**_stat("ttft", tags, value_format=_TTFT_MS), "unit": "Milliseconds"}],
        log_filter=_cel(streamed),
    )
    tpot = _stats(
        histograms=[{**_stat("tpot", tags, value_format=_TPOT_MS), "unit": "Milliseconds"}],
        log_filter=_cel(f"{streamed} && metadata.filter_metadata['tg'].output_tokens > 1.0"),
    )
    return [requests, cut, *tokens, duration, ttft, tpot]


def _stat(name: str, tags: dict[str, str], **value: object) -> Body:
    return {"stat": {"name": name, "tags": [{"name": k, "value_format": v} for k, v in tags.items()]}, **value}


def _cel(expression: str) -> Body:
    return {
        "extension_filter": {
            "name": "envoy.access_loggers.extension_filters.cel",
            "typed_config": typed(
                "envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter", expression=expression
            ),
        }
    }


def _stats(*, log_filter: Body | None = None, **stats: list[Body]) -> Body:
    body: Body = {
        "name": "envoy.access_loggers.stats",
        "typed_config": typed(
            "envoy.extensions.access_loggers.stats.v3.Config", stats_scope={"prefix": STAT_PREFIX}, **stats
        ),
    }
    return body if log_filter is None else {**body, "filter": log_filter}
