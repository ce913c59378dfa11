"""The metric contract: every required quantity of every ready replica must match a live series. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from tidegate.catalogue.canonical import QUANTITIES
from tidegate.catalogue.quantity import Quantity
from tidegate.observe.join import NO_SERIES, ReplicaKey, ReplicaSeries
from tidegate.observe.queries import UP
from tidegate.observe.replica_signals import Look, candidates
from tidegate.observe.result import Series
from tidegate.terms.fleet import PoolKey, Replica

_LONGEST_LIST = 4
_FEWEST_GAPS = 2


class Breach(StrEnum):
    """How the contract is broken; values are label values."""

    NO_TARGET = "no_target"  # Prometheus does not know the replica
    TARGET_DOWN = "target_down"  # it does, and its scrapes fail
    FAMILY_MISSING = "family_missing"  # scraped well, and none of the names is there
    WRONG_MODEL = "wrong_model"  # the series are of another model
    SLOW_SCRAPE = "slow_scrape"  # scraped so much less often than believed that rates and ages mislead


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One breach, for one quantity of one pool; `replicas` are those it concerns."""

    pool: PoolKey
    quantity: str
    breach: Breach
    replicas: tuple[str, ...]
    detail: str

    def __str__(self) -> str:
        names = ", ".join(self.replicas[:_LONGEST_LIST])
        if len(self.replicas) > _LONGEST_LIST:
            names += f" and {len(self.replicas) - _LONGEST_LIST} more"
        return f"contract: pool {self.pool}: {self.quantity}: {self.detail.format(replicas=names)}"


def violations(
    pool: PoolKey, ready: Iterable[Replica], joined: Mapping[ReplicaKey, ReplicaSeries], look: Look
) -> tuple[Violation, ...]:
    """Return what is broken for a pool's ready replicas, by quantity; replicas settling in are left out."""
    required = [q for q in QUANTITIES if q.required]
    found: dict[tuple[str, Breach, str], list[str]] = {}
    for replica in ready:
        series = joined.get((pool, replica.name), NO_SERIES)
        settling = replica.ready_at_s is not None and look.now_s - replica.ready_at_s < look.settings.settle_s
        if settling and not series.by_name:
            continue
        for quantity, breach, detail in _breaches(required, series, look):
            found.setdefault((quantity, breach, detail), []).append(replica.name)
    return tuple(
        Violation(pool=pool, quantity=quantity, breach=breach, replicas=tuple(names), detail=detail)
        for (quantity, breach, detail), names in found.items()
    )


def _breaches(required: Iterable[Quantity], series: ReplicaSeries, look: Look) -> Iterable[tuple[str, Breach, str]]:
    up = series.up
    if up is None and not series.by_name:
        yield "scrape target", Breach.NO_TARGET, "Prometheus has no target for replica {replicas}"
        return
    if up is not None and not up[1]:
        yield (
            "scrape target",
            Breach.TARGET_DOWN,
            "the target of replica {replicas} is down: /metrics does not answer",
        )
        return
    interval_s = scraped_every_s(series.of(UP))
    if interval_s is not None and interval_s > 1.5 * look.settings.scrape_interval_s:
        detail = f"replica {{replicas}} is scraped every {interval_s:.1f} s, not every"
        yield "scrape interval", Breach.SLOW_SCRAPE, f"{detail} {look.settings.scrape_interval_s:g} s as set"
    for quantity in required:
        breach = breach_of(quantity, series, look)
        if breach is not None:
            yield quantity.name, *breach


def scraped_every_s(up: Iterable[Series]) -> float | None:
    """Return the shortest time between two scrapes of `up` series, or None when too few were seen.

    The shortest, because a scrape that was lost, or an outage, only makes longer ones.
    """
    gaps = [after[0] - before[0] for s in up for before, after in pairwise(s.samples)]
    return min(gaps) if len(gaps) >= _FEWEST_GAPS else None


def breach_of(quantity: Quantity, series: ReplicaSeries, look: Look, part: str = "") -> tuple[Breach, str] | None:
    """Return how a scraped replica breaks the contract for one quantity, or None when a live series matches."""
    found = candidates(quantity, series, look, part)
    newest_at_s = max((s.newest_at_s for c in found for s in c.series), default=None)
    seen_at_s = series.up[0] if series.up is not None else look.now_s
    if newest_at_s is None or seen_at_s - newest_at_s > 2.5 * look.settings.scrape_interval_s:
        usual = look.catalogue.prefixes[:2]
        names = [name for name, _ in look.catalogue.spellings(quantity.name) if name.startswith(usual)]
        listed = ", ".join(names[:_LONGEST_LIST])
        state = "target is up" if series.up is not None else "other series of it are there"
        return Breach.FAMILY_MISSING, f"none of {listed} matches a live series of replica {{replicas}} ({state})"
    label = look.catalogue.model_label
    models = sorted({s.labels.get(label, look.model) for c in found for s in c.series})
    if look.model not in models:
        there = ", ".join(models[:_LONGEST_LIST]).replace("{", "{{").replace("}", "}}")
        wanted = look.model.replace("{", "{{").replace("}", "}}")
        detail = f"{label} is {there} on replica {{replicas}}, the policy says {wanted}"
        return Breach.WRONG_MODEL, detail
    return None
