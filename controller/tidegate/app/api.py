"""The status page and the JSON API over a `LiveState`. Reads only, but for the alert webhook."""

import asyncio
import importlib.metadata
from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from importlib import resources
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from tidegate.actuate.xds import AdsStatus
from tidegate.alerts.webhook import MAX_BODY_BYTES
from tidegate.app import api_models as out
from tidegate.app.alert_desk import AlertDesk
from tidegate.app.api_headers import SafeHeaders
from tidegate.app.api_history import history_out
from tidegate.app.api_view import decision_out, intervention_out, services_out
from tidegate.app.config import policy_digest
from tidegate.app.self_metrics import CONTENT_TYPE, SelfMetrics
from tidegate.app.state import LiveState
from tidegate.terms.errors import BadInputError
from tidegate.terms.fleet import PoolKey

_PAGE_FILES = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_BODY_TIMEOUT_S = 10.0
_NO_DESK = "the alert webhook is not configured: start the controller with an alert token file"


def _no_gateways() -> AdsStatus:
    return AdsStatus(version=None, gateways=())


def build_app(
    state: LiveState,
    *,
    clock: Callable[[], float],
    metrics: SelfMetrics,
    desk: AlertDesk | None = None,
    faults: Callable[[], tuple[str, ...]] = tuple,
    gateways: Callable[[], AdsStatus] = _no_gateways,
) -> FastAPI:
    """Return the application.

    Args:
        state: What the loop publishes.
        clock: Returns Unix seconds.
        metrics: Our own metrics, for `/metrics`.
        desk: Takes alerts; None answers 503 with the reason.
        faults: Returns what else keeps the controller from being ready, e.g. `Loop.ready_reasons`.
        gateways: Returns what the xDS server knows of each Envoy.
    """
    app = FastAPI(
        title="Tidegate",
        version=importlib.metadata.version("tidegate"),
        summary="State and decisions of one controller. Unknown is an object that says so, never 0.",
        docs_url=None,  # both pages load scripts from elsewhere
        redoc_url=None,
    )
    app.add_middleware(SafeHeaders)
    app.add_exception_handler(StarletteHTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)

    def reasons() -> list[str]:
        return list(dict.fromkeys([*state.trouble(clock()), *faults()]))

    app.include_router(_probes(reasons, metrics))
    app.include_router(_reads(state, clock, reasons))
    app.include_router(_gateway(gateways))
    app.include_router(_alerts(desk, clock))
    app.include_router(_page())
    return app


def _probes(reasons: Callable[[], list[str]], metrics: SelfMetrics) -> APIRouter:
    router = APIRouter()

    @router.get("/healthz")
    async def healthz() -> out.HealthOut:
        """Whether the process is alive."""
        return out.HealthOut(status="ok", reasons=[])

    @router.get("/readyz", responses={503: {"model": out.HealthOut}})
    async def readyz(response: Response) -> out.HealthOut:
        """Whether decisions are made on fresh facts; 503 with the reasons when not."""
        found = reasons()
        if found:
            response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
        return out.HealthOut(status="not ready" if found else "ok", reasons=found)

    @router.get("/metrics", response_class=Response)
    async def own_metrics() -> Response:
        """Our own metrics in Prometheus' text format."""
        return Response(metrics.text(), headers={"content-type": CONTENT_TYPE})

    return router


def _reads(state: LiveState, clock: Callable[[], float], reasons: Callable[[], list[str]]) -> APIRouter:
    router = APIRouter(prefix="/v1", responses={"4XX": {"model": out.ErrorOut, "description": "Refused, and why"}})

    @router.get("/state")
    async def whole_state() -> out.StateOut:
        """The fleet as the newest tick saw it."""
        return _state_out(state, clock(), reasons())

    @router.get("/decisions")
    async def decisions(
        limit: Annotated[int, Query(ge=1, le=500)] = 50, service: str | None = None, pool: str | None = None
    ) -> out.DecisionsOut:
        """Decisions, newest first; of one pool when `service` and `pool` are given."""
        if (service is None) != (pool is None):
            raise HTTPException(HTTPStatus.BAD_REQUEST, "service and pool: must be given both or neither")
        key = PoolKey(service=service, pool=pool) if service is not None and pool is not None else None
        return out.DecisionsOut(decisions=[decision_out(d) for d in state.decisions(limit, key)])

    @router.get("/pools/{service}/{pool}")
    async def one_pool(service: str, pool: str, limit: Annotated[int, Query(ge=1, le=500)] = 50) -> out.PoolDetailOut:
        """One pool with its last decisions."""
        now_s = clock()
        newest = state.newest()
        services = services_out(newest, now_s) if newest is not None else []
        found = [p for s in services for p in s.pools if (p.service, p.pool) == (service, pool)]
        if not found:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"no pool {service[:64]}/{pool[:64]}")
        kept = state.decisions(limit, PoolKey(service=service, pool=pool))
        return out.PoolDetailOut(now_s=now_s, pool=found[0], decisions=[decision_out(d) for d in kept])

    @router.get("/history")
    async def history(
        service: str | None = None, span_s: Annotated[float, Query(ge=60, le=21_600)] = 900
    ) -> out.HistoryOut:
        """Series for charts; what is unknown has no point."""
        now_s = clock()
        since_s = now_s - span_s
        return history_out(state.newest(), state.ticks(since_s), service=service, since_s=since_s, now_s=now_s)

    return router


