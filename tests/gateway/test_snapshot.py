from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.harness import CHAT, fleet, replica, service
from tests.policies import MODEL

from tidegate.gateway.content import CLUSTER, ENDPOINTS, LISTENER, ROUTES, Body
from tidegate.gateway.envoy import ListenerSettings
from tidegate.gateway.snapshot import Snapshot, build
from tidegate.terms.fleet import Membership, PoolKey, Replica, ReplicaState

LISTENING = ListenerSettings(port=8080)
POLICIES = (service(), service("two", "m-2", ("a", "b")))


def hosts(snapshot: Snapshot, name: str) -> list[str]:
    """Addresses of a cluster's endpoints."""
    groups = snapshot.resources[ENDPOINTS][name]["endpoints"]
    sockets = [h["endpoint"]["address"]["socket_address"] for g in groups for h in g["lb_endpoints"]]
    return [f"{s['address']}:{s['port_value']}" for s in sockets]


def destinations(routes: Body) -> set[str]:
    """Every cluster name anywhere in a route table."""
    found: set[str] = set()

    def walk(value: object) -> None:
        if isinstance(value, dict):
            route = value.get("route")
            if isinstance(route, dict):
                found.update({str(route["cluster"])} if "cluster" in route else set())
                found.update(str(c["name"]) for c in route.get("weighted_clusters", {}).get("clusters", []))
            for child in value.values():
                walk(child)
        elif isinstance(value, list):
            for child in value:
                walk(child)

    walk(routes)
    return found


replicas = st.lists(
    st.builds(
        lambda number, key, state, known: Replica(
            name=f"r{number}",
            pool=key,
            state=state,
            address=f"127.0.0.1:{number}" if known else "",
            ordered_at_s=0.0,
        ),
        st.integers(1, 65535),
        st.sampled_from([CHAT, *(p.key for p in POLICIES[1].pools), PoolKey(service="other", pool="x")]),
        st.sampled_from(list(ReplicaState)),
        st.booleans(),
    ),
    unique_by=lambda r: r.name,
    max_size=12,
)


@given(replicas)
def test_any_membership_gives_a_self_consistent_snapshot(members: list[Replica]) -> None:
    snapshot = build(POLICIES, fleet(*members), listening=LISTENING)
    named = snapshot.resources[CLUSTER]
    assert set(named) == {"chat/main", "two/a", "two/b"} == set(snapshot.resources[ENDPOINTS])
    assert destinations(snapshot.resources[ROUTES]["tidegate"]) <= set(named)
    for name, body in snapshot.resources[ENDPOINTS].items():
        assert body["cluster_name"] == name == named[name]["name"]
        wanted = [r.address for r in members if str(r.pool) == name and r.state is ReplicaState.READY and r.address]
        assert sorted(hosts(snapshot, name)) == sorted(wanted)


@given(replicas, st.randoms(use_true_random=False))
def test_version_does_not_depend_on_the_order_of_replicas(members: list[Replica], random: object) -> None:
    shuffled = list(members)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first = build(POLICIES, Membership(taken_at_s=0.0, replicas=tuple(members)), listening=LISTENING)
    second = build(POLICIES, Membership(taken_at_s=99.0, replicas=tuple(shuffled)), listening=LISTENING)
    assert first == second


def test_version_changes_only_where_content_does() -> None:
    one = build(POLICIES, fleet(replica("a", "127.0.0.1:1")), listening=LISTENING)
    two = build(POLICIES, fleet(replica("a", "127.0.0.1:2")), listening=LISTENING)
    assert one.version != two.version
    changed = {
        (kind, name)
        for kind, named in one.versions.items()
        for name, version in named.items()
        if two.versions[kind][name] != version
    }
    assert changed == {(ENDPOINTS, "chat/main")}


def test_adding_a_service_leaves_the_listener_alone() -> None:
    one = build(POLICIES[:1], fleet(), listening=LISTENING)
    two = build(POLICIES, fleet(), listening=LISTENING)
    assert one.versions[LISTENER] == two.versions[LISTENER]
    assert one.versions[ROUTES] != two.versions[ROUTES]


def test_a_draining_replica_leaves_the_endpoints_at_once() -> None:
    before = build(POLICIES, fleet(replica("a", "127.0.0.1:1"), replica("b", "127.0.0.1:2")), listening=LISTENING)
    draining = replica("a", "127.0.0.1:1", state=ReplicaState.DRAINING)
    after = build(POLICIES, fleet(draining, replica("b", "127.0.0.1:2")), listening=LISTENING)
    assert hosts(before, "chat/main") == ["127.0.0.1:1", "127.0.0.1:2"]
    assert hosts(after, "chat/main") == ["127.0.0.1:2"]


def test_no_policy_at_all_is_a_closed_gateway() -> None:
    snapshot = build((), fleet(replica("a", "127.0.0.1:1")), listening=LISTENING)
    assert snapshot.resources[CLUSTER] == {}
    assert destinations(snapshot.resources[ROUTES]["tidegate"]) == set()


def test_ipv6_addresses_lose_their_brackets() -> None:
    assert hosts(build(POLICIES, fleet(replica("a", "[::1]:80")), listening=LISTENING), "chat/main") == ["::1:80"]


def test_every_model_has_its_route() -> None:
    snapshot = build(POLICIES, fleet(), listening=LISTENING)
    (host,) = snapshot.resources[ROUTES]["tidegate"]["virtual_hosts"]
    assert set(host["matcher"]["matcher_tree"]["exact_match_map"]["map"]) == {MODEL, "m-2"}
