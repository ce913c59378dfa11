"""What faults do to samples on their way to a law: while they are taken, and while they are asked for."""

from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from tidegate.perf.profile import PS_PER_S
from tidegate.sim.faults import LATE_S, Fault, FaultName
from tidegate.sim.sample import FleetSample
from tidegate.sim.trace import Int64Array
from tidegate.terms.signal import UnknownReason


class Source(StrEnum):
    """Who exposes a series."""

    GATEWAY = "gateway"
    ENGINE = "engine"


# Gauges of one replica, each a column; and the counters of one replica and of the gateway.
_MEMBER_GAUGES = ("live", "running", "waiting", "kv_used_blocks", "waiting_prompt_tokens", "context_tokens")
_MEMBER_COUNTERS = (
    "finished", "prompt_done_tokens", "output_done_tokens", "preemptions", "hit_tokens", "looked_up_tokens",
)  # fmt: skip
_FLEET_GAUGES = ("pending_prompt_tokens", "in_flight")
_FLEET_COUNTERS = (
    "arrived", "refused", "lost", "answered", "prompt_tokens", "output_tokens", "ttft_counts", "tpot_counts",
    "e2e_counts",
)  # fmt: skip
_BLIND = {
    FaultName.METRIC_ABSENT: (UnknownReason.ABSENT, "no series matches"),
    FaultName.METRIC_NAN: (UnknownReason.NOT_A_NUMBER, "read nan"),
    FaultName.METRIC_RENAMED: (UnknownReason.CONTRACT_VIOLATION, "the family that should be there is not"),
}
UNREADABLE = (UnknownReason.UNREACHABLE, "no answer")


def rows_of(have: Int64Array, wanted: Int64Array) -> Int64Array:
    """Return the row of each wanted member in an ascending column of members; -1 where it is not there."""
    if len(have) == len(wanted) and (have == wanted).all():
        return np.arange(len(have), dtype=np.int64)
    if not len(have):
        return np.full(len(wanted), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(have, wanted), len(have) - 1)
    found: Int64Array = np.where(have[at] == wanted, at, -1)
    return found


@dataclass(slots=True, kw_only=True)
class MetricFaults:
    """The metric faults of one rehearsal. `taken` must see every scrape, in order."""

    faults: tuple[Fault, ...]
    _before: FleetSample | None = None
    _frozen: FleetSample | None = None
    _unscraped: int | None = None
    _lost: list[FleetSample] = field(default_factory=list)  # counters of what each reset swallowed

    def taken(self, sample: FleetSample) -> dict[Source, FleetSample | None]:
        """Return what becomes of a sample by source: as it is stored, or None when nothing is."""
        if not self.faults:
            return {Source.GATEWAY: sample, Source.ENGINE: sample}
        at_s = sample.at_ps / PS_PER_S
        stored = self._without_lost(sample, at_s)
        stored = self._as_frozen(stored, at_s)
        self._before = sample
        engines = None if self._gap(Source.ENGINE, at_s) else self._without_unscraped(stored, at_s)
        return {Source.GATEWAY: None if self._gap(Source.GATEWAY, at_s) else stored, Source.ENGINE: engines}

    def blind(self, source: Source, sampled_at_s: float) -> tuple[UnknownReason, str]:
        """Return why a source has nothing for the scrape at `sampled_at_s`."""
        return self._gap(source, sampled_at_s) or (UnknownReason.ABSENT, "not scraped yet")

    def unreadable(self, now_s: float) -> bool:
        """Return whether no query is answered now."""
        return self._on(FaultName.PROMETHEUS_UNREADABLE, now_s)

    def renamed(self, now_s: float) -> bool:
        """Return whether the engines expose other families than they should."""
        return self._on(FaultName.METRIC_RENAMED, now_s)

    def delay_s(self, now_s: float) -> float:
        """Return how old the newest sample is at least."""
        return LATE_S if self._on(FaultName.SCRAPE_LATE, now_s) else 0.0

    def copies(self, now_s: float) -> int:
        """Return how many times each series is there."""
        return 2 if self._on(FaultName.EXPORTER_DOUBLED, now_s) else 1

    def _on(self, name: FaultName, at_s: float) -> bool:
        return bool(self.faults) and any(f.name is name and f.covers(at_s) for f in self.faults)

    def _gap(self, source: Source, at_s: float) -> tuple[UnknownReason, str] | None:
        for one in self.faults:
            if one.name in _BLIND and one.covers(at_s):
                if one.name is FaultName.METRIC_RENAMED and source is Source.GATEWAY:
                    continue  # the upgrade was of the engines
                return _BLIND[one.name]
        return None

    def _without_lost(self, sample: FleetSample, at_s: float) -> FleetSample:
        """Return the sample with its counters as their increases add up.

        A counter that falls is taken as begun anew from zero. What it had gained between the last scrape before and
        the reset was never seen; here the reset comes just before a scrape, so that is all since the scrape before.
        """
        before = self._before
        if before is not None:
            resets = [f for f in self.faults if f.name is FaultName.COUNTER_RESET]
            if any(before.at_ps / PS_PER_S < f.start_s <= at_s for f in resets):
                self._lost.append(_minus(sample, before))
        for lost in self._lost:
            sample = _minus(sample, lost)
        return sample

    def _as_frozen(self, sample: FleetSample, at_s: float) -> FleetSample:
        if not self._on(FaultName.GAUGE_FROZEN, at_s):
            self._frozen = None
            return sample
        if self._frozen is None:
            self._frozen = sample
        was = self._frozen
        rows = rows_of(was.member, sample.member)
        columns = {
            name: np.where(rows >= 0, getattr(was, name)[rows], getattr(sample, name)) if len(was.member) else now
            for name in _MEMBER_GAUGES
            if (now := getattr(sample, name)) is not None
        }
        return replace(sample, **columns, **{name: getattr(was, name) for name in _FLEET_GAUGES})

    def _without_unscraped(self, sample: FleetSample, at_s: float) -> FleetSample:
        if not self._on(FaultName.REPLICA_UNSCRAPED, at_s):
            self._unscraped = None
            return sample
        if self._unscraped is None and len(sample.member):
            self._unscraped = int(sample.member[0])
        kept = sample.member != self._unscraped
        columns = ("member", *_MEMBER_GAUGES, *_MEMBER_COUNTERS)
        return replace(sample, **{name: getattr(sample, name)[kept] for name in columns})


def _minus(sample: FleetSample, other: FleetSample) -> FleetSample:
    """Return `sample` with the counters of `other` taken off, member by member."""
    rows = rows_of(other.member, sample.member)
    there = rows >= 0
    columns = {}
    for name in _MEMBER_COUNTERS:
        column = getattr(sample, name).copy()
        column[there] -= getattr(other, name)[rows[there]]
        columns[name] = column
    return replace(sample, **columns, **{n: getattr(sample, n) - getattr(other, n) for n in _FLEET_COUNTERS})
