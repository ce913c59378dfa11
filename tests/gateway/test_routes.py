import pytest
from tests.gateway.harness import service
from tests.policies import MODEL

from tidegate.gateway.content import Body
from tidegate.gateway.routes import retry_policy, route_configuration
from tidegate.terms.errors import BadInputError
from tidegate.terms.fleet import PoolKey
from tidegate.terms.policy import GatewayPolicy

A, B = PoolKey(service="two", pool="a"), PoolKey(service="two", pool="b")


def routes_of(table: Body, model: str) -> list[Body]:
    found = table["virtual_hosts"][0]["matcher"]["matcher_tree"]["exact_match_map"]["map"][model]
    listed: list[Body] = found["action"]["typed_config"]["routes"]
    return listed


def weights_of(table: Body, model: str) -> dict[str, int]:
    clusters = routes_of(table, model)[-1]["route"]["weighted_clusters"]["clusters"]
    return {c["name"]: c["weight"] for c in clusters}


def test_pools_of_one_service_share_by_weight() -> None:
    policies = (service("two", "m-2", ("a", "b")),)
    assert weights_of(route_configuration(policies, {A: 3, B: 1}), "m-2") == {"two/a": 3, "two/b": 1}
    assert weights_of(route_configuration(policies, {A: 0, B: 2}), "m-2") == {"two/a": 0, "two/b": 2}


def test_pools_share_evenly_when_no_pool_has_a_weight() -> None:
    # Envoy refuses weights that add up to 0; with no replica anywhere the answer is 503 from either pool.
    policies = (service("two", "m-2", ("a", "b")),)
    assert weights_of(route_configuration(policies, {A: 0, B: 0}), "m-2") == {"two/a": 1, "two/b": 1}


def test_streams_have_no_time_limit_but_a_limit_on_silence() -> None:
    (route,) = routes_of(route_configuration((service(idle_timeout_s=45.0),), {}), MODEL)
    assert (route["route"]["timeout"], route["route"]["idle_timeout"]) == ("0.000s", "45.000s")


def test_only_a_service_with_a_smaller_limit_checks_the_body_size() -> None:
    table = route_configuration((service(), service("small", "m-2", max_body_bytes=1000)), {})
    assert len(routes_of(table, MODEL)) == 1
    too_large, route = routes_of(table, "m-2")
    assert too_large["direct_response"]["status"] == 413
    assert too_large["match"]["headers"][0]["range_match"]["start"] == 1001
    assert route["request_body_buffer_limit"] == 1000
    assert table["virtual_hosts"][0]["request_body_buffer_limit"] == 8 << 20


def test_no_retries_means_no_retry_condition() -> None:
    none = retry_policy(GatewayPolicy(retries=0, idle_timeout_s=1.0, max_body_bytes=1))
    assert none == {"num_retries": 0}
    some = retry_policy(GatewayPolicy(retries=2, idle_timeout_s=1.0, max_body_bytes=1))
    assert (some["num_retries"], some["retriable_status_codes"]) == (2, [503])


def test_two_services_cannot_serve_one_model() -> None:
    with pytest.raises(BadInputError, match=r"^b: spec\.model: 'm' is already served by a$"):
        route_configuration((service("a", "m"), service("b", "m")), {})


@pytest.mark.parametrize("model", ["", "a b", "line\nbreak", "mod\u00e8le", "x" * 257])
def test_a_model_that_cannot_be_a_header_is_refused(model: str) -> None:
    with pytest.raises(BadInputError, match=r"^chat: spec\.model: got .* must be 1 to 256 printable ASCII characters$"):
        route_configuration((service(model=model),), {})
