"""From the model a request names to the pools that serve it; everything else gets an OpenAI-shaped refusal."""

import json
import re
import urllib.parse
from collections.abc import Mapping, Sequence

from tidegate.gateway.content import Body, seconds, typed
from tidegate.terms.errors import BadInputError
from tidegate.terms.fleet import PoolKey
from tidegate.terms.policy import GatewayPolicy, ServicePolicy

MODEL_HEADER = "x-tg-model"
BODY_BYTES_HEADER = "x-tg-body-bytes"
ROUTES_NAME = "tidegate"
COMPLETION_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")

_MODEL_PATTERN = re.compile(r"[!-~]{1,256}")
_MANY_BYTES = 1 << 62
_MAX_LIST_BYTES = 1 << 20  # the answer to GET /v1/models; Envoy allows 4096 unless told
_JSON_BODY = [
    {"header": {"key": "content-type", "value": "application/json"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
]


def route_configuration(policies: Sequence[ServicePolicy], weights: Mapping[PoolKey, int]) -> Body:
    """Return the one route table.

    A model is looked up in a map, so a thousand services cost no more than ten. Whatever has no entry, or no model at
    all, ends at a closed route.

    Args:
        policies: Services; their models must differ.
        weights: Share of each pool within its service, >= 0; a pool that is not named has weight 1.

    Raises:
        BadInputError: Two services serve one model, or a model's name cannot be a header value.
    """
    _check_models(policies)
    largest_bytes = max((p.gateway.max_body_bytes for p in policies), default=1)
    closed = _route_list(_closed_routes(policies))
    host: Body = {
        "name": "all",
        "domains": ["*"],
        # The body is read before its route is known, so the largest limit holds first and each service's own second.
        "request_body_buffer_limit": largest_bytes,
        "matcher": {"on_no_match": {"action": closed}},
    }
    if policies:
        by_model = {
            p.model: {"action": _route_list(_service_routes(p, weights, largest_bytes))}
            for p in sorted(policies, key=lambda p: p.model)
        }
        host["matcher"]["matcher_tree"] = {
            "input": {
                "name": "model",
                "typed_config": typed("envoy.type.matcher.v3.HttpRequestHeaderMatchInput", header_name=MODEL_HEADER),
            },
            "exact_match_map": {"map": by_model},
        }
    return {
        "name": ROUTES_NAME,
        "virtual_hosts": [host],
        "max_direct_response_body_size_bytes": _MAX_LIST_BYTES,
    }


def _check_models(policies: Sequence[ServicePolicy]) -> None:
    seen: dict[str, str] = {}
    for policy in policies:
        if not _MODEL_PATTERN.fullmatch(policy.model):
            msg = f"{policy.name}: spec.model: got {policy.model!r}, must be 1 to 256 printable ASCII characters"
            raise BadInputError(msg)
        if policy.model in seen:
            msg = f"{policy.name}: spec.model: {policy.model!r} is already served by {seen[policy.model]}"
            raise BadInputError(msg)
        seen[policy.model] = policy.name


def _service_routes(policy: ServicePolicy, weights: Mapping[PoolKey, int], largest_bytes: int) -> list[Body]:
    labels = {"service": policy.name, "model": policy.model}
    routes = []
    if policy.gateway.max_body_bytes < largest_bytes:
        limit = policy.gateway.max_body_bytes
        too_large = _refusal(413, f"the body is larger than {limit} bytes", code="request_too_large", labels=labels)
        too_large["match"]["headers"] = [
            {"name": BODY_BYTES_HEADER, "range_match": {"start": limit + 1, "end": _MANY_BYTES}}
        ]
        routes.append(too_large)
    routes.append(
        {
            "name": policy.name,
            "match": {"prefix": "/v1/"},
            "metadata": {"filter_metadata": {"tg": labels}},
            "route": {
                **_destination(policy, weights),
                # Streams run for minutes: what is bounded is silence, not length.
                "timeout": seconds(0),
                "idle_timeout": seconds(policy.gateway.idle_timeout_s),
                "retry_policy": retry_policy(policy.gateway),
            },
            "request_headers_to_remove": [MODEL_HEADER, BODY_BYTES_HEADER],
            "request_body_buffer_limit": policy.gateway.max_body_bytes,
        }
    )
    return routes


def _destination(policy: ServicePolicy, weights: Mapping[PoolKey, int]) -> Body:
    keys = [p.key for p in policy.pools]
    if len(keys) == 1:
        return {"cluster": str(keys[0])}
    shares = [max(0, weights.get(k, 1)) for k in keys]
    if not any(shares):
        shares = [1] * len(keys)
    clusters = [{"name": str(k), "weight": w} for k, w in zip(keys, shares, strict=True)]
    return {"weighted_clusters": {"clusters": clusters}}


def retry_policy(policy: GatewayPolicy) -> Body:
    """Return how a request nobody has begun to answer is tried again.

    `reset` includes requests an engine had already read: a completion has no side effect, and its client has seen
    nothing. Once the first response byte is on its way Envoy never retries. 503 is what a draining engine answers.
    """
    if policy.retries == 0:
        return {"num_retries": 0}
    return {
        "retry_on": "connect-failure,refused-stream,reset-before-request,reset,retriable-status-codes",
        "retriable_status_codes": [503],
        "num_retries": policy.retries,
        "retry_back_off": {"base_interval": seconds(0.025), "max_interval": seconds(0.5)},
        "retry_host_predicate": [
            {
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": typed(
                    "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
                ),
            }
        ],
        # Full-scan least-request offers an idle dead host again and again; look often enough to get past it.
        "host_selection_retry_max_attempts": 10,
    }


def _closed_routes(policies: Sequence[ServicePolicy]) -> list[Body]:
    get = [{"name": ":method", "string_match": {"exact": "GET"}}]
    models = [_model_entry(p) for p in sorted(policies, key=lambda p: p.model)]
    routes = [_answer("/v1/models", {"object": "list", "data": models}, get)]
    for entry in models:
        name = str(entry["id"])
        paths = dict.fromkeys((f"/v1/models/{name}", f"/v1/models/{urllib.parse.quote(name, safe='')}"))
        routes += [_answer(path, entry, get) for path in paths]
    unknown = _refusal(404, "this model does not exist; GET /v1/models lists those that do", code="model_not_found")
    unknown["match"]["headers"] = [{"name": MODEL_HEADER, "present_match": True}]
    routes.append(unknown)
    for path in COMPLETION_PATHS:
        wrong_method = _refusal(405, f"{path} takes POST only", code="method_not_allowed")
        wrong_method["match"] = {
            "path": path,
            "headers": [{"name": ":method", "string_match": {"exact": "POST"}, "invert_match": True}],
        }
        closed = _refusal(
            400, "the body could not be read: it must be a JSON object with a 'model'", code="invalid_request"
        )
        closed["match"] = {"path": path}
        routes += [wrong_method, closed]
    routes.append(_refusal(404, "unknown path; see GET /v1/models and POST /v1/chat/completions", code="unknown_path"))
    return routes


def _model_entry(policy: ServicePolicy) -> Body:
    return {"id": policy.model, "object": "model", "created": 0, "owned_by": policy.name}


def _answer(path: str, body: object, headers: list[Body]) -> Body:
    return {
        "match": {"path": path, "headers": headers},
        "direct_response": {"status": 200, "body": {"inline_string": json.dumps(body, sort_keys=True)}},
        "response_headers_to_add": _JSON_BODY,
        "metadata": {"filter_metadata": {"tg": {"service": "none", "model": "none"}}},
    }


def _refusal(status: int, text: str, *, code: str, labels: Mapping[str, str] | None = None) -> Body:
    tags = {"service": "none", "model": "none", **(labels or {}), "error_code": code}
    return {
        "match": {"prefix": "/"},
        "direct_response": {"status": status, "body": {"inline_string": text}},
        "metadata": {"filter_metadata": {"tg": tags}},
    }


def _route_list(routes: list[Body]) -> Body:
    return {"name": "route", "typed_config": typed("envoy.config.route.v3.RouteList", routes=routes)}
