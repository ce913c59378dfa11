import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from tidegate.actuate.xds import AdsStatus, GatewayStatus
from tidegate.actuate.xds_session import Refusal
from tidegate.alerts.webhook import MAX_BODY_BYTES
from tidegate.app.alert_desk import AlertDesk
from tidegate.app.api import build_app
from tidegate.app.self_metrics import SelfMetrics
from tidegate.app.state import LiveState
from tidegate.terms.fleet import PoolKey
from tidegate.terms.observation import Intervention, InterventionKind

T0 = 1_790_000_000.0
KEY = PoolKey(service="chat", pool="main")
TOKEN = "a-token-of-sixteen-characters"  # noqa: S105  (a test's own)
Make = Callable[..., Any]


class Fleet:
    """An API over a state that the test fills; `now_s` is the test's."""

    def __init__(self, policies: tuple[Any, ...], *, with_desk: bool = True) -> None:
        self.now_s = T0
        self.faults: tuple[str, ...] = ()
        self.state = LiveState(started_at_s=T0 - 100.0)
        self.desk = AlertDesk(policies, token=lambda: TOKEN) if with_desk else None
        self.metrics = SelfMetrics(self.state, journal_writable=lambda: not self.faults, desk=self.desk)
        app = build_app(
            self.state,
            clock=lambda: self.now_s,
            metrics=self.metrics,
            desk=self.desk,
            faults=lambda: self.faults,
        )
        self.client = TestClient(app)


@pytest.fixture(name="fleet")
def fleet_fixture(make_record: Make) -> Iterator[Fleet]:
    record, _ = make_record(T0)
    fleet = Fleet(record.inputs.policies)
    with fleet.client:
        yield fleet


def _json(fleet: Fleet, path: str) -> Any:  # noqa: ANN401  (any JSON)
    answer = fleet.client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def _nulls_and_numbers(node: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _nulls_and_numbers(value, f"{path}.{key}")
    elif isinstance(node, list):
        for value in node:
            yield from _nulls_and_numbers(value, f"{path}[]")
    else:
        yield path, node


def test_process_is_alive_before_any_observation(fleet: Fleet) -> None:
    assert _json(fleet, "/healthz") == {"status": "ok", "reasons": []}


def test_controller_is_not_ready_before_any_observation(fleet: Fleet) -> None:
    answer = fleet.client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "not ready", "reasons": ["no observation yet"]}


def test_controller_is_ready_after_a_tick(fleet: Fleet, make_record: Make) -> None:
    fleet.state.publish(*make_record(T0))
    assert _json(fleet, "/readyz") == {"status": "ok", "reasons": []}


def test_controller_is_not_ready_when_the_journal_cannot_be_written(fleet: Fleet, make_record: Make) -> None:
    fleet.state.publish(*make_record(T0))
    fleet.faults = ("journal: no space left on device",)
    answer = fleet.client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["reasons"] == ["journal: no space left on device"]


def test_state_tells_counts_load_and_the_sentence(fleet: Fleet, make_record: Make) -> None:
    fleet.state.publish(*make_record(T0, load=5.0, ready=2, starting=1))
    state = _json(fleet, "/v1/state")
    service = state["services"][0]
    assert service["signals"]["arrivals_per_s"]["state"] == "value"
    assert service["signals"]["arrivals_per_s"]["value"] == 5.0
    assert service["signals"]["failed_per_s"]["state"] == "zero"
    pool = service["pools"][0]
    assert pool["states"]["ready"] == 2
    assert pool["states"]["starting"] == 1
    assert pool["decision"]["sentence"].startswith("chat/main: ")
    assert pool["decision"]["wanted_replicas"]["state"] == "value"
    assert len(pool["replicas"]) == 3
    assert service["forecast_quantile"] == 0.9
    carried = pool["capacity"]
    assert carried["planned_requests_per_s"] == pytest.approx(0.85 * carried["requests_per_s"])
    assert state["ready"] is True
    assert len(state["policy_digest"]) == 16


def test_state_says_whether_each_objective_is_met_and_by_which_source(fleet: Fleet, make_record: Make) -> None:
    fleet.state.publish(*make_record(T0))
    slis = {s["slo"]: s for s in _json(fleet, "/v1/state")["services"][0]["slis"]}
    assert {name: s["met"] for name, s in slis.items()} == {"ttft": "yes", "tpot": "no", "available": "yes"}
    assert slis["tpot"]["source"].startswith("engine")
    assert slis["available"]["threshold_s"] is None
    assert {name: s["promised_s"] for name, s in slis.items()} == {"ttft": 1.0, "tpot": 0.08, "available": None}


