import json

from tests.gateway.harness import fleet, replica, service

from tidegate.gateway.bootstrap import bootstrap, static_bootstrap, thresholds_s
from tidegate.gateway.content import CLUSTER
from tidegate.gateway.envoy import ListenerSettings
from tidegate.gateway.snapshot import build
from tidegate.gateway.telemetry import histogram_bounds
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.slo import Indicator, Slo


def bounds(name: str, *own_s: float) -> list[float]:
    (found,) = [s for s in histogram_bounds(own_s) if s["match"]["prefix"] == f"tg.{name}"]
    listed: list[float] = found["buckets"]
    return listed


def with_slos(*slos_s: float) -> ServicePolicy:
    policy = service()
    slos = tuple(
        Slo(name=f"s{i}", indicator=Indicator.TTFT, objective_ratio=0.9, threshold_s=t, window_s=60.0)
        for i, t in enumerate(slos_s)
    )
    return ServicePolicy(**{f: getattr(policy, f) for f in policy.__dataclass_fields__} | {"slos": slos})


def test_bounds_lie_one_below_each_threshold() -> None:
    assert {99.0, 249.0, 999.0, 299_999.0} <= set(bounds("ttft"))
    assert bounds("ttft") == bounds("duration")
    assert {9.0, 49.0, 79.0} <= set(bounds("tpot"))


def test_thresholds_of_policies_become_bounds() -> None:
    own = thresholds_s((with_slos(0.35, 0.06), with_slos(0.35)))
    assert own == (0.06, 0.35)
    assert 349.0 not in bounds("ttft")
    assert 349.0 in bounds("ttft", *own)
    assert bounds("ttft", *own) == sorted(bounds("ttft", *own))


def test_bootstrap_is_json_with_the_admin_page_on_loopback() -> None:
    boot = json.loads(json.dumps(bootstrap(ads_host="ads", ads_port=1, admin_port=2, node_id="g")))
    assert boot["admin"]["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": 2}
    assert boot["node"]["id"] == "g"
    assert boot["dynamic_resources"]["ads_config"]["api_type"] == "DELTA_GRPC"


def test_static_bootstrap_holds_the_whole_snapshot() -> None:
    snapshot = build(
        (service(), service("two", "m-2")), fleet(replica("a", "127.0.0.1:1")), listening=ListenerSettings()
    )
    static = static_bootstrap(snapshot, admin_port=1, node_id="g")["static_resources"]
    assert {c["name"] for c in static["clusters"]} == set(snapshot.resources[CLUSTER])
    assert all("eds_cluster_config" not in c for c in static["clusters"])
    manager = static["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    assert "rds" not in manager
    assert manager["route_config"]["name"] == "tidegate"
    # The snapshot itself is untouched.
    original = snapshot.resources["type.googleapis.com/envoy.config.listener.v3.Listener"]["tidegate"]
    assert "rds" in original["filter_chains"][0]["filters"][0]["typed_config"]
