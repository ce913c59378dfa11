"""One bounded HTTP read of an engine's metrics page, and its parse. Failures are values: one target, one reason."""

import contextlib
import http.client
import socket
import threading
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

# Asks for the plain text format by name: a newer Python client that is offered OpenMetrics writes `vllm_` for `vllm:`.
ACCEPT = "text/plain;version=0.0.4"
MAX_PAGE_BYTES = 8 << 20  # a vLLM page is 45 kB; 200 times that is not a metrics page


@dataclass(frozen=True, slots=True, kw_only=True)
class RawSample:
    """One sample as exposed. `at_s` is its own timestamp, which most pages do not give."""

    labels: tuple[tuple[str, str], ...]
    value: float
    at_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePage:
    """What a page exposes: samples by sample name, and the declared type by family name."""

    samples: dict[str, tuple[RawSample, ...]]
    types: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Why a target gave no page; `reason` is a label value, `detail` is for people."""

    reason: str
    detail: str


def fetch(url: str, *, timeout_s: float) -> EnginePage | Failed:
    """Return the page of one target, read within `timeout_s` seconds and `MAX_PAGE_BYTES` bytes."""
    text = _get(url, timeout_s=timeout_s)
    return text if isinstance(text, Failed) else parse(text)


def parse(text: str) -> EnginePage | Failed:
    """Return the samples of a text exposition, or why it is none."""
    samples: dict[str, list[RawSample]] = {}
    types: dict[str, str] = {}
    try:
        for family in text_string_to_metric_families(text):
            types[family.name] = family.type
            for sample in family.samples:
                at_s = None if sample.timestamp is None else float(sample.timestamp)
                labels = tuple(sorted(sample.labels.items()))
                samples.setdefault(sample.name, []).append(RawSample(labels=labels, value=sample.value, at_s=at_s))
    except (ValueError, IndexError, KeyError, AttributeError) as exc:  # what the parser raises on text of another kind
        return Failed(reason="not_metrics", detail=f"{type(exc).__name__}: {exc}"[:200])
    if not samples:
        return Failed(reason="not_metrics", detail="no sample in the page")
    return EnginePage(samples={name: tuple(found) for name, found in samples.items()}, types=types)


def _get(url: str, *, timeout_s: float) -> str | Failed:
    deadline_s = time.monotonic() + timeout_s
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        connection.connect()
    except TimeoutError as exc:
        return Failed(reason="timeout", detail=f"connect: {exc}")
    except (OSError, UnicodeError) as exc:  # the latter: a host name that cannot be one
        return Failed(reason="unreachable", detail=str(exc))
    late = threading.Event()
    # A socket's timeout is per read: a page that drips would pass it for ever. So the line is cut at the deadline.
    watchdog = threading.Timer(max(0.0, deadline_s - time.monotonic()), _cut, (connection.sock, late))
    watchdog.daemon = True
    watchdog.start()
    try:
        path = parts._replace(scheme="", netloc="", fragment="").geturl()
        connection.request("GET", path, headers={"Accept": ACCEPT})
        found = _body(connection.getresponse())
    except (OSError, http.client.HTTPException) as exc:
        found = Failed(reason="broken_answer", detail=f"{type(exc).__name__}: {exc}"[:200])
    finally:
        watchdog.cancel()
        connection.close()
    return Failed(reason="timeout", detail=f"not complete within {timeout_s:g} s") if late.is_set() else found


def _cut(line: socket.socket, late: threading.Event) -> None:
    late.set()
    with contextlib.suppress(OSError):  # closed by now: then the page was there in time after all
        line.shutdown(socket.SHUT_RDWR)


def _body(answer: http.client.HTTPResponse) -> str | Failed:
    if answer.status != http.client.OK:
        return Failed(reason=f"http_{answer.status}", detail=answer.reason)
    body = answer.read(MAX_PAGE_BYTES + 1)
    if len(body) > MAX_PAGE_BYTES:
        return Failed(reason="too_large", detail=f"more than {MAX_PAGE_BYTES} bytes")
    if answer.length:
        return Failed(reason="broken_answer", detail=f"{answer.length} bytes of the page are missing")
    return body.decode("utf-8", "replace")
