from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from tidegate.actuate.xds_session import Push, Request, Session, plain_reason
from tidegate.gateway.content import CLUSTER, ENDPOINTS, LISTENER, ROUTES
from tidegate.gateway.snapshot import Snapshot

KINDS = (CLUSTER, ENDPOINTS, LISTENER, ROUTES)


def snapshot(version: str, clusters: Mapping[str, str], routes: str = "1") -> Snapshot:
    versions = {CLUSTER: clusters, ENDPOINTS: clusters, LISTENER: {"l": "1"}, ROUTES: {"r": routes}}
    return Snapshot(version=version, resources={}, versions=versions)


class FakeEnvoy:
    """Speaks the client's side as Envoy does: wildcard CDS and LDS, endpoints and routes by name."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.has: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
        self.log: list[Push] = []
        for kind in (CLUSTER, LISTENER):
            session.handle(Request(type_url=kind))

    def take(self, push: Push, error: str | None = None) -> None:
        self.log.append(push)
        if error is None:
            self.has[push.type_url].update(push.versions)
            for name in push.removed:
                self.has[push.type_url].pop(name, None)
        self.session.handle(Request(type_url=push.type_url, nonce=push.nonce, error=error))
        if error is None and push.type_url == CLUSTER:
            self.session.handle(Request(type_url=ENDPOINTS, subscribe=tuple(push.versions), unsubscribe=push.removed))
            for name in push.removed:
                self.has[ENDPOINTS].pop(name, None)
        if error is None and push.type_url == LISTENER:
            self.session.handle(Request(type_url=ROUTES, subscribe=("r",)))

    def follow(self, wanted: Snapshot, *, rounds: int = 50) -> None:
        for _ in range(rounds):
            pushes = self.session.advance(wanted)
            if not pushes:
                return
            for push in pushes:
                self.take(push)
        raise AssertionError(self.session.waiting_for())

    def order(self) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        return [(p.type_url.rpartition(".")[2], tuple(sorted(p.versions)), p.removed) for p in self.log]


def test_a_new_gateway_gets_clusters_and_endpoints_before_listener_and_routes() -> None:
    envoy = FakeEnvoy(Session("g"))
    envoy.follow(snapshot("v1", {"a": "1", "b": "1"}))
    assert envoy.order() == [
        ("Cluster", ("a", "b"), ()),
        ("ClusterLoadAssignment", ("a", "b"), ()),
        ("Listener", ("l",), ()),
        ("RouteConfiguration", ("r",), ()),
    ]


def test_nothing_is_sent_when_nothing_changed() -> None:
    envoy = FakeEnvoy(Session("g"))
    first = snapshot("v1", {"a": "1"})
    envoy.follow(first)
    assert envoy.session.settled(first)
    assert envoy.session.advance(snapshot("other name, same content", {"a": "1"})) == []


def test_an_added_service_has_its_cluster_before_its_route() -> None:
    envoy = FakeEnvoy(Session("g"))
    envoy.follow(snapshot("v1", {"a": "1"}))
    envoy.log.clear()
    envoy.follow(snapshot("v2", {"a": "1", "b": "1"}, routes="2"))
    assert envoy.order() == [
        ("Cluster", ("b",), ()),
        ("ClusterLoadAssignment", ("b",), ()),
        ("RouteConfiguration", ("r",), ()),
    ]


def test_a_removed_service_loses_its_route_before_its_cluster() -> None:
    envoy = FakeEnvoy(Session("g"))
    envoy.follow(snapshot("v1", {"a": "1", "b": "1"}))
    envoy.log.clear()
    after = snapshot("v2", {"a": "1"}, routes="2")
    envoy.follow(after)
    assert envoy.order() == [("RouteConfiguration", ("r",), ()), ("Cluster", (), ("b",))]
    assert envoy.session.settled(after)


def test_a_changed_cluster_gets_its_endpoints_again() -> None:
    envoy = FakeEnvoy(Session("g"))
    envoy.follow(snapshot("v1", {"a": "1"}))
    envoy.log.clear()
    versions = {CLUSTER: {"a": "2"}, ENDPOINTS: {"a": "1"}, LISTENER: {"l": "1"}, ROUTES: {"r": "1"}}
    envoy.follow(Snapshot(version="v2", resources={}, versions=versions))
    assert [kind for kind, _, _ in envoy.order()] == ["Cluster", "ClusterLoadAssignment"]


def test_one_push_of_a_type_is_in_flight_at_a_time() -> None:
    session = Session("g")
    session.handle(Request(type_url=CLUSTER))
    (push,) = session.advance(snapshot("v1", {"a": "1"}))
    assert session.advance(snapshot("v2", {"a": "2"})) == []
    session.handle(Request(type_url=CLUSTER, nonce="stale"))
    assert session.advance(snapshot("v2", {"a": "2"})) == []
    session.handle(Request(type_url=CLUSTER, nonce=push.nonce))
    (newer,) = session.advance(snapshot("v2", {"a": "2"}))
    assert newer.versions == {"a": "2"}


def test_a_refused_resource_is_not_sent_again_until_it_changes() -> None:
    envoy = FakeEnvoy(Session("g"))
    envoy.follow(snapshot("v1", {"a": "1"}))
    bad = snapshot("v2", {"a": "2"}, routes="2")
    for push in envoy.session.advance(bad):
        envoy.take(push, error="no" if push.type_url == CLUSTER else None)
    (refusal,) = envoy.session.refusals()
    assert (refusal.name, refusal.version, refusal.kept_version, refusal.reason) == ("a", "2", "1", "no")
    assert envoy.session.advance(bad) == []  # not again, and routes wait for a whole snapshot
    envoy.follow(snapshot("v3", {"a": "3"}, routes="2"))
    assert envoy.session.refusals() == ()
    assert envoy.has[ROUTES] == {"r": "2"}


def test_going_back_to_the_good_version_clears_the_refusal() -> None:
    envoy = FakeEnvoy(Session("g"))
    good = snapshot("v1", {"a": "1"})
    envoy.follow(good)
    versions = {**good.versions, ROUTES: {"r": "2"}}
    (push,) = envoy.session.advance(Snapshot(version="v2", resources={}, versions=versions))
    envoy.take(push, error="no")
    envoy.follow(good)
    assert envoy.session.refusals() == ()
    assert envoy.session.settled(good)


def test_a_refused_batch_is_sent_one_by_one_to_name_the_culprit() -> None:
    envoy = FakeEnvoy(Session("g"))
    wanted = snapshot("v1", {"a": "1", "bad": "1", "c": "1"})
    (push,) = envoy.session.advance(wanted)
    envoy.take(push, error="one of them")
    for _ in range(20):
        pushes = envoy.session.advance(wanted)
        for push in pushes:
            if push.type_url == CLUSTER:
                assert len(push.versions) == 1
            envoy.take(push, error="this one" if "bad" in push.versions else None)
    assert [(r.name, r.reason) for r in envoy.session.refusals()] == [("bad", "this one")]
    assert set(envoy.session.has_versions(CLUSTER)) == {"a", "c"}


def test_a_returning_gateway_is_sent_only_what_changed_while_it_was_away() -> None:
    session = Session("g")
    session.handle(Request(type_url=CLUSTER, initial_versions={"a": "1", "gone": "1"}))
    session.handle(Request(type_url=ENDPOINTS, subscribe=("a", "gone"), initial_versions={"a": "0", "gone": "1"}))
    session.handle(Request(type_url=LISTENER, initial_versions={"l": "1"}))
    session.handle(Request(type_url=ROUTES, subscribe=("r",), initial_versions={"r": "1"}))
    wanted = snapshot("v1", {"a": "1"})
    (endpoints,) = session.advance(wanted)
    assert (endpoints.type_url, endpoints.versions) == (ENDPOINTS, {"a": "1"})
    session.handle(Request(type_url=ENDPOINTS, nonce=endpoints.nonce))
    (removal,) = session.advance(wanted)
    assert (removal.type_url, removal.versions, removal.removed) == (CLUSTER, {}, ("gone",))


def test_asking_for_what_does_not_exist_is_answered() -> None:
    session = Session("g")
    session.handle(Request(type_url=ENDPOINTS, subscribe=("nope",)))
    (push,) = session.advance(snapshot("v1", {}))
    assert (push.versions, push.removed) == ({}, ("nope",))
    session.handle(Request(type_url=ENDPOINTS, nonce=push.nonce))
    assert session.advance(snapshot("v1", {})) == []


def test_a_resource_asked_for_again_is_sent_again() -> None:
    envoy = FakeEnvoy(Session("g"))
    wanted = snapshot("v1", {"a": "1"})
    envoy.follow(wanted)
    envoy.session.handle(Request(type_url=ENDPOINTS, subscribe=("a",)))
    (push,) = envoy.session.advance(wanted)
    assert (push.type_url, push.versions) == (ENDPOINTS, {"a": "1"})


def test_types_we_do_not_serve_are_ignored() -> None:
    session = Session("g")
    session.handle(Request(type_url="type.googleapis.com/envoy.service.runtime.v3.Runtime", subscribe=("x",)))
    assert session.advance(snapshot("v1", {"a": "1"})) == []


def test_the_reason_leaves_out_the_copy_of_the_resource() -> None:
    text = 'goo.gle/debugproto\nname: "x"\nendpoints {\n  a: 1\n}\n: Proto constraint validation failed (x)'
    assert plain_reason(text) == "Proto constraint validation failed (x)"
    assert plain_reason("Error adding listener") == "Error adding listener"
    assert len(plain_reason("x" * 10_000)) == 500


names = st.dictionaries(st.sampled_from("abcde"), st.sampled_from("123"), max_size=5)


@given(st.lists(st.tuples(names, st.sampled_from("123")), min_size=1, max_size=6))
def test_a_gateway_follows_any_sequence_of_snapshots(steps: list[tuple[dict[str, str], str]]) -> None:
    envoy = FakeEnvoy(Session("g"))
    for number, (clusters, routes) in enumerate(steps):
        wanted = snapshot(f"v{number}", clusters, routes)
        envoy.follow(wanted)
        assert envoy.session.settled(wanted)
        assert envoy.has == {kind: dict(wanted.versions[kind]) for kind in KINDS}
