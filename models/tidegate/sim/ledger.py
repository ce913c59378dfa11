"""What became of each request of a simulated fleet, and the counters a gateway would keep of it."""

from bisect import bisect_left

import numpy as np

from tidegate.sim.sample import Outcomes
from tidegate.sim.setup import FleetSetup
from tidegate.sim.trace import Trace


class Ledger:
    """One row per request of the trace, and totals. Times are picoseconds."""

    def __init__(self, trace: Trace, setup: FleetSetup) -> None:
        self._trace = trace
        self._setup = setup
        # Plain lists: numbers are read and written one at a time.
        self.arrival_ps: list[int] = trace.arrival_ps.tolist()
        self.prompts: list[int] = trace.prompt_tokens.tolist()
        self.outputs: list[int] = trace.output_tokens.tolist()
        self.first_ps = [-1] * len(trace)
        self.ended_ps = [-1] * len(trace)
        self.member = [-1] * len(trace)
        self.arrived = 0
        self.refused = 0
        self.lost = 0
        self.answered = 0
        self.prompt_tokens = 0
        self.output_tokens = 0
        self.pending_prompt_tokens = 0
        self.ttft_counts = [0] * (len(setup.ttft_bounds_ps) + 1)
        self.tpot_counts = [0] * (len(setup.tpot_bounds_ps) + 1)
        self.e2e_counts = [0] * (len(setup.e2e_bounds_ps) + 1)

    @property
    def in_flight(self) -> int:
        """Requests that have arrived and have not come to an end."""
        return self.arrived - self.refused - self.lost - self.answered

    def arrive(self) -> int:
        """Count the next request of the trace and return its index."""
        request = self.arrived
        self.arrived += 1
        self.prompt_tokens += self.prompts[request]
        self.output_tokens += self.outputs[request]
        self.pending_prompt_tokens += self.prompts[request]
        return request

    def refuse(self, request: int) -> None:
        """Note that nobody took a request."""
        self.refused += 1
        self.pending_prompt_tokens -= self.prompts[request]

    def lose(self, request: int) -> None:
        """Note that a crash cut a request."""
        self.lost += 1
        if self.first_ps[request] < 0:
            self.pending_prompt_tokens -= self.prompts[request]

    def begin_answer(self, request: int, at_ps: int) -> None:
        """Note the first token."""
        self.first_ps[request] = at_ps
        self.pending_prompt_tokens -= self.prompts[request]
        self.ttft_counts[bisect_left(self._setup.ttft_bounds_ps, at_ps - self.arrival_ps[request])] += 1

    def end_answer(self, request: int, at_ps: int) -> None:
        """Note the last token."""
        self.ended_ps[request] = at_ps
        self.answered += 1
        self.e2e_counts[bisect_left(self._setup.e2e_bounds_ps, at_ps - self.arrival_ps[request])] += 1
        gaps = self.outputs[request] - 1
        if gaps:
            tpot_ps = (at_ps - self.first_ps[request]) // gaps
            self.tpot_counts[bisect_left(self._setup.tpot_bounds_ps, tpot_ps)] += 1

    def outcomes(self) -> Outcomes:
        """Return what became of the requests so far."""
        return Outcomes(
            trace=self._trace,
            first_ps=np.array(self.first_ps, dtype=np.int64),
            ended_ps=np.array(self.ended_ps, dtype=np.int64),
            member=np.array(self.member, dtype=np.int64),
        )
