"""What went wrong with a call, as a reason and a sentence an operator can act on, without secrets."""

import re
import socket
import ssl
from urllib.parse import urlsplit

import requests

from tidegate.observe.prometheus_config import PrometheusConfig, redacted_url
from tidegate.terms.signal import UnknownReason

_LONGEST_TEXT = 200
_SECRET = re.compile(r"(?i)\b(bearer|basic)\s+\S+|(://)[^/\s@]*@|\b(token|password|secret)=\S+")
_ANSWERS_LATER = frozenset({429, 503})


class TransportError(Exception):
    """A call without a usable answer; caught by the reader, never seen beyond it.

    Args:
        reason: State of the signals that depend on it.
        detail: One sentence.
        server_trouble: Whether the circuit breaker counts it: the server is slow, overloaded or not there.
        retry: Whether the same call may succeed at once.
        retry_after_s: What the server asked for.
    """

    def __init__(
        self,
        reason: UnknownReason,
        detail: str,
        *,
        server_trouble: bool,
        retry: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.server_trouble = server_trouble
        self.retry = retry
        self.retry_after_s = retry_after_s


def plain(text: str) -> str:
    """Return foreign text as one short printable line without credentials."""
    line = "".join(c if c.isprintable() else " " for c in text)
    line = _SECRET.sub(lambda m: f"{m[2] or ''}(redacted)", " ".join(line.split()))
    return line if len(line) <= _LONGEST_TEXT else line[:_LONGEST_TEXT] + "…"


def explain_exception(exc: Exception, config: PrometheusConfig) -> TransportError:
    """Return the error for an exchange that broke off."""
    return TransportError(
        UnknownReason.UNREACHABLE, f"{config.name}: {_why(exc, config)}", server_trouble=True, retry=_is_passing(exc)
    )


def _is_passing(exc: Exception) -> bool:
    # A certificate, a malformed address or a missing CA file will not be different a moment later.
    return isinstance(exc, requests.ConnectionError | requests.Timeout | requests.exceptions.ChunkedEncodingError) and (
        not isinstance(exc, requests.exceptions.SSLError | requests.exceptions.ProxyError)
    )


def _why(exc: Exception, config: PrometheusConfig) -> str:  # noqa: PLR0911 - one cause, one sentence
    if isinstance(exc, requests.ConnectTimeout):
        return f"no connection within {config.connect_timeout_s:g} s"
    if isinstance(exc, requests.Timeout):
        return f"connected, but no byte of an answer within {config.read_timeout_s:g} s"
    for cause in _chain(exc):
        if isinstance(cause, ssl.SSLError):
            return f"TLS: {plain(str(cause.reason or cause))}; check the CA file and the client certificate"
        if isinstance(cause, socket.gaierror):
            return f"the name {urlsplit(config.url).hostname} does not resolve"
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused: nothing listens there"
        if isinstance(cause, TimeoutError):
            return f"connected, but no byte of an answer within {config.read_timeout_s:g} s"
    if isinstance(exc, OSError) and not isinstance(exc, requests.RequestException):
        return plain(exc.strerror or str(exc))  # e.g. a CA or certificate file that is gone
    return f"the connection broke: {type(exc).__name__}"


def _chain(exc: BaseException) -> list[BaseException]:
    """Return the exception and everything it was made from, at most 20."""
    found: list[BaseException] = []
    waiting: list[BaseException] = [exc]
    while waiting and len(found) < 20:  # noqa: PLR2004 - a bound, not a meaning
        one = waiting.pop(0)
        if one in found:
            continue
        found.append(one)
        nested = [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
        waiting += [e for e in nested if isinstance(e, BaseException)]
    return found


def explain_status(
    response: requests.Response, body: bytes, envelope: object, config: PrometheusConfig
) -> TransportError:
    """Return the error for an answer that is complete and of no use."""
    status = response.status_code
    said = _said(envelope)
    if status in _ANSWERS_LATER or status >= requests.codes.internal_server_error:
        trouble = said or response.reason or "no reason given"
        return TransportError(
            UnknownReason.REJECTED if status == requests.codes.too_many_requests else UnknownReason.UNREACHABLE,
            f"{config.name}: answered {status}: {plain(trouble)}",
            server_trouble=True,
            retry=status in _ANSWERS_LATER,
            retry_after_s=_retry_after_s(response),
        )
    return TransportError(
        UnknownReason.REJECTED,
        f"{config.name}: {_refusal(response, body, said)}",
        server_trouble=False,
    )


def _refusal(response: requests.Response, body: bytes, said: str) -> str:  # noqa: PLR0911 - one case, one sentence
    status = response.status_code
    if status in {401, 403}:
        return (
            f"answered {status} {response.reason}: credentials are missing or refused; "
            "give a bearer file, a user name with a password file, or a client certificate"
        )
    if response.is_redirect or 300 <= status < 400:  # noqa: PLR2004 - the class of redirects
        where = redacted_url(response.headers.get("Location", "")) or "nowhere"
        return (
            f"answered {status}, a redirect to {plain(where)}: give the final address; a login page is not Prometheus"
        )
    if said:
        return f"answered {status}: {plain(said)}"
    start = body[:_LONGEST_TEXT].lstrip()
    if start.startswith(b"<") or "html" in response.headers.get("Content-Type", ""):
        return f"answered {status} with HTML instead of JSON: is this a login page, Grafana or another server?"
    if status in {404, 405}:
        return f"answered {status}: no Prometheus API there; check the path of the address"
    if not start:
        return f"answered {status} with an empty body"
    if status == requests.codes.ok:
        return f"answered with what is not a Prometheus answer: {plain(start.decode('utf-8', 'replace'))!r}"
    return f"answered {status} {response.reason or ''}".rstrip()


def _said(envelope: object) -> str:
    if not isinstance(envelope, dict) or envelope.get("status") != "error":
        return ""
    return f"{envelope.get('errorType', 'error')}: {envelope.get('error', 'no text')}"


def _retry_after_s(response: requests.Response) -> float | None:
    """Return the seconds of Retry-After; the date form is left to the ordinary back-off."""
    text = response.headers.get("Retry-After", "").strip()
    return float(text) if text.isascii() and text.isdigit() else None