def test_unknown_stays_unknown_and_never_becomes_a_number(fleet: Fleet, make_record: Make) -> None:
    fleet.state.publish(*make_record(T0, blind=True))
    state = _json(fleet, "/v1/state")
    service = state["services"][0]
    for signal in [*service["signals"].values(), *service["pools"][0]["signals"].values()]:
        assert signal["state"] == "unknown"
        assert signal["reason"] == "unreachable"
        assert "value" not in signal
    assert {s["met"] for s in service["slis"]} == {"unknown"}
    assert service["pools"][0]["decision"]["wanted_replicas"]["state"] == "unknown"
    assert service["pools"][0]["metrics_unknown"]
    assert service["forecast"] is None
    values = [p for p, v in _nulls_and_numbers(service) if p.endswith(".value") and v in (0, None)]
    assert values == []
    history = _json(fleet, "/v1/history")["services"][0]
    assert history["load"]["points"] == []
    assert [s["points"] for s in history["quantiles_s"]] == [[], [], []]


def test_decisions_are_newest_first_and_limited(fleet: Fleet, make_record: Make) -> None:
    memory = None
    for i in range(4):
        record, view = make_record(T0 + 15.0 * i, memory=memory)
        memory = record.memory_after
        fleet.state.publish(record, view)
    got = _json(fleet, "/v1/decisions?limit=3")["decisions"]
    assert [d["sequence"] for d in got] == [4, 3, 2]
    assert len(_json(fleet, "/v1/decisions?service=chat&pool=main")["decisions"]) == 4
    assert _json(fleet, "/v1/decisions?service=chat&pool=none")["decisions"] == []


def test_pool_is_told_with_its_decisions(fleet: Fleet, make_record: Make) -> None:
    fleet.state.publish(*make_record(T0))
    detail = _json(fleet, "/v1/pools/chat/main")
    assert detail["pool"]["max_replicas"] == 8
    assert detail["decisions"][0]["notes"]


def test_history_draws_the_forecast_one_start_up_time_ahead(fleet: Fleet, make_record: Make) -> None:
    for i in range(10):
        fleet.state.publish(*make_record(T0 + 15.0 * i, load=4.0 + i))
    fleet.now_s = T0 + 135.0
    history = _json(fleet, "/v1/history?span_s=600")["services"][0]
    assert [v for _, v in history["load"]["points"]] == [4.0 + i for i in range(10)]
    assert history["band"]["levels"] == [0.5, 0.9, 0.99]
    times = [p[0] for p in history["band"]["points"]]
    assert times == sorted(times)
    assert times[0] == T0 + 30.0  # the first tick's forecast, at its horizon
    assert times[-1] == T0 + 135.0 + 30.0
    assert all(p[1] <= p[2] <= p[3] for p in history["band"]["points"])
    ready = next(s for s in history["pools"]["main"] if s["name"] == "ready")
    assert len(ready["points"]) == 10


def test_history_keeps_the_band_when_the_newest_forecast_is_lost(fleet: Fleet, make_record: Make) -> None:
    for i in range(4):
        fleet.state.publish(*make_record(T0 + 15.0 * i))
    fleet.state.publish(*make_record(T0 + 60.0, blind=True))
    fleet.now_s = T0 + 60.0
    assert _json(fleet, "/v1/history")["services"][0]["band"]["points"] != []


def test_history_is_thinned_to_what_a_chart_can_show(fleet: Fleet, make_record: Make) -> None:
    record, view = make_record(T0)
    for i in range(1000):
        decision = replace(record.decision, decided_at_s=T0 + i)
        fleet.state.publish(replace(record, decision=decision), view)
    fleet.now_s = T0 + 1000.0
    points = _json(fleet, "/v1/history?span_s=3600")["services"][0]["load"]["points"]
    assert 200 < len(points) <= 400
    assert points[-1][0] == T0 + 999.0


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        ("/v1/decisions?limit=0", 400, "limit"),
        ("/v1/decisions?limit=x", 400, "limit"),
        ("/v1/decisions?service=chat", 400, "both or neither"),
        ("/v1/history?span_s=1", 400, "span_s"),
        ("/v1/history?span_s=nan", 400, "span_s"),
        ("/v1/pools/chat/none", 404, "no pool chat/none"),
        ("/v1/nothing", 404, "Not Found"),
        ("/static/../api.py", 404, ""),
        ("/static/%2e%2e%2fapi.py", 404, ""),
        ("/static/py.typed", 404, "no such file"),
        ("/docs", 404, "Not Found"),
    ],
)
def test_wrong_request_is_refused_with_the_reason(fleet: Fleet, path: str, code: int, said: str) -> None:
    answer = fleet.client.get(path)
    assert answer.status_code == code
    assert said in answer.json()["error"]


def test_gateway_names_what_an_envoy_refused() -> None:
    refusal = Refusal(type_url="t/Cluster", name="chat/main", version="2", kept_version="1", reason="bad weight")
    status = AdsStatus(
        version="v2",
        gateways=(
            GatewayStatus(
                node_id="gateway-0", connected=True, seen_ago_s=1.0, has_version="v1", resources={"Cluster": 1},
                waiting_for=(), refused=(refusal,),
            ),
        ),
    )  # fmt: skip
    state = LiveState(started_at_s=T0)
    metrics = SelfMetrics(state, journal_writable=lambda: True)
    with TestClient(build_app(state, clock=lambda: T0, metrics=metrics, gateways=lambda: status)) as client:
        found = client.get("/v1/gateway").json()
    assert found["gateways"][0]["refused"][0]["reason"] == "bad weight"
    assert found["gateways"][0]["has_version"] != found["version"]


