"""How many replicas there were, worked out from what happened to them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.perf.profile import PS_PER_S
from tidegate.sim.sample import MemberEvent
from tidegate.sim.trace import FloatArray, Int64Array

_STARTING, _READY, _DRAINING, _GONE = range(4)
_BECOMES = {"ordered": _STARTING, "ready": _READY, "draining": _DRAINING, "crashed": _GONE, "ended": _GONE}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplicaCounts:
    """Replicas by state at a row of moments, all pools together; what happened at a moment is counted in."""

    seconds: FloatArray  # (n,)
    ready: Int64Array  # (n,)
    starting: Int64Array  # (n,)
    draining: Int64Array  # (n,)


def counts_at(events: Sequence[MemberEvent], *, interval_s: float, scrapes: int) -> ReplicaCounts:
    """Return the counts at `scrapes` moments, `interval_s` apart from 0 on."""
    at_ps, counts = _walk(events)
    moments_ps = np.arange(scrapes, dtype=np.int64) * round(interval_s * PS_PER_S)
    rows = counts[np.searchsorted(at_ps, moments_ps, side="right")]
    return ReplicaCounts(
        seconds=moments_ps / PS_PER_S, ready=rows[:, _READY], starting=rows[:, _STARTING], draining=rows[:, _DRAINING]
    )


def most_replicas(events: Sequence[MemberEvent]) -> int:
    """Return the most replicas that existed at once."""
    return int(_walk(events)[1].sum(axis=1).max())


def _walk(events: Sequence[MemberEvent]) -> tuple[Int64Array, Int64Array]:
    """Return the events' times, shape (n,), and the counts before the first and after each, shape (n + 1, 3)."""
    state: dict[int, int] = {}
    changes = np.zeros((len(events) + 1, _GONE + 1), dtype=np.int64)
    for row, event in enumerate(events, start=1):
        before, after = state.get(event.member, _GONE), _BECOMES[event.kind]
        changes[row, before] -= 1
        changes[row, after] += 1
        state[event.member] = after
    at_ps = np.array([e.at_ps for e in events], dtype=np.int64)
    counts: Int64Array = changes[:, :_GONE].cumsum(axis=0)
    return at_ps, counts
