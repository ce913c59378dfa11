"""What a metric is to Tidegate: canonical quantities, their aliases, and how several series become one."""

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache


class Kind(StrEnum):
    """Prometheus metric type."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Unit(StrEnum):
    """Canonical units; aliases scale into these."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    SECONDS = "seconds"
    BYTES = "bytes"
    RATIO = "ratio"  # 0..1, never percent
    EVENTS = "events"
    REPLICAS = "replicas"
    USD_PER_H = "usd_per_h"
    REQUESTS_PER_S = "requests_per_s"
    TOKENS_PER_S = "tokens_per_s"
    FLAG = "flag"  # 0 or 1


class Fold(StrEnum):
    """How the series of one replica that are not copies of each other become one number."""

    SUM = "sum"  # e.g. running requests over data-parallel engines
    MAX = "max"  # e.g. KV use: a sum of ratios means nothing and the fullest engine binds


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One canonical quantity of one replica.

    `required` quantities must match a live series of every ready replica, or the contract is violated.
    """

    name: str
    kind: Kind
    unit: Unit
    meaning: str
    required: bool
    fold: Fold = Fold.SUM
    highest: float | None = None  # a reading above is not believed; 1.0 for ratios catches percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """One name an engine gives, or gave, a quantity.

    `base` has neither prefix nor type suffix. `first` and `last` are the oldest and newest release in which the name
    was seen ("" = from the start, or still there). `evidence` says where that was seen.
    """

    base: str
    first: str = ""
    last: str = ""
    evidence: str
    suffixes: tuple[str, ...] = ("",)  # in order of preference, e.g. ("_total", "")
    plus: tuple[str, ...] = ()  # other bases to add when they exist, e.g. a second queue
    scale: float = 1.0  # multiply by this to reach the canonical unit
    sentinels: tuple[float, ...] = ()  # readings that mean "not measured"
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # hashed by identity: there is one per engine
class EngineCatalogue:
    """All an engine exposes that Tidegate reads.

    `copies` are labels that tell apart repetitions of one truth (per process, per tensor-parallel rank): of these
    series the largest is taken, never a mean and never a sum. `total_label` is a label whose empty value marks the
    total of the other values.
    """

    engine: str
    prefixes: tuple[str, ...]  # in order of preference
    model_label: str
    copies: tuple[str, ...]
    total_label: str
    aliases: dict[str, tuple[Alias, ...]] = field(default_factory=dict)  # by quantity name; newest alias first

    def spellings(self, quantity: str) -> tuple[tuple[str, Alias], ...]:
        """Return (full name, alias) for every way the quantity may be spelled, preferred first.

        For histograms the name is the family, without `_bucket`, `_sum` or `_count`.
        """
        return _spellings(self, quantity)

    def additions(self, name: str, alias: Alias) -> tuple[str, ...]:
        """Return the full names to add to `name`, in the same prefix."""
        prefix = next((p for p in self.prefixes if name.startswith(p)), "")
        return tuple(f"{prefix}{base}" for base in alias.plus)


@cache
def _spellings(catalogue: EngineCatalogue, quantity: str) -> tuple[tuple[str, Alias], ...]:
    # Kept: every replica is looked up by every spelling at every look.
    return tuple(
        (f"{prefix}{alias.base}{suffix}", alias)
        for alias in catalogue.aliases.get(quantity, ())
        for suffix in alias.suffixes
        for prefix in catalogue.prefixes
    )
