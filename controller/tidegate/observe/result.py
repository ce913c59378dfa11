"""What comes back from Prometheus: an answer or a failure, always a value."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.terms.signal import UnknownReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series with its samples.

    `samples` are (Unix time, number), oldest first, times distinct; numbers may be NaN or infinite as the server sent
    them. `labels` include `__name__` where the query kept it.
    """

    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]

    @property
    def name(self) -> str:
        """The metric name, or "" where the query dropped it."""
        return self.labels.get("__name__", "")

    @property
    def newest_at_s(self) -> float:
        """Unix time of the last sample; there is always one."""
        return self.samples[-1][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A well-formed answer; no series at all is an answer too.

    `partial` is True when the backend said that something is missing. `newest_at_s` is None without any sample.
    `answered_at_s` is the Unix time of the server's clock, or None when it did not say.
    """

    series: tuple[Series, ...]
    warnings: tuple[str, ...] = ()
    partial: bool = False
    newest_at_s: float | None = None
    answered_at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """No answer, why, and what an operator can do about it."""

    reason: UnknownReason
    detail: str


QueryResult = Answer | Failure
