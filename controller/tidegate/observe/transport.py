"""The one seam under `prometheus_api_client`: a `requests.Session` with deadlines, limits, retries and credentials.

`PrometheusConnect` puts a POST's query into the URL, has no total time-out, follows redirects, mounts its own adapter,
drops warnings and reports every failure as text. It sends everything through `session.request`, so all of that is put
right here and nothing of it needs overriding.
"""

import email.utils
import json
import random
import time
from collections.abc import Callable, Mapping
from typing import cast
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter

from tidegate.observe.deadline import Watch, WatchedAdapter
from tidegate.observe.prometheus_config import PrometheusConfig
from tidegate.observe.refusals import TransportError, explain_exception, explain_status, plain
from tidegate.terms.signal import UnknownReason

_RETRY_STATUS = frozenset({429, 503})
_CHUNK_BYTES = 65_536


class Rows(list[object]):
    """The `result` list of an answer, with what `PrometheusConnect` would drop."""

    result_type: str = ""
    warnings: tuple[str, ...] = ()
    partial: bool = False
    answered_at_s: float | None = None


class _Envelope(requests.Response):
    """A response whose body was read and checked; `json()` returns the parsed envelope."""

    def __init__(self, envelope: Mapping[str, object]) -> None:
        super().__init__()
        self.status_code = 200
        self._envelope = envelope

    def json(self, **_kwargs: object) -> Mapping[str, object]:
        """Return the envelope."""
        return self._envelope


