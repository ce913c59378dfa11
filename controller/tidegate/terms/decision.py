"""What was decided, why, and what must be remembered."""

from dataclasses import dataclass
from enum import StrEnum

from tidegate.terms.fleet import PoolKey, Role


class Verdict(StrEnum):
    """Direction of a pool's move."""

    GROW = "grow"
    HOLD = "hold"
    SHRINK = "shrink"


class Reason(StrEnum):
    """Which consideration spoke; values are label values."""

    DEMAND_FORECAST = "demand_forecast"  # the forecast's quantile set the need
    DEMAND_NOW = "demand_now"  # what arrives now set the need
    BACKLOG = "backlog"  # waiting requests must be worked off
    SLO_MISSED = "slo_missed"  # latency objective missed now
    REPLACE_FAILED = "replace_failed"  # a replica is gone
    AT_MINIMUM = "at_minimum"
    AT_MAXIMUM = "at_maximum"
    RATE_LIMIT = "rate_limit"
    STABILISATION = "stabilisation"
    PENDING_SUPPLY = "pending_supply"  # ordered and not ready yet counts as supply
    STALE_METRICS = "stale_metrics"  # hold: metrics unknown
    PARTIAL_COVERAGE = "partial_coverage"  # not every ready replica reported: no shrink
    NO_OBSERVATION_YET = "no_observation_yet"
    CONTRACT_VIOLATION = "contract_violation"
    FROZEN = "frozen"
    FLOOR = "floor"
    BUDGET = "budget"
    DRAINING = "draining"  # a drain is under way; no second one yet
    ADVISE_ONLY = "advise_only"
    STEADY = "steady"  # need equals supply


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonNote:
    """One reason with the numbers behind it, e.g. ("cap_replicas", 5.0)."""

    reason: Reason
    before_replicas: int  # the number this consideration was given
    after_replicas: int  # the number it returned
    facts: tuple[tuple[str, float], ...] = ()
    text: str = ""  # names only (metric, alert); sentences are made by `core.explain`


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDecision:
    """One pool's three counts and how they came about.

    `ready_replicas` serve now; `asked_before_replicas` were asked for last time; `wanted_replicas` is what demand
    needs before any guard; `asked_replicas` is what is asked for now.
    """

    key: PoolKey
    role: Role
    verdict: Verdict
    ready_replicas: int
    starting_replicas: int
    draining_replicas: int
    asked_before_replicas: int
    wanted_replicas: int | None  # None: nothing known to size on
    asked_replicas: int
    binding: Reason
    notes: tuple[ReasonNote, ...]
    drain_first: tuple[str, ...] = ()  # replica names, in the order to drain
    writes: bool = True  # False in advise mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """All pools, decided together."""

    decided_at_s: float
    sequence: int
    pools: tuple[PoolDecision, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMemory:
    """What one pool must remember between decisions."""

    key: PoolKey
    asked_replicas: int
    last_grow_at_s: float | None = None
    last_shrink_at_s: float | None = None
    # (Unix time, wanted replicas), oldest first, within the stabilisation window
    wanted_history: tuple[tuple[float, int], ...] = ()
    ever_observed: bool = False
    waiting_requests: float | None = None  # in the engines at the last decision; None: not known then


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """All that `decide` carries from one call to the next."""

    sequence: int = 0
    pools: tuple[PoolMemory, ...] = ()

    def of(self, key: PoolKey) -> PoolMemory | None:
        """Return the pool's memory, or None before its first decision."""
        return next((p for p in self.pools if p.key == key), None)
