"""Turning alerts into interventions: bounded, expiring facts that `core.decide` weighs like any other.

An alert asks by its labels: `tidegate_action` (freeze or floor), `tidegate_pool` (service/pool), `tidegate_replicas`
(floor only) and `tidegate_for`. Nothing here scales anything.

Alertmanager delivers at least once, out of order and repeatedly, so a body is read as a level ("these fire now"):
the same firing, keyed by fingerprint and start, gives the same intervention with the same expiry however often it
comes. `tidegate_for` counts from the start of the firing for that reason: counted from delivery, each repeat would
prolong it and nothing would bound it. A start may move while an alert fires (of two Prometheus servers that send it,
Alertmanager keeps the earlier start), so a resolved notice ends every firing of its fingerprint begun before its end.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tidegate.alerts.webhook import AlertNotice, AlertStatus
from tidegate.terms.fleet import PoolKey
from tidegate.terms.observation import Intervention, InterventionKind
from tidegate.terms.policy import PoolPolicy, ServicePolicy

ACTION_LABEL = "tidegate_action"
POOL_LABEL = "tidegate_pool"
REPLICAS_LABEL = "tidegate_replicas"
FOR_LABEL = "tidegate_for"

MAX_FOR_S = 3600.0  # an alert that must steer for longer than an hour is a policy change
DEFAULT_FOR_S = 600.0
MAX_INTERVENTIONS = 64  # in force at once, over all pools
MAX_ENDED = 1024  # firings remembered as resolved

_ORIGIN_PREFIX = "alertmanager:"
_ORIGIN = re.compile(_ORIGIN_PREFIX + r".*:([0-9A-Za-z]{1,64})@(-?\d+\.\d+)", re.DOTALL)
_DURATION = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,5})m)?(?:(\d{1,6})s)?")
_REPLICAS = re.compile(r"[0-9]{1,6}")
_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An alert that asked for something it may not have, and why."""

    key: str
    alertname: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """When an alert was last resolved; firings begun by then are late copies and must not revive it."""

    fingerprint: str
    ended_at_s: float
    forget_at_s: float  # by then no firing begun before the end could still act


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is in force and what has ended; the value to hand to the next `reconcile`."""

    interventions: tuple[Intervention, ...] = ()
    ended: tuple[Ended, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one delivery."""

    standing: Standing
    refusals: tuple[Refusal, ...] = ()


def interventions(
    notices: Iterable[AlertNotice],
    policies: Sequence[ServicePolicy],
    existing: Sequence[Intervention],
    *,
    now_s: float,
) -> tuple[Intervention, ...]:
    """Return the interventions in force after `notices`; `reconcile` without its memory of ended firings."""
    return reconcile(notices, policies, Standing(interventions=tuple(existing)), now_s=now_s).standing.interventions


def reconcile(
    notices: Iterable[AlertNotice], policies: Sequence[ServicePolicy], standing: Standing, *, now_s: float
) -> Outcome:
    """Return what is in force after `notices`, and which of them were refused.

    Idempotent: the same notices again change nothing. Alerts without `tidegate_action` are not for us and ignored.
    Interventions from elsewhere (another origin) are kept until they expire.

    Args:
        notices: As parsed, any order, duplicates allowed.
        policies: Bounds: a pool that is in none of them cannot be named; a floor stays within its `max_replicas`.
        standing: The outcome before.
        now_s: Unix seconds; what has expired by now is dropped. Call with no notices to expire only.
    """
    pools = {pool.key: pool for policy in policies for pool in policy.pools}
    ours = [notice for notice in notices if notice.label(ACTION_LABEL) is not None]
    ended = _ended(ours, standing.ended, now_s=now_s)
    live = {
        i.origin: i
        for i in standing.interventions
        if i.expires_at_s > now_s and i.pool in pools and not _is_over(i.origin, ended)
    }
    refusals: list[Refusal] = []
    for notice in sorted(ours, key=lambda n: n.key):
        if notice.status is AlertStatus.RESOLVED or _is_over(_origin(notice), ended):
            continue
        asked = _asked(notice, pools, now_s=now_s)
        if isinstance(asked, Intervention) and asked.origin not in live and len(live) >= MAX_INTERVENTIONS:
            asked = f"{MAX_INTERVENTIONS} interventions are in force already"
        if isinstance(asked, str):
            refusals.append(Refusal(key=notice.key, alertname=_called(notice), reason=asked))
            continue
        # An alert dated in the future starts when it is first seen; its copies must not move that moment.
        known = live.get(asked.origin, asked)
        live[asked.origin] = replace(asked, expires_at_s=min(asked.expires_at_s, known.expires_at_s))
    after = Standing(
        interventions=tuple(live[origin] for origin in sorted(live)),
        ended=tuple(ended[fingerprint] for fingerprint in sorted(ended)),
    )
    return Outcome(standing=after, refusals=tuple(refusals))


