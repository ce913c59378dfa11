"""What an Envoy must be started with to be programmed by this controller."""

from collections.abc import Sequence

from tidegate.gateway.content import CLUSTER, ENDPOINTS, LISTENER, ROUTES, Body, seconds, typed
from tidegate.gateway.snapshot import Snapshot
from tidegate.gateway.telemetry import histogram_bounds
from tidegate.terms.policy import ServicePolicy

ADS_CLUSTER = "tidegate_ads"
_MAX_CONNECTIONS = 50_000


def bootstrap(
    *, ads_host: str, ads_port: int, admin_port: int, node_id: str, thresholds_s: Sequence[float] = ()
) -> Body:
    """Return the bootstrap of one gateway, usable as JSON with `envoy -c`.

    Args:
        ads_host: Where the controller serves delta ADS.
        ads_port: Its port.
        admin_port: Envoy's admin interface and metrics, on loopback only.
        node_id: Names this gateway in the controller's status; unique per Envoy.
        thresholds_s: Latency thresholds of the policies, added to the histogram bounds. Bounds are fixed when Envoy
            starts: a threshold added later is read at the nearest bound until the gateway is restarted.
    """
    return {
        **_process(admin_port=admin_port, node_id=node_id, thresholds_s=thresholds_s),
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": True,
                "grpc_services": [
                    {
                        "envoy_grpc": {
                            "cluster_name": ADS_CLUSTER,
                            "retry_policy": {
                                "retry_back_off": {"base_interval": seconds(0.2), "max_interval": seconds(2)}
                            },
                        }
                    }
                ],
            },
            "cds_config": {"ads": {}, "resource_api_version": "V3"},
            "lds_config": {"ads": {}, "resource_api_version": "V3"},
        },
        "static_resources": {"clusters": [_ads_cluster(ads_host, ads_port)]},
    }


def thresholds_s(policies: Sequence[ServicePolicy]) -> tuple[float, ...]:
    """Return the latency thresholds that the objectives name, ascending, for `bootstrap`."""
    return tuple(sorted({s.threshold_s for p in policies for s in p.slos if s.threshold_s is not None}))


def static_bootstrap(snapshot: Snapshot, *, admin_port: int, node_id: str, thresholds_s: Sequence[float] = ()) -> Body:
    """Return a bootstrap that holds a whole snapshot and needs no controller: for `envoy --mode validate`."""
    endpoints = snapshot.resources[ENDPOINTS]
    static_clusters = []
    for name, body in sorted(snapshot.resources[CLUSTER].items()):
        inline = {k: v for k, v in body.items() if k != "eds_cluster_config"}
        static_clusters.append({**inline, "type": "STATIC", "load_assignment": endpoints[name]})
    listeners = [_with_inline_routes(b, snapshot) for _, b in sorted(snapshot.resources[LISTENER].items())]
    return {
        **_process(admin_port=admin_port, node_id=node_id, thresholds_s=thresholds_s),
        "static_resources": {"listeners": listeners, "clusters": static_clusters},
    }


def _with_inline_routes(listener: Body, snapshot: Snapshot) -> Body:
    chain = listener["filter_chains"][0]
    network_filter = chain["filters"][0]
    manager = network_filter["typed_config"]
    routes = snapshot.resources[ROUTES][manager["rds"]["route_config_name"]]
    inline = {k: v for k, v in manager.items() if k != "rds"} | {"route_config": routes}
    return {**listener, "filter_chains": [{**chain, "filters": [{**network_filter, "typed_config": inline}]}]}


def _process(*, admin_port: int, node_id: str, thresholds_s: Sequence[float]) -> Body:
    return {
        "node": {"id": node_id, "cluster": "tidegate-gateway"},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": admin_port}}},
        "stats_flush_interval": seconds(1),
        "stats_config": {
            "stats_tags": [
                {"tag_name": "service", "regex": r"^cluster\.(([^./]+)/[^./]+\.)"},
                {"tag_name": "pool", "regex": r"^cluster\.([^./]+/([^./]+)\.)"},
            ],
            "histogram_bucket_settings": histogram_bounds(thresholds_s),
        },
        "overload_manager": {
            "resource_monitors": [
                {
                    "name": "envoy.resource_monitors.global_downstream_max_connections",
                    "typed_config": typed(
                        "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
                        max_active_downstream_connections=_MAX_CONNECTIONS,
                    ),
                }
            ]
        },
    }


def _ads_cluster(host: str, port: int) -> Body:
    address = {"socket_address": {"address": host, "port_value": port}}
    return {
        "name": ADS_CLUSTER,
        "type": "STRICT_DNS",
        "connect_timeout": seconds(1),
        "load_assignment": {
            "cluster_name": ADS_CLUSTER,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": typed(
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                explicit_http_config={
                    # A controller that hangs without closing is noticed and redialled.
                    "http2_protocol_options": {"connection_keepalive": {"interval": seconds(5), "timeout": seconds(5)}}
                },
            )
        },
    }
