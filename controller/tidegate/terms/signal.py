"""What was read from the fleet: a value, a true zero, or unknown with its reason.

Missing can never become 0: `Unknown` has no number, no truth value and no arithmetic, and the two types that do carry a
number are made only by `reading`, which turns NaN and infinity into `Unknown`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn

_INF = math.inf


class UnknownReason(StrEnum):
    """Why a signal has no number."""

    ABSENT = "absent"  # the query matched no series
    STALE = "stale"  # the newest sample is older than allowed
    NOT_A_NUMBER = "not_a_number"  # NaN: typically 0/0 of an idle histogram
    INFINITE = "infinite"
    OUT_OF_RANGE = "out_of_range"  # e.g. a negative rate or a ratio above 1
    PARTIAL = "partial"  # the backend said the answer is incomplete
    UNREACHABLE = "unreachable"
    REJECTED = "rejected"  # the server answered with an error
    BREAKER_OPEN = "breaker_open"  # not asked: the circuit breaker is open
    CONTRACT_VIOLATION = "contract_violation"  # the family that should be there is not, or has another type
    TOO_YOUNG = "too_young"  # the replica or the series has lived shorter than the rate window
    NOT_OFFERED = "not_offered"  # this engine or device never exposes it
    NOT_CONFIGURED = "not_configured"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """What every signal carries, known or not."""

    sampled_at_s: float  # Unix time of the oldest sample used; for Unknown: when it was asked
    coverage_ratio: float  # 0..1: how many of the ready replicas (or expected series) reported
    source: str  # the alias that answered, e.g. "vllm:kv_cache_usage_perc" or "gateway"

    def __post_init__(self) -> None:
        _check(self.sampled_at_s, self.coverage_ratio)

    def age_s(self, now_s: float) -> float:
        """Return seconds since the sample was taken, never negative."""
        return max(0.0, now_s - self.sampled_at_s)

    def __bool__(self) -> NoReturn:
        msg = "a signal has no truth value: match on Value, TrueZero and Unknown"
        raise TypeError(msg)


def _check(sampled_at_s: float, coverage_ratio: float) -> None:
    if not math.isfinite(sampled_at_s):
        msg = f"signal.sampled_at_s: must be finite, got {sampled_at_s}"
        raise ValueError(msg)
    if not 0.0 <= coverage_ratio <= 1.0:
        msg = f"signal.coverage_ratio: must be within 0..1, got {coverage_ratio}"
        raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class Value(_Reading):
    """A finite number other than zero."""

    value: float
    at_least: bool = False  # True: a quantile at the last bucket bound, so the truth is this or more

    # Written out since a rehearsal makes millions of these: the generated one looks up each field by its name, which
    # takes nearly twice as long.
    def __init__(
        self, *, sampled_at_s: float, coverage_ratio: float, source: str, value: float, at_least: bool = False
    ) -> None:
        if not (-_INF < sampled_at_s < _INF and 0.0 <= coverage_ratio <= 1.0):
            _check(sampled_at_s, coverage_ratio)
        if not -_INF < value < _INF or value == 0.0:
            msg = f"Value.value: must be finite and not 0 (use `reading`), got {value}"
            raise ValueError(msg)
        _SET_SAMPLED_AT_S(self, sampled_at_s)
        _SET_COVERAGE_RATIO(self, coverage_ratio)
        _SET_SOURCE(self, source)
        _SET_VALUE(self, value)
        _SET_AT_LEAST(self, at_least)

    @property
    def number(self) -> float:
        """The number read."""
        return self.value


# A frozen object's fields can be set through its slots only.
_SET_SAMPLED_AT_S: Any = _Reading.__dict__["sampled_at_s"].__set__
_SET_COVERAGE_RATIO: Any = _Reading.__dict__["coverage_ratio"].__set__
_SET_SOURCE: Any = _Reading.__dict__["source"].__set__
_SET_VALUE: Any = Value.__dict__["value"].__set__
_SET_AT_LEAST: Any = Value.__dict__["at_least"].__set__


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueZero(_Reading):
    """A zero that was really measured."""

    zero: float = 0.0  # fixed; lets serialised signals be told apart by their fields

    def __post_init__(self) -> None:
        _Reading.__post_init__(self)
        if self.zero != 0.0:
            msg = f"TrueZero.zero: is 0 by definition, got {self.zero}"
            raise ValueError(msg)

    @property
    def number(self) -> float:
        """The number read: 0.0."""
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(_Reading):
    """No number, and why. It has no `number`: reading one is a type error."""

    reason: UnknownReason
    detail: str = ""  # for people: the error text, the expected family, the age


Known = Value | TrueZero
Signal = Value | TrueZero | Unknown


def reading(
    number: float, *, sampled_at_s: float, coverage_ratio: float, source: str, at_least: bool = False
) -> Signal:
    """Return the signal for a number as read: `Value`, `TrueZero`, or `Unknown` for NaN and infinity."""
    if not -_INF < number < _INF:
        return Unknown(
            reason=UnknownReason.NOT_A_NUMBER if math.isnan(number) else UnknownReason.INFINITE,
            detail=f"read {number}",
            sampled_at_s=sampled_at_s,
            coverage_ratio=coverage_ratio,
            source=source,
        )
    if number == 0.0:
        return TrueZero(sampled_at_s=sampled_at_s, coverage_ratio=coverage_ratio, source=source)
    return Value(
        value=number,
        at_least=at_least,
        sampled_at_s=sampled_at_s,
        coverage_ratio=coverage_ratio,
        source=source,
    )


def unknown(reason: UnknownReason, detail: str, *, now_s: float, source: str, coverage_ratio: float = 0.0) -> Unknown:
    """Return an `Unknown` asked for at `now_s`."""
    return Unknown(reason=reason, detail=detail, sampled_at_s=now_s, coverage_ratio=coverage_ratio, source=source)


def combine(signals: Iterable[Signal], *, expected: int, source: str, now_s: float) -> Signal:
    """Return the sum of per-replica signals, with coverage = known / expected.

    Any unknown member makes coverage drop below 1; no known member at all makes the sum `Unknown`. The sum of what is
    known is a lower bound, so it may raise a decision but (coverage < 1) never lower one.

    Args:
        signals: One per replica.
        expected: How many replicas should have reported, >= 0.
        source: Alias for the sum.
        now_s: Unix time of the join.
    """
    members = list(signals)
    known = [s for s in members if not isinstance(s, Unknown)]
    if not known:
        first = next((s for s in members if isinstance(s, Unknown)), None)
        if first is None:
            return unknown(UnknownReason.ABSENT, "no replica reported", now_s=now_s, source=source)
        return Unknown(reason=first.reason, detail=first.detail, sampled_at_s=now_s, coverage_ratio=0.0, source=source)
    return reading(
        sum(s.number for s in known),
        sampled_at_s=min(s.sampled_at_s for s in known),
        coverage_ratio=min(1.0, len(known) / max(expected, 1)),
        source=source,
    )