def _ended(notices: Iterable[AlertNotice], before: Iterable[Ended], *, now_s: float) -> dict[str, Ended]:
    """Return the newest end of each alert, by fingerprint; at most `MAX_ENDED`, the newest ones."""
    found = {end.fingerprint: end for end in before if end.forget_at_s > now_s}
    for notice in notices:
        if notice.status is AlertStatus.FIRING:
            continue
        ended_at_s = min(notice.ends_at_s if notice.ends_at_s is not None else now_s, now_s)
        known = found.get(notice.fingerprint)
        if ended_at_s + MAX_FOR_S > now_s and (known is None or known.ended_at_s < ended_at_s):
            found[notice.fingerprint] = Ended(
                fingerprint=notice.fingerprint, ended_at_s=ended_at_s, forget_at_s=ended_at_s + MAX_FOR_S
            )
    newest = sorted(found.values(), key=lambda end: (-end.ended_at_s, end.fingerprint))[:MAX_ENDED]
    return {end.fingerprint: end for end in newest}


def _is_over(origin: str, ended: dict[str, Ended]) -> bool:
    """Return whether the firing that `origin` names began before its alert's last end."""
    match = _ORIGIN.fullmatch(origin)  # None: it came from elsewhere, no alert ends it
    end = ended.get(match[1]) if match else None
    return match is not None and end is not None and float(match[2]) <= end.ended_at_s


def _asked(notice: AlertNotice, pools: dict[PoolKey, PoolPolicy], *, now_s: float) -> Intervention | str:
    """Return the intervention an alert asks for, or why it is refused."""
    action = notice.label(ACTION_LABEL) or ""
    if action not in tuple(InterventionKind):
        return f"{ACTION_LABEL}: must be {' or '.join(InterventionKind)}, got {_shown(action)}"
    kind = InterventionKind(action)
    named = notice.label(POOL_LABEL) or ""
    pool = next((policy for key, policy in pools.items() if str(key) == named), None)
    if pool is None:
        return f"{POOL_LABEL}: must be service/pool of a policy in force, got {_shown(named)}"
    replicas = _floor(notice, pool) if kind is InterventionKind.FLOOR else None
    if isinstance(replicas, str):
        return replicas
    lasts_s = _lasts_s(notice.label(FOR_LABEL))
    if isinstance(lasts_s, str):
        return lasts_s
    expires_at_s = min(notice.starts_at_s, now_s) + lasts_s
    if expires_at_s <= now_s:
        return f"{FOR_LABEL}: the alert began {now_s - notice.starts_at_s:.0f} s ago, longer than {lasts_s:.0f} s"
    return Intervention(kind=kind, pool=pool.key, replicas=replicas, expires_at_s=expires_at_s, origin=_origin(notice))


def _floor(notice: AlertNotice, pool: PoolPolicy) -> int | str:
    text = notice.label(REPLICAS_LABEL) or ""
    number = int(text) if _REPLICAS.fullmatch(text) else 0
    if not 1 <= number <= pool.max_replicas:
        must = f"a whole number within 1..{pool.max_replicas} (max_replicas of {pool.key})"
        return f"{REPLICAS_LABEL}: must be {must}, got {_shown(text)}"
    return number


def _lasts_s(text: str | None) -> float | str:
    if text is None:
        return DEFAULT_FOR_S
    match = _DURATION.fullmatch(text)
    hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    total_s = float(hours * 3600 + minutes * 60 + seconds)
    if not 0.0 < total_s <= MAX_FOR_S:
        return f"{FOR_LABEL}: must be a duration like 90s, 10m or 1h, at most 1h, got {_shown(text)}"
    return total_s


def _origin(notice: AlertNotice) -> str:
    """Return a text that names the alert and its firing; it is the intervention's identity."""
    return f"{_ORIGIN_PREFIX}{_called(notice) or 'unnamed'}:{notice.key}"


def _called(notice: AlertNotice) -> str:
    """Return the alert's name on one line: it ends up in logs and on terminals, which obey control characters."""
    name = (notice.label("alertname") or "")[:_SHOWN_CHARS]
    return "".join(c if c.isprintable() else "?" for c in name)


def _shown(text: str) -> str:
    return repr(text[:_SHOWN_CHARS])
