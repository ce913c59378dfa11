"""Reading an Alertmanager webhook body, and checking who sent it.

The body carries no signature, so the bearer token is the only proof of origin; every text in it is untrusted.
Payload: Alertmanager documentation, "webhook_config", version "4". Unknown keys are ignored: newer releases add some.
"""

import hashlib
import hmac
import json
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NoReturn, cast

from tidegate.terms.errors import BadInputError

PAYLOAD_VERSION = "4"
MAX_BODY_BYTES = 1 << 20  # a full group of 1000 alerts with 20 labels each stays below this
MAX_ALERTS = 1000
MAX_LABELS = 128  # per alert
MAX_LABEL_CHARS = 1024  # per name or value; alert labels are names, not documents
_FINGERPRINT = re.compile(r"[0-9A-Za-z]{1,64}")  # Alertmanager's are 16 hexadecimal digits
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHOWN_CHARS = 60  # of a refused value, in an error text


class WebhookBodyError(BadInputError):
    """The body is not an Alertmanager webhook of version 4; the sender must change it."""


class AlertStatus(StrEnum):
    """State of one alert inside a body."""

    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertNotice:
    """One alert as delivered. The same alert comes many times; `key` tells its firings apart.

    `ends_at_s` is None while it fires (Alertmanager then writes year 1). `partial` says that the body had left alerts
    out, so that absence from it proves nothing.
    """

    status: AlertStatus
    fingerprint: str
    starts_at_s: float
    ends_at_s: float | None
    labels: tuple[tuple[str, str], ...]
    group_key: str
    partial: bool

    @property
    def key(self) -> str:
        """What makes two deliveries the same firing."""
        return f"{self.fingerprint}@{self.starts_at_s:.3f}"

    def label(self, name: str) -> str | None:
        """Return the value of label `name`, or None when the alert does not carry it."""
        return next((value for key, value in self.labels if key == name), None)


def authorised(header: str | None, token: str) -> bool:
    """Return whether `header` is `Bearer <token>`, in a time that does not depend on where they differ.

    Args:
        header: Value of the Authorization header; None when the request has none.
        token: The shared secret. An empty one admits nobody: an unset secret must not open the door.
    """
    scheme, _, given = (header or "").partition(" ")
    # Digests of equal length: compare_digest on the texts themselves would tell their length.
    same = hmac.compare_digest(_digest(given.strip()), _digest(token))
    return bool(token) and scheme.lower() == "bearer" and same


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def parse(body: bytes) -> tuple[AlertNotice, ...]:
    """Return the alerts of one webhook body, in its order.

    Args:
        body: The request body, at most `MAX_BODY_BYTES` bytes.

    Raises:
        WebhookBodyError: Too large, not JSON, another payload version, or a field of the wrong form; the text names
            the field, what it is and what it must be.
    """
    if len(body) > MAX_BODY_BYTES:
        _refuse("size", f"at most {MAX_BODY_BYTES} bytes", len(body))
    try:
        document: object = json.loads(body)
    except (ValueError, RecursionError) as exc:  # ValueError covers bad UTF-8 and bad JSON
        msg = f"alert body: must be JSON: {type(exc).__name__}: {exc}"
        raise WebhookBodyError(msg) from exc
    top = _mapping(document, "top level")
    if top.get("version") != PAYLOAD_VERSION:
        _refuse("version", f'"{PAYLOAD_VERSION}"', top.get("version"))
    alerts = top.get("alerts")
    if not isinstance(alerts, list):
        _refuse("alerts", "a list", alerts)
    if len(alerts) > MAX_ALERTS:
        _refuse("alerts", f"at most {MAX_ALERTS} entries", len(alerts))
    truncated = top.get("truncatedAlerts", 0)
    if not isinstance(truncated, int):
        _refuse("truncatedAlerts", "a whole number", truncated)
    group_key = _text(top.get("groupKey", ""), "groupKey")
    return tuple(
        _notice(alert, f"alerts[{index}]", group_key=group_key, partial=truncated > 0)
        for index, alert in enumerate(alerts)
    )


def _notice(alert: object, where: str, *, group_key: str, partial: bool) -> AlertNotice:
    fields = _mapping(alert, where)
    status = fields.get("status")
    if status not in tuple(AlertStatus):
        _refuse(f"{where}.status", "firing or resolved", status)
    fingerprint = _text(fields.get("fingerprint"), f"{where}.fingerprint")
    if not _FINGERPRINT.fullmatch(fingerprint):
        _refuse(f"{where}.fingerprint", "1 to 64 letters and digits", fingerprint)
    starts_at_s = _time_s(fields.get("startsAt"), f"{where}.startsAt")
    if starts_at_s is None:
        _refuse(f"{where}.startsAt", "a time later than year 1", fields.get("startsAt"))
    firing = status == AlertStatus.FIRING
    return AlertNotice(
        status=AlertStatus(str(status)),
        fingerprint=fingerprint,
        starts_at_s=starts_at_s,
        ends_at_s=None if firing else _time_s(fields.get("endsAt"), f"{where}.endsAt"),
        labels=_labels(fields.get("labels"), f"{where}.labels"),
        group_key=group_key,
        partial=partial,
    )


def _labels(value: object, where: str) -> tuple[tuple[str, str], ...]:
    fields = _mapping(value, where)
    if len(fields) > MAX_LABELS:
        _refuse(where, f"at most {MAX_LABELS} labels", len(fields))
    return tuple(
        sorted((_text(name, where), _text(text, f"{where}.{name[:_SHOWN_CHARS]}")) for name, text in fields.items())
    )


def _mapping(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        _refuse(where, "an object", value)
    return cast("dict[str, object]", value)  # JSON object keys are always strings


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        _refuse(where, "a text", value)
    if len(value) > MAX_LABEL_CHARS:
        _refuse(where, f"at most {MAX_LABEL_CHARS} characters", len(value))
    if _SURROGATE.search(value):  # JSON may spell half a pair; no answer, log or journal can carry it
        _refuse(where, "text that UTF-8 can carry", value)
    return value


def _time_s(value: object, where: str) -> float | None:
    """Return Unix seconds, or None for year 1, Alertmanager's spelling of "not set"."""
    try:
        moment = datetime.fromisoformat(_text(value, where))
    except ValueError:
        _refuse(where, "an RFC 3339 time", value)
    if moment.tzinfo is None:
        _refuse(where, "an RFC 3339 time with a zone", value)
    return None if moment.year == 1 else moment.timestamp()


def _refuse(where: str, must: str, got: object) -> NoReturn:
    shown = repr(got)
    shown = shown if len(shown) <= _SHOWN_CHARS else shown[:_SHOWN_CHARS] + "…"
    msg = f"alert body: {where}: must be {must}, got {shown}"
    raise WebhookBodyError(msg)
