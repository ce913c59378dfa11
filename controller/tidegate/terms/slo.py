"""Service level objectives as numbers."""

from dataclasses import dataclass
from enum import StrEnum


class Indicator(StrEnum):
    """What an objective measures, per request."""

    TTFT = "ttft"  # time to first token
    TPOT = "tpot"  # mean time per output token of one request
    ITL = "itl"  # gap between two tokens
    E2E = "e2e"
    AVAILABILITY = "availability"  # answered without a server error


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """At least `objective_ratio` of requests must see `indicator` <= `threshold_s` over `window_s`.

    `percentile: 95` in a policy is `objective_ratio` 0.95. `threshold_s` is None for availability only.
    """

    name: str
    indicator: Indicator
    objective_ratio: float  # (0, 1)
    threshold_s: float | None
    window_s: float
