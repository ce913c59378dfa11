"""Which signals may be believed: a number to raise on, or a doubt that forbids lowering.

Rule: any signal that can be believed may raise a pool; all that are required must be believed, fully covered and fresh
to lower it. A doubt never turns into a number.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.terms.decision import Reason
from tidegate.terms.signal import Signal, Unknown, UnknownReason

# An engine that never offers a figure, or a deployment without that source, has lost nothing.
_NOT_LOST = frozenset({UnknownReason.NOT_OFFERED, UnknownReason.NOT_CONFIGURED})
_GROUPS = "; "


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """One signal that forbids lowering, and why."""

    signal: str  # e.g. "chat/main waiting_requests"
    reason: Reason  # STALE_METRICS, PARTIAL_COVERAGE or CONTRACT_VIOLATION
    detail: str = ""


def words_on(doubts: Iterable[Doubt]) -> str:
    """Return the doubts as text, signals with the same trouble together: "a, b: trouble; c: other trouble"."""
    by_detail: dict[str, list[str]] = {}
    for doubt in doubts:
        # A semicolon parts the groups, so none may stand inside one.
        by_detail.setdefault(doubt.detail.replace(_GROUPS, ", "), []).append(doubt.signal)
    return _GROUPS.join(
        f"{', '.join(names)}: {detail}" if detail else ", ".join(names) for detail, names in by_detail.items()
    )


def brief(text: str, most: int = 2) -> str:
    """Return what `words_on` said, with the first `most` signals and "and N more" for the others."""
    told: list[str] = []
    left, more = most, 0
    for group in text.split(_GROUPS):
        listed, colon, detail = group.partition(": ")
        names = listed.split(", ")
        if left:
            told.append(f"{', '.join(names[:left])}{colon}{detail}")
        more += max(0, len(names) - left)
        left = max(0, left - len(names))
    return _GROUPS.join(told) + (f"; and {more} more" if more else "")


def believed(signal: Signal, *, now_s: float, stale_after_s: float) -> float | None:
    """Return the number to raise on, or None when the signal is unknown, negative or older than `stale_after_s`."""
    if isinstance(signal, Unknown) or signal.age_s(now_s) > stale_after_s:
        return None
    number = signal.number
    return number if math.isfinite(number) and number >= 0.0 else None


def doubt_in(name: str, signal: Signal, *, now_s: float, stale_after_s: float, optional: bool = False) -> Doubt | None:
    """Return why `signal` may not lower anything, or None when it may.

    Args:
        name: How the signal is called towards people.
        signal: As observed.
        now_s: Unix time of the decision.
        stale_after_s: Highest age that may still lower, seconds.
        optional: True when a signal that this engine or deployment never has is no loss.
    """
    if isinstance(signal, Unknown):
        if optional and signal.reason in _NOT_LOST:
            return None
        return Doubt(signal=name, reason=_reason_of(signal), detail=_words_of(signal))
    age_s = signal.age_s(now_s)
    if age_s > stale_after_s:
        detail = f"last sample {age_s:.0f} s ago, at most {stale_after_s:.0f} s allowed"
        return Doubt(signal=name, reason=Reason.STALE_METRICS, detail=detail)
    if not math.isfinite(signal.number) or signal.number < 0.0:
        return Doubt(signal=name, reason=Reason.STALE_METRICS, detail=f"impossible value {signal.number}")
    if signal.coverage_ratio < 1.0:
        detail = f"only {signal.coverage_ratio:.0%} of the ready replicas reported"
        return Doubt(signal=name, reason=Reason.PARTIAL_COVERAGE, detail=detail)
    return None


def _reason_of(signal: Unknown) -> Reason:
    if signal.reason is UnknownReason.CONTRACT_VIOLATION:
        return Reason.CONTRACT_VIOLATION
    # A replica that has just become ready has no rate yet: others reported, so this is coverage, not blindness.
    if signal.reason is UnknownReason.TOO_YOUNG:
        return Reason.PARTIAL_COVERAGE
    return Reason.STALE_METRICS


def _words_of(signal: Unknown) -> str:
    words = signal.reason.value.replace("_", " ")
    return f"{words} ({signal.detail})" if signal.detail else words
