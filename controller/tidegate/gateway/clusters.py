"""One cluster per pool and its endpoints."""

from collections.abc import Sequence

from tidegate.gateway.content import Body, seconds, typed
from tidegate.gateway.hold import hold_filter
from tidegate.terms.fleet import PoolKey, Replica

# vLLM and the engine twin (uvicorn) close a kept-alive connection after 5 s without a request. Giving it up first
# avoids sending a request into a closing connection.
_IDLE_CONNECTION_S = 4.0
_CONNECT_TIMEOUT_S = 2.0
# "No limit" for Envoy: its own defaults (1024 connections, 1024 pending, 3 retries) would refuse traffic long before an
# engine does. Bounds on load are the controller's business, by replicas and, later, by bounded queues.
_UNLIMITED = 1_000_000
# Retries in flight may equal the requests in flight: half the fleet may be killed, and all it had not answered is tried
# again.
_RETRY_BUDGET_PERCENT = 100.0
_MIN_RETRIES = 64


def cluster(pool: PoolKey) -> Body:
    """Return the pool's cluster; its endpoints come by EDS."""
    return {
        "name": str(pool),
        "type": "EDS",
        "eds_cluster_config": {
            # Without endpoints after this long the cluster counts as warm and empty, and answers 503.
            "eds_config": {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": seconds(5)},
        },
        "connect_timeout": seconds(_CONNECT_TIMEOUT_S),
        "load_balancing_policy": {"policies": [{"typed_extension_config": _least_request()}]},
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        # A removed endpoint gets no new request, and the answers it is still giving are left alone.
        "close_connections_on_host_health_failure": False,
        "ignore_health_on_host_removal": True,
        "circuit_breakers": {"thresholds": [_thresholds("DEFAULT"), _thresholds("HIGH")]},
        "outlier_detection": _outlier_detection(),
        "track_cluster_stats": {"per_endpoint_stats": True},
        "upstream_connection_options": {"tcp_keepalive": {"keepalive_time": 30, "keepalive_interval": 10}},
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": typed(
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                common_http_protocol_options={"idle_timeout": seconds(_IDLE_CONNECTION_S)},
                explicit_http_config={"http_protocol_options": {}},
                http_filters=[hold_filter(), _upstream_codec()],
            )
        },
        "metadata": {"filter_metadata": {"tg": {"service": pool.service, "pool": pool.pool}}},
    }


def endpoints(pool: PoolKey, replicas: Sequence[Replica]) -> Body:
    """Return the pool's endpoints: exactly `replicas`, which must all have an address."""
    hosts = [_host(r) for r in sorted(replicas, key=lambda r: r.name)]
    return {
        "cluster_name": str(pool),
        "endpoints": [{"lb_endpoints": hosts}] if hosts else [],
        # Never spill to a lower priority because some hosts are ejected.
        "policy": {"overprovisioning_factor": 100_000},
    }


def _host(replica: Replica) -> Body:
    host, _, port = replica.address.rpartition(":")
    return {
        "endpoint": {
            "address": {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}},
        },
        "metadata": {"filter_metadata": {"tg": {"replica": replica.name}}},
    }


def _least_request() -> Body:
    # Answers differ in length by two orders of magnitude, so equal turns (round robin) let one engine fill up while
    # another idles; the number of running requests is the best load signal a gateway has by itself. With a few hundred
    # replicas at most, looking at all of them costs microseconds; two random choices leave them uneven by one to three.
    return {
        "name": "envoy.load_balancing_policies.least_request",
        "typed_config": typed(
            "envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest", selection_method="FULL_SCAN"
        ),
    }


def _upstream_codec() -> Body:
    return {
        "name": "envoy.filters.http.upstream_codec",
        "typed_config": typed("envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec"),
    }


def _thresholds(priority: str) -> Body:
    return {
        "priority": priority,
        "max_connections": _UNLIMITED,
        "max_pending_requests": _UNLIMITED,
        "max_requests": _UNLIMITED,
        "retry_budget": {
            "budget_percent": {"value": _RETRY_BUDGET_PERCENT},
            "min_retry_concurrency": _MIN_RETRIES,
        },
    }


def _outlier_detection() -> Body:
    # A dead replica stays an endpoint until the controller sees it gone (a second or two). Meanwhile two failed
    # connections take it out here. Engine errors other than 502-504 are answers, not signs of sickness.
    return {
        "split_external_local_origin_errors": True,
        "consecutive_local_origin_failure": 2,
        "enforcing_consecutive_local_origin_failure": 100,
        "consecutive_gateway_failure": 5,
        "enforcing_consecutive_gateway_failure": 100,
        "enforcing_consecutive_5xx": 0,
        "enforcing_success_rate": 0,
        "enforcing_local_origin_success_rate": 0,
        "enforcing_failure_percentage": 0,
        "interval": seconds(1),
        "base_ejection_time": seconds(5),
        "max_ejection_time": seconds(30),
        # At most half, so that a fault all replicas share does not empty the pool.
        "max_ejection_percent": 50,
        "always_eject_one_host": True,
    }