def _gateway(gateways: Callable[[], AdsStatus]) -> APIRouter:
    router = APIRouter(prefix="/v1")

    @router.get("/gateway")
    async def gateway() -> out.GatewaysOut:
        """Every Envoy with what it has, is being sent and has refused."""
        return out.GatewaysOut.model_validate(asdict(gateways()))

    return router


def _state_out(state: LiveState, now_s: float, reasons: list[str]) -> out.StateOut:
    newest = state.newest()
    inputs = newest.record.inputs if newest is not None else None
    interventions = inputs.observation.interventions if inputs is not None else ()
    return out.StateOut(
        version=importlib.metadata.version("tidegate"),
        now_s=now_s,
        started_at_s=state.started_at_s,
        ready=not reasons,
        reasons=reasons,
        sequence=newest.record.decision.sequence if newest is not None else None,
        decided_at_s=newest.record.decision.decided_at_s if newest is not None else None,
        tick_duration_s=newest.view.tick_duration_s if newest is not None else None,
        gateway_acked=newest.view.gateway_acked if newest is not None else False,
        rate_window_s=state.rate_window_s,
        policy_digest=policy_digest(inputs.policies) if inputs is not None else "",
        services=services_out(newest, now_s) if newest is not None else [],
        interventions=[intervention_out(i) for i in interventions if i.expires_at_s > now_s],
    )


def _alerts(desk: AlertDesk | None, clock: Callable[[], float]) -> APIRouter:
    router = APIRouter(prefix="/v1")
    one_at_a_time = asyncio.Lock()
    errors: dict[int | str, dict[str, Any]] = {code: {"model": out.ErrorOut} for code in (400, 401, 408, 413, 503)}

    @router.post("/alerts", responses=errors)
    async def alerts(request: Request) -> out.AlertsOut:
        """Take an Alertmanager notification (bearer token); what it asks for is weighed by the next decision."""
        if desk is None:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, _NO_DESK)
        if not desk.admits(request.headers.get("authorization")):
            text = "a valid bearer token is required"
            raise HTTPException(HTTPStatus.UNAUTHORIZED, text, headers={"www-authenticate": "Bearer"})
        try:
            body = await asyncio.wait_for(_limited(request), _BODY_TIMEOUT_S)
            # A full body takes long enough to hold up sweeps and probes; many at once would take their threads.
            async with one_at_a_time:
                refused = await asyncio.to_thread(desk.receive, body, clock())
        except TimeoutError as exc:
            text = f"the body did not arrive within {_BODY_TIMEOUT_S:.0f} s"
            raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, text) from exc
        except BadInputError as exc:
            raise HTTPException(HTTPStatus.BAD_REQUEST, str(exc)) from exc
        return out.AlertsOut(
            accepted=True, refused=[out.RefusalOut(alertname=r.alertname, reason=r.reason) for r in refused]
        )

    return router


async def _limited(request: Request) -> bytes:
    """Return the body, read no further than the limit."""
    said = request.headers.get("content-length", "")
    body = bytearray()
    too_large = said.isascii() and said.isdigit() and int(said[:12]) > MAX_BODY_BYTES
    if not too_large:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                too_large = True
                break
    if too_large:
        raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body must be at most {MAX_BODY_BYTES} bytes")
    return bytes(body)


def _page() -> APIRouter:
    router = APIRouter(include_in_schema=False)
    folder = resources.files("tidegate.app") / "page"
    # Read once: a request names a key of this table, never a path.
    files = {name: (folder / name).read_bytes() for name in _PAGE_FILES}

    @router.get("/")
    async def index() -> Response:
        return Response(files["index.html"], headers={"content-type": _PAGE_FILES["index.html"]})

    @router.get("/static/{name}")
    async def static(name: str) -> Response:
        if name not in files:
            raise HTTPException(HTTPStatus.NOT_FOUND, "no such file")
        return Response(files[name], headers={"content-type": _PAGE_FILES[name]})

    return router


async def _refused(_: Request, exc: Exception) -> Response:
    if not isinstance(exc, StarletteHTTPException):
        raise exc
    return JSONResponse({"error": str(exc.detail)}, status_code=exc.status_code, headers=exc.headers)


async def _invalid(_: Request, exc: Exception) -> Response:
    if not isinstance(exc, RequestValidationError):
        raise exc
    said = "; ".join(f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg']}" for e in exc.errors())
    return JSONResponse({"error": said}, status_code=HTTPStatus.BAD_REQUEST)
