"""The two ends of a rate, and the signals read off them."""

from dataclasses import dataclass

from tidegate.sim.membership import SOURCE
from tidegate.sim.metric_faults import Source
from tidegate.sim.sample import FleetSample
from tidegate.terms.signal import Signal, Unknown, UnknownReason, reading, unknown

_YOUNG = "scraped for less than the window"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The two ends that a rate of one source is taken over, as far as they are stored."""

    source: Source
    now_s: float
    copies: int  # of each series
    number: int  # of the newest scrape that can be read, -1 of none
    last: FleetSample | None
    first: FleetSample | None
    at_s: float  # of the newest scrape
    span_s: float
    why: tuple[UnknownReason, str]  # there is no last sample

    def gauge(self, number: float) -> Signal:
        """Return a number read off `last`; unknown without one."""
        return self.lost() if self.last is None else self.read(number)

    def rate(self, counter: str) -> Signal:
        """Return the growth of one of the fleet's counters, per second."""
        if self.last is None:
            return self.lost()
        if self.first is None:
            return self.young()
        grown = getattr(self.last, counter) - getattr(self.first, counter)
        return self.read(self.copies * int(grown) / self.span_s)

    def read(self, number: float, *, coverage_ratio: float = 1.0) -> Signal:
        """Return the signal of a number as of the newest scrape."""
        return reading(number, sampled_at_s=self.at_s, coverage_ratio=coverage_ratio, source=SOURCE)

    def lost(self) -> Unknown:
        """Return why nothing is known."""
        return unknown(self.why[0], self.why[1], now_s=self.now_s, source=SOURCE)

    def young(self) -> Unknown:
        """Return that no rate can be known yet."""
        return unknown(UnknownReason.TOO_YOUNG, _YOUNG, now_s=self.now_s, source=SOURCE)
