"""The load's past on its step grid, gathered as the samples come: no sample is kept for it."""

import math
from collections import deque
from dataclasses import dataclass, field

from tidegate.perf.profile import PS_PER_S
from tidegate.sim.membership import SOURCE
from tidegate.sim.metric_faults import MetricFaults, Source
from tidegate.sim.scrapes import Scrapes
from tidegate.terms.forecast import Quantity
from tidegate.terms.history import History

_COUNTERS = {
    Quantity.REQUESTS_PER_S: "arrived",
    Quantity.PROMPT_TOKENS_PER_S: "prompt_tokens",
    Quantity.OUTPUT_TOKENS_PER_S: "output_tokens",
}


@dataclass(slots=True, kw_only=True)
class Past:
    """Rates of the fleet's load at multiples of `step_s`, each over the rate window before it.

    Args:
        step_s: Of the grid, > 0.
        steps: How many grid points are kept, >= 1.
        window_ps: What a rate is taken over.
        quantities: What is kept.
        faults: They double what is read.
    """

    step_s: float
    steps: int
    window_ps: int
    quantities: tuple[Quantity, ...]
    faults: MetricFaults
    _next: int = 0  # the grid point that comes next
    _points: dict[Quantity, deque[tuple[float, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._points = {quantity: deque() for quantity in self.quantities}

    def advance(self, scrapes: Scrapes, until_ps: int) -> None:
        """Take note of every grid point at or before `until_ps`; one without a full window of scrapes is a gap."""
        while (at_ps := round(self._next * self.step_s * PS_PER_S)) <= until_ps:
            self._note(scrapes, self._next * self.step_s, at_ps)
            self._next += 1

    def histories(self, service: str, *, now_s: float, until_s: float) -> tuple[History, ...]:
        """Return the last `steps` grid points up to now, as far as they can be read at `until_s`."""
        oldest_s = (math.floor(now_s / self.step_s) - self.steps + 1) * self.step_s
        return tuple(
            History(
                service=service,
                quantity=quantity,
                step_s=self.step_s,
                samples=self._readable(points, oldest_s=oldest_s, until_s=until_s),
                source=SOURCE,
            )
            for quantity, points in self._points.items()
        )

    @staticmethod
    def _readable(
        points: deque[tuple[float, float]], *, oldest_s: float, until_s: float
    ) -> tuple[tuple[float, float], ...]:
        while points and points[0][0] < oldest_s:
            points.popleft()
        if points and points[-1][0] > until_s:
            return tuple(p for p in points if p[0] <= until_s)
        return tuple(points)

    def _note(self, scrapes: Scrapes, at_s: float, at_ps: int) -> None:
        number = scrapes.newest(at_ps)
        back = -(-self.window_ps // scrapes.interval_ps)
        last = scrapes.get(Source.GATEWAY, number)
        first = scrapes.get(Source.GATEWAY, number - back)
        if last is None or first is None:
            return
        span_s = back * scrapes.interval_ps / PS_PER_S
        copies = self.faults.copies(at_s)
        for quantity, points in self._points.items():
            counter = _COUNTERS[quantity]
            grown = int(getattr(last, counter)) - int(getattr(first, counter))
            points.append((at_s, copies * grown / span_s))
