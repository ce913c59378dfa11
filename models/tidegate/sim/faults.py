"""What may go wrong in a rehearsal: with the metrics a law reads, or with the world it acts on.

A fault is a value; when it starts and what it hits follow from the trace and the fleet alone, so a run repeats exactly.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from tidegate.perf.profile import PS_PER_S
from tidegate.sim.trace import Trace

# The busiest stretch of a trace is looked for in windows of this length.
BUSY_S = 600.0
# Two minutes: what the largest cloud gives before it takes a spot machine back.
SPOT_NOTICE_S = 120.0
# Share of the ready replicas that go with the machines taken back, at least one.
SPOT_SHARE_RATIO = 0.25
# A scrape that is late is late by this much.
LATE_S = 30.0


class FaultName(StrEnum):
    """The faults, by their names at the command line."""

    METRIC_ABSENT = "metric-absent"  # every query matches nothing
    METRIC_NAN = "metric-nan"  # every query answers NaN
    METRIC_RENAMED = "metric-renamed"  # an engine upgrade renamed its families, for good
    GAUGE_FROZEN = "gauge-frozen"  # gauges stay as they were and look fresh; counters go on
    EXPORTER_DOUBLED = "exporter-doubled"  # everything is exposed twice, so sums are doubled
    COUNTER_RESET = "counter-reset"  # all counters begin anew; what was counted since the last scrape is lost
    SCRAPE_LATE = "scrape-late"  # the newest sample is half a minute old
    REPLICA_UNSCRAPED = "replica-unscraped"  # the oldest replica that serves is not scraped
    PROMETHEUS_UNREADABLE = "prometheus-unreadable"  # no query is answered; samples go on being taken
    CONTROLLER_RESTART = "controller-restart"  # no decisions, then a law that has forgotten, unless it keeps a journal
    PODS_PENDING = "pods-pending"  # what is ordered finds no node until the end; pending pods cost nothing
    REPLICA_CRASH = "replica-crash"  # the busiest ready replica is gone; its replacement is ordered at once
    SPOT_LOSS = "spot-loss"  # a quarter of the ready replicas drain, and are gone at the end of the notice


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, from `start_s` on for `duration_s`."""

    name: FaultName
    start_s: float  # >= 0
    duration_s: float  # >= 0; infinite: it never heals

    @property
    def end_s(self) -> float:
        """When it is over."""
        return self.start_s + self.duration_s

    def covers(self, at_s: float) -> bool:
        """Return whether it is under way at `at_s`; its end is no part of it."""
        return self.start_s <= at_s < self.end_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Where a fault lies by default: seconds from the middle of the busiest stretch, and how long it lasts."""

    from_middle_s: float
    duration_s: float


# From the rise before the busiest stretch to its end, unless the fault is a moment or has a length of its own.
_PLANS = {
    FaultName.METRIC_ABSENT: _Plan(from_middle_s=-600.0, duration_s=900.0),
    FaultName.METRIC_NAN: _Plan(from_middle_s=-600.0, duration_s=900.0),
    FaultName.METRIC_RENAMED: _Plan(from_middle_s=-600.0, duration_s=math.inf),
    FaultName.GAUGE_FROZEN: _Plan(from_middle_s=-600.0, duration_s=900.0),
    FaultName.EXPORTER_DOUBLED: _Plan(from_middle_s=-600.0, duration_s=900.0),
    FaultName.COUNTER_RESET: _Plan(from_middle_s=-600.0, duration_s=0.0),
    FaultName.SCRAPE_LATE: _Plan(from_middle_s=-600.0, duration_s=900.0),
    FaultName.REPLICA_UNSCRAPED: _Plan(from_middle_s=-600.0, duration_s=900.0),
    FaultName.PROMETHEUS_UNREADABLE: _Plan(from_middle_s=-150.0, duration_s=300.0),  # around the peak
    FaultName.CONTROLLER_RESTART: _Plan(from_middle_s=-300.0, duration_s=30.0),  # as the spike begins
    FaultName.PODS_PENDING: _Plan(from_middle_s=-600.0, duration_s=600.0),
    FaultName.REPLICA_CRASH: _Plan(from_middle_s=0.0, duration_s=0.0),
    FaultName.SPOT_LOSS: _Plan(from_middle_s=0.0, duration_s=SPOT_NOTICE_S),
}
METRIC_FAULTS = frozenset(FaultName) - {
    FaultName.CONTROLLER_RESTART,
    FaultName.PODS_PENDING,
    FaultName.REPLICA_CRASH,
    FaultName.SPOT_LOSS,
}


def busiest_middle_s(trace: Trace) -> float:
    """Return the middle of the ten minutes with the most arrivals, seconds; half the length of a shorter trace."""
    if not len(trace) or trace.seconds <= BUSY_S:
        return trace.seconds / 2.0
    within_ps = round(BUSY_S * PS_PER_S)
    ends = np.searchsorted(trace.arrival_ps, trace.arrival_ps + within_ps)
    busiest = int(np.argmax(ends - np.arange(len(trace))))
    return min(float(trace.arrival_ps[busiest]) / PS_PER_S + BUSY_S / 2.0, trace.seconds - BUSY_S / 2.0)


def fault(name: str, trace: Trace, *, start_s: float | None = None, duration_s: float | None = None) -> Fault:
    """Return a fault by its name, by default around the busiest ten minutes of the trace.

    Args:
        name: A value of `FaultName`.
        trace: The load it is to meet.
        start_s: None: as planned for the name, and not before 0.
        duration_s: None: as planned for the name.

    Raises:
        ValueError: No such name, or a time that is negative or not a number.
    """
    if name not in {n.value for n in FaultName}:
        msg = f"fault: must be one of {', '.join(FaultName)}, got {name!r}"
        raise ValueError(msg)
    known = FaultName(name)
    plan = _PLANS[known]
    start = max(0.0, busiest_middle_s(trace) + plan.from_middle_s) if start_s is None else start_s
    duration = plan.duration_s if duration_s is None else duration_s
    if not (0.0 <= start < math.inf and duration >= 0.0):
        msg = f"fault {name}: start_s must be finite and >= 0 and duration_s >= 0, got {start} and {duration}"
        raise ValueError(msg)
    return Fault(name=known, start_s=start, duration_s=duration)


def faults_named(names: str, trace: Trace) -> tuple[Fault, ...]:
    """Return the faults of a comma-separated list, or every one for "all".

    Raises:
        ValueError: A name that is none.
    """
    wanted = list(FaultName) if names.strip() == "all" else [n.strip() for n in names.split(",") if n.strip()]
    return tuple(fault(name, trace) for name in wanted)