class HardenedSession(requests.Session):
    """Sends one call within its deadlines, or raises `TransportError`.

    Args:
        config: Address, credentials and limits.
        monotonic_s: Monotonic clock, for tests.
        sleep: Waits between attempts, for tests.
    """

    def __init__(
        self,
        config: PrometheusConfig,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._config = config
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._random = random.SystemRandom()
        inline = urlsplit(config.url).password
        self._secrets: tuple[str, ...] = (inline,) if inline else ()
        super().__init__()
        # Else a .netrc, a proxy variable or a CA variable of the environment would decide where credentials go.
        self.trust_env = False
        if config.proxy:
            self.proxies = {"http": config.proxy, "https": config.proxy}
        if config.ca_file is not None:
            self.verify = str(config.ca_file)
        if config.cert_file is not None and config.key_file is not None:
            self.cert = (str(config.cert_file), str(config.key_file))

    def mount(self, prefix: str | bytes, adapter: BaseAdapter) -> None:
        """Mount a watched adapter, whatever adapter is given: `PrometheusConnect` mounts one with its own retries."""
        super().mount(prefix, adapter if isinstance(adapter, WatchedAdapter) else WatchedAdapter(max_retries=0))

    def request(self, method: str | bytes, url: str | bytes, *_args: object, **kwargs: object) -> requests.Response:
        """Return the checked answer of one call.

        Of `kwargs` only `params` is used; time-outs, credentials and TLS come from the configuration.

        Raises:
            TransportError: No usable answer, with the reason.
        """
        params = cast("Mapping[str, object]", kwargs.get("params") or {})
        deadline_s = self._monotonic_s() + self._config.total_timeout_s
        attempt = 1
        while True:
            try:
                return _Envelope(self._once(str(method), str(url), params, deadline_s))
            except TransportError as exc:
                exc.detail = self._scrubbed(exc.detail)
                wait_s = self._wait_s(exc, attempt, deadline_s)
                if wait_s is None:
                    raise
            self._sleep(wait_s)
            attempt += 1

    def _wait_s(self, exc: TransportError, attempt: int, deadline_s: float) -> float | None:
        """Return seconds until the next attempt, or None when there is to be none."""
        if not exc.retry or attempt >= self._config.max_attempts:
            return None
        backoff_s = self._config.first_retry_s * 2 ** (attempt - 1) * (0.5 + 0.5 * self._random.random())
        wait_s = max(backoff_s, exc.retry_after_s or 0.0)
        return wait_s if self._monotonic_s() + wait_s < deadline_s else None

    def _once(self, method: str, url: str, params: Mapping[str, object], deadline_s: float) -> Mapping[str, object]:
        config = self._config
        headers, auth = self._credentials()
        left_s = deadline_s - self._monotonic_s()
        if left_s <= 0:
            raise self._too_slow()
        form = method == "POST"
        with Watch(left_s) as watch:
            try:
                response = super().request(
                    method,
                    url,
                    data=dict(params) if form else None,
                    params=None if form else {name: str(value) for name, value in params.items()},
                    headers=headers,
                    auth=auth,
                    stream=True,
                    allow_redirects=False,
                    timeout=(min(config.connect_timeout_s, left_s), min(config.read_timeout_s, left_s)),
                )
                with response:
                    body = self._body(response)
            except (requests.RequestException, OSError) as exc:
                if watch.fired:
                    raise self._too_slow() from exc
                raise explain_exception(exc, config) from exc
            if watch.fired:
                raise self._too_slow()
        return self._checked(response, body)

    def _scrubbed(self, text: str) -> str:
        """Return the text without the credentials sent last: a server may echo them."""
        for secret in self._secrets:
            text = text.replace(secret, "(redacted)")
        return text

    def _too_slow(self) -> TransportError:
        return TransportError(
            UnknownReason.UNREACHABLE,
            f"{self._config.name}: no complete answer within {self._config.total_timeout_s:g} s",
            server_trouble=True,
        )

    def _credentials(self) -> tuple[dict[str, str], tuple[str, str] | None]:
        config = self._config
        headers = {"Accept": "application/json", "User-Agent": "tidegate"}
        if config.tenant:
            headers[config.tenant_header] = config.tenant
        if config.bearer_file is not None:
            token = _secret(config.bearer_file.read_text, config.bearer_file.name)
            self._secrets = (token,)
            headers["Authorization"] = f"Bearer {token}"
        if config.password_file is None:
            return headers, None
        password = _secret(config.password_file.read_text, config.password_file.name)
        self._secrets = (password,)
        return headers, (config.username, password)

    def _body(self, response: requests.Response) -> bytes:
        limit = self._config.max_body_bytes
        declared = response.headers.get("Content-Length", "")
        received = bytearray()
        if not (declared.isdigit() and int(declared) > limit):
            for chunk in response.iter_content(_CHUNK_BYTES):
                received += chunk
                if len(received) > limit:
                    break
            else:
                return bytes(received)
        raise TransportError(
            UnknownReason.REJECTED,
            f"{self._config.name}: the answer is longer than {limit} bytes; ask for fewer series or a coarser step",
            server_trouble=True,
        )

    def _checked(self, response: requests.Response, body: bytes) -> Mapping[str, object]:
        """Return the envelope of a good answer, its `result` as `Rows`."""
        config = self._config
        try:
            envelope = json.loads(body)
        except (ValueError, RecursionError):
            envelope = None
        if response.status_code != requests.codes.ok:
            raise explain_status(response, body, envelope, config)
        if not isinstance(envelope, dict) or envelope.get("status") != "success":
            raise explain_status(response, body, envelope, config)
        data = envelope.get("data")
        if isinstance(data, dict) and isinstance(data.get("result"), list):
            rows = Rows(data["result"])
            rows.result_type = str(data.get("resultType", ""))
            said = envelope.get("warnings")
            rows.warnings = tuple(plain(str(w)) for w in said) if isinstance(said, list) else ()
            # "PromQL ..." annotations are advice about the query; any other warning says that data is missing.
            rows.partial = bool(envelope.get("isPartial")) or any(not w.startswith("PromQL") for w in rows.warnings)
            rows.answered_at_s = _date_s(response.headers.get("Date", ""))
            return {**envelope, "data": {**data, "result": rows}}
        return envelope


def _date_s(header: str) -> float | None:
    """Return the Unix time of a Date header, or None when there is no such time."""
    try:
        return email.utils.parsedate_to_datetime(header).timestamp()
    except (ValueError, OverflowError):
        return None


def _secret(read: Callable[[], str], name: str) -> str:
    """Return a credential file's one line.

    Raises:
        TransportError: It cannot be read, or holds what cannot go into a header.
    """
    try:
        text = read().strip()
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "not text"
        raise TransportError(
            UnknownReason.REJECTED, f"credential file {name}: cannot be read: {why}", server_trouble=False
        ) from exc
    if not text or not text.isprintable() or not text.isascii():
        raise TransportError(
            UnknownReason.REJECTED, f"credential file {name}: must hold one line of ASCII text", server_trouble=False
        )
    return text
