"""The newest samples of a simulated fleet, as a time series database would hold them."""

from dataclasses import dataclass, field

from tidegate.sim.metric_faults import MetricFaults, Source
from tidegate.sim.sample import FleetSample


@dataclass(slots=True, kw_only=True)
class Scrapes:
    """Samples by number; number k was taken at `k * interval_ps`. The last `keep` are held.

    Args:
        interval_ps: Between two scrapes, > 0.
        keep: How many back anything will be asked for, >= 1.
        faults: What becomes of the samples.
    """

    interval_ps: int
    keep: int
    faults: MetricFaults
    taken: int = 0
    _rings: dict[Source, list[FleetSample | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rings = {source: [None] * self.keep for source in Source}

    def add(self, sample: FleetSample) -> None:
        """Store the next sample."""
        stored = self.faults.taken(sample)
        slot = self.taken % self.keep
        for source, ring in self._rings.items():
            ring[slot] = stored[source]
        self.taken += 1

    def newest(self, at_ps: int) -> int:
        """Return the number of the newest scrape at or before `at_ps`; -1 of none."""
        return min(at_ps // self.interval_ps, self.taken - 1)

    def get(self, source: Source, number: int) -> FleetSample | None:
        """Return what is stored of a scrape; None for a gap, before the first and beyond what is kept."""
        if not max(0, self.taken - self.keep) <= number < self.taken:
            return None
        return self._rings[source][number % self.keep]

    def earliest(self, source: Source, number: int, *, until: int) -> FleetSample | None:
        """Return the first stored sample from `number` on that is before `until`."""
        for candidate in range(max(0, number), until):
            found = self.get(source, candidate)
            if found is not None:
                return found
        return None
