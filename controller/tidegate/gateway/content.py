"""JSON bodies of Envoy messages: their type, their type URLs and their content versions."""

import hashlib
import json
from typing import Any

# A proto3-JSON object. The shapes are Envoy's and are checked against its own descriptors when they are encoded.
Body = dict[str, Any]

_PREFIX = "type.googleapis.com/"
LISTENER = _PREFIX + "envoy.config.listener.v3.Listener"
ROUTES = _PREFIX + "envoy.config.route.v3.RouteConfiguration"
CLUSTER = _PREFIX + "envoy.config.cluster.v3.Cluster"
ENDPOINTS = _PREFIX + "envoy.config.endpoint.v3.ClusterLoadAssignment"


def typed(message: str, **fields: Any) -> Body:  # noqa: ANN401 - proto3 JSON
    """Return an `Any` body of the named Envoy message."""
    return {"@type": _PREFIX + message, **fields}


def version_of(body: object) -> str:
    """Return the content version of a JSON value: equal content, equal version; 16 hex digits of SHA-256."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def seconds(value_s: float) -> str:
    """Return a duration as proto3 JSON spells it, e.g. `0.250s`."""
    return f"{value_s:.3f}s"