def test_gateway_is_empty_before_an_envoy_came(fleet: Fleet) -> None:
    assert _json(fleet, "/v1/gateway") == {"version": None, "gateways": []}


def test_every_answer_forbids_foreign_content(fleet: Fleet) -> None:
    for path in ("/", "/static/page.js", "/v1/state", "/v1/nothing"):
        headers = fleet.client.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_openapi_describes_every_route_and_the_unknown_signal(fleet: Fleet) -> None:
    document = _json(fleet, "/openapi.json")
    assert {"/healthz", "/readyz", "/v1/state", "/v1/decisions", "/v1/history", "/v1/alerts"} <= document[
        "paths"
    ].keys()
    assert document["components"]["schemas"]["UnknownOut"]["properties"]["state"]["const"] == "unknown"
    assert "http" not in json.dumps(document).replace("HTTP", "").replace("httpv", "")


def _delivery(**labels: str) -> dict[str, Any]:
    alert = {
        "status": "firing",
        "labels": {"alertname": "HighTtft", "tidegate_pool": "chat/main", **labels},
        "startsAt": "2026-09-21T14:13:20Z",  # T0
        "endsAt": "0001-01-01T00:00:00Z",
        "fingerprint": "f00d",
    }
    return {"version": "4", "groupKey": "g", "truncatedAlerts": 0, "alerts": [alert]}


def _post(fleet: Fleet, body: object, token: str = TOKEN) -> Any:  # noqa: ANN401  (the client's own type)
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return fleet.client.post("/v1/alerts", content=content, headers={"authorization": f"Bearer {token}"})


def test_alert_is_taken_and_stands_until_it_expires(fleet: Fleet) -> None:
    delivery = _delivery(tidegate_action="floor", tidegate_replicas="4", tidegate_for="10m")
    answer = _post(fleet, delivery)
    assert answer.status_code == 200
    assert answer.json() == {"accepted": True, "refused": []}
    assert fleet.desk is not None
    (standing,) = fleet.desk.in_force(T0 + 1.0)
    assert (standing.kind, standing.pool, standing.replicas) == (InterventionKind.FLOOR, KEY, 4)
    assert standing.expires_at_s == T0 + 600.0
    assert _post(fleet, delivery).status_code == 200
    assert fleet.desk.in_force(T0 + 2.0) == (standing,)
    assert fleet.desk.in_force(T0 + 601.0) == ()


def test_alert_that_asks_too_much_is_answered_with_the_reason(fleet: Fleet) -> None:
    answer = _post(fleet, _delivery(tidegate_action="floor", tidegate_replicas="99"))
    assert answer.status_code == 200  # Alertmanager would repeat a 4xx for nothing
    assert "must be a whole number within 1..8" in answer.json()["refused"][0]["reason"]


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1]])
def test_alert_without_the_token_is_401_and_changes_nothing(fleet: Fleet, token: str) -> None:
    answer = _post(fleet, _delivery(tidegate_action="freeze"), token)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in answer.text
    assert fleet.desk is not None
    assert fleet.desk.in_force(T0) == ()


def test_alert_without_any_authorization_is_401(fleet: Fleet) -> None:
    assert fleet.client.post("/v1/alerts", content=b"{}").status_code == 401


def test_alert_body_that_is_too_large_is_413(fleet: Fleet) -> None:
    assert _post(fleet, b"x" * (MAX_BODY_BYTES + 1)).status_code == 413


def test_alert_body_that_is_too_large_is_413_when_its_length_is_not_told(fleet: Fleet) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 65536 + 2):
            yield b"x" * 65536

    headers = {"authorization": f"Bearer {TOKEN}"}
    assert fleet.client.post("/v1/alerts", content=chunks(), headers=headers).status_code == 413


@pytest.mark.parametrize("body", [b"", b"nope", b"[]", b'{"version": "3"}', b"\xff", b'{"a":' * 5000])
def test_alert_body_that_cannot_be_read_is_400(fleet: Fleet, body: bytes) -> None:
    answer = _post(fleet, body)
    assert answer.status_code == 400
    assert "alert body" in answer.json()["error"]


def test_alert_is_503_with_the_reason_when_no_token_is_configured(make_record: Make) -> None:
    fleet = Fleet(make_record(T0)[0].inputs.policies, with_desk=False)
    answer = _post(fleet, _delivery())
    assert answer.status_code == 503
    assert "not configured" in answer.json()["error"]


def test_intervention_in_force_is_shown_and_an_expired_one_is_not(fleet: Fleet, make_record: Make) -> None:
    standing = Intervention(
        kind=InterventionKind.FREEZE, pool=KEY, replicas=None, expires_at_s=T0 + 10.0, origin="alertmanager:<b>X</b>:1"
    )
    fleet.state.publish(*make_record(T0, interventions=(standing,)))
    assert _json(fleet, "/v1/state")["interventions"][0]["origin"] == "alertmanager:<b>X</b>:1"
    fleet.now_s = T0 + 11.0
    assert _json(fleet, "/v1/state")["interventions"] == []
