"""The twin as a server: routes, cold start, drain, and its end."""

import asyncio
import json
import time
from dataclasses import dataclass
from enum import StrEnum

from tidegate.app.clock import now_s
from tidegate.app.twin.completion import StreamedCompletion, WholeCompletion
from tidegate.app.twin.connection import Connection, Handler, HttpRequest
from tidegate.app.twin.engine import PacedEngine
from tidegate.app.twin.exposition import Exposition, Names, TwinCollector
from tidegate.app.twin.metrics import TwinMetrics
from tidegate.app.twin.openai import ApiError, bad_request, model_list, read_ask, unavailable
from tidegate.perf.profile import EngineProfile


class Phase(StrEnum):
    """Life of the twin. Only `READY` takes requests."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinSettings:
    """What one twin is told on its command line."""

    profile: EngineProfile
    model: str
    names: Names = Names.V1
    default_output_tokens: int = 256
    early_headers: bool = True  # a streamed answer's head goes out at once, as vLLM's does


class TwinServer:
    """Routes requests into the paced engine. Made on the loop it runs on."""

    def __init__(self, settings: TwinSettings, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._profile = settings.profile
        self._metrics = TwinMetrics(settings.profile.longest_request_tokens)
        self._collector = TwinCollector(self._metrics, settings.profile, model=settings.model, names=settings.names)
        self._exposition = Exposition(self._collector)
        self._created_s = int(now_s())
        self._asked = 0
        self.engine = PacedEngine(settings.profile, self._metrics, loop)
        self.phase = Phase.STARTING
        self.connections: set[Connection] = set()
        self._routes: dict[str, tuple[str, Handler]] = {
            "/v1/chat/completions": ("POST", lambda c, r: self._complete(c, r, chat=True)),
            "/v1/completions": ("POST", lambda c, r: self._complete(c, r, chat=False)),
            "/v1/models": ("GET", self._models),
            "/health": ("GET", self._health),
            "/ping": ("GET", self._health),
            "/version": ("GET", self._version),
            "/metrics": ("GET", self._page),
            "/admin/metrics-names": ("POST", self._rename),
        }

    def connection(self) -> Connection:
        """Return the protocol of a new connection."""
        return Connection(self._handle, self.connections, self._answered)

    def toggle_names(self) -> None:
        """Switch between the names it was started with and names nobody knows."""
        first = self._settings.names
        self._collector.names = Names.RENAMED if self._collector.names is first else first

    def _answered(self, request: HttpRequest, status: int) -> None:
        handler = request.path if request.path in self._routes else "none"
        self._metrics.answered(handler, request.method, status, time.monotonic() - request.began_s)

    def _handle(self, connection: Connection, request: HttpRequest) -> None:
        try:
            method, route = self._routes.get(request.path, ("", None))
            if route is None:
                message = f"no such path: {request.path[:200]}"
                raise ApiError(404, "NotFoundError", message)  # noqa: TRY301  (one place shapes every error)
            if request.method != method and not (method == "GET" and request.method == "HEAD"):
                message = f"{request.path} takes {method}, got {request.method}"
                raise ApiError(405, "MethodNotAllowedError", message)  # noqa: TRY301
            route(connection, request)
        except ApiError as exc:
            connection.answer(exc.status, exc.body())

    def _must_be_ready(self) -> None:
        if self.phase is Phase.STARTING:
            message = "the engine is starting and not ready for requests"
            raise unavailable(message)
        if self.phase is Phase.DRAINING:
            message = "the engine is draining and takes no new requests"
            raise unavailable(message)

    def _complete(self, connection: Connection, request: HttpRequest, *, chat: bool) -> None:
        self._must_be_ready()
        settings = self._settings
        ask = read_ask(
            bytes(request.body),
            chat=chat,
            model=settings.model,
            context_tokens=self._profile.longest_request_tokens,
            default_output_tokens=settings.default_output_tokens,
        )
        request.body = bytearray()
        self._asked += 1
        answer_id = f"{'chatcmpl' if chat else 'cmpl'}-{self._asked:032x}"
        created_s = int(now_s())
        completion: StreamedCompletion | WholeCompletion
        if ask.stream:
            completion = StreamedCompletion(
                ask,
                connection,
                answer_id=answer_id,
                model=settings.model,
                created_s=created_s,
                chunked=request.chunked_ok,
                early=settings.early_headers,
            )
        else:
            completion = WholeCompletion(
                ask, connection, answer_id=answer_id, model=settings.model, created_s=created_s
            )
        key = self.engine.submit(
            prompt_tokens=ask.prompt_tokens, output_tokens=ask.output_tokens, on_token=completion.on_token
        )
        # The context was checked against the whole KV budget above, so the engine takes it.
        if key is None:
            message = "prompt and output exceed the KV cache"
            raise bad_request(message)
        connection.on_gone = lambda: self.engine.abort(key)

    def _models(self, connection: Connection, request: HttpRequest) -> None:
        del request
        context = self._profile.longest_request_tokens
        connection.answer(200, model_list(self._settings.model, created_s=self._created_s, context_tokens=context))

    def _health(self, connection: Connection, request: HttpRequest) -> None:
        del request
        self._must_be_ready()
        connection.answer(200, b"", "text/plain")

    def _version(self, connection: Connection, request: HttpRequest) -> None:
        del request
        connection.answer(200, json.dumps({"version": self._profile.engine_version, "twin": True}).encode())

    def _page(self, connection: Connection, request: HttpRequest) -> None:
        self.engine.sample()
        body, content_type = self._exposition.page(request.accept)
        connection.answer(200, body, content_type)

    def _rename(self, connection: Connection, request: HttpRequest) -> None:
        if not request.peer_is_local:
            message = "only callers on this machine may rename metrics"
            raise ApiError(403, "PermissionDeniedError", message)
        try:
            names = Names(json.loads(bytes(request.body))["names"])
        except (ValueError, KeyError, TypeError) as exc:
            message = f'the body must be {{"names": one of {", ".join(Names)}}}'
            raise bad_request(message, "names") from exc
        self._collector.names = names
        connection.answer(200, json.dumps({"names": names}).encode())
