"""crane's EffectiveHPA: an HPA that takes the higher of the load now and the highest load foretold for the next hour.

The metric is requests/s with an AverageValue target. A forecast needs two whole days (or weeks) of history with a daily
or weekly period, is made anew each 12 hours, and travels as an integer. Until there is one the HPA has the reactive
metric alone, so on a day's load this law is an HPA on requests/s.

Missing data: an unknown load makes no sample and no reactive recommendation; the forecast may then raise the count and
not lower it. A restart loses the history here; crane would read it again from Prometheus.

Source: crane, pkg/prediction/dsp and its EffectiveHorizontalPodAutoscaler; `crane_signal` for the forecast.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from tidegate.baselines.crane_signal import STEP_S, FloatArray, foretold, regular
from tidegate.baselines.figures import load_knob, targets
from tidegate.baselines.hpa import SYNC_S, Behavior, HpaState, average_value, follow, of_several
from tidegate.baselines.last_value import arrivals_of
from tidegate.baselines.law import LawMemory, PoolFacts, Proposal, pool_law, share_of
from tidegate.sim.policies import Contender, Knob, Rival, Wants, World

_REFIT_S = 12 * 3600.0
_HISTORY = 15 * 1440  # samples, 15 days
_WINDOW = 60  # samples: predictionWindowSeconds 3600


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outlook:
    """The highest load foretold for the window from each minute on."""

    first_minute: int
    highest: FloatArray  # requests/s of the service

    def at(self, minute: int) -> float | None:
        """Return it for the window that begins at `minute`; None outside what was foretold."""
        index = minute - self.first_minute
        return float(self.highest[index]) if 0 <= index < len(self.highest) else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CraneState:
    """What the predictor and its HPA remember of one pool."""

    samples: tuple[tuple[int, float], ...] = ()  # (minute, requests/s), oldest first
    fitted_at_s: float
    outlook: Outlook | None = None
    hpa: HpaState | None = None


def outlook_of(samples: tuple[tuple[int, float], ...]) -> Outlook | None:
    """Return the outlook after the last sample, or None when the load has no daily or weekly period."""
    if not samples:
        return None
    columns = np.array(samples, dtype=np.float64)
    period = foretold(regular(columns[:, 0].astype(np.int64), columns[:, 1]))
    if period is None:
        return None
    # The window is cut off at the end of what is foretold.
    reach = np.concatenate([period, np.full(_WINDOW, -np.inf)])
    highest = np.lib.stride_tricks.sliding_window_view(reach, _WINDOW + 1).max(axis=1)
    return Outlook(first_minute=samples[-1][0] + 1, highest=highest)


def _rule(facts: PoolFacts, kept: CraneState | None, target: float, share: float) -> tuple[Proposal, CraneState]:
    behavior, load = Behavior(), arrivals_of(facts)
    state = _watched(kept or CraneState(fitted_at_s=facts.now_s), load, facts.now_s)
    ahead = state.outlook.at(math.floor(facts.now_s / STEP_S)) if state.outlook else None
    metrics = [None if load is None else load * share]
    if ahead is not None:
        metrics.append(float(math.trunc(ahead * share)))
    counts = [
        None if m is None else average_value(m, facts.existing, target, tolerance=behavior.tolerance) for m in metrics
    ]
    proposal, hpa = follow(of_several(counts, facts.asked), facts, state.hpa, behavior)
    return proposal, replace(state, hpa=hpa)


def _watched(state: CraneState, load: float | None, now_s: float) -> CraneState:
    """Return the state with this minute's sample and, each 12 hours, a new outlook."""
    minute = math.floor(now_s / STEP_S)
    if load is not None and (not state.samples or state.samples[-1][0] < minute):
        state = replace(state, samples=(*state.samples[-(_HISTORY - 1) :], (minute, load)))
    if now_s - state.fitted_at_s < _REFIT_S:
        return state
    # An outlook that cannot be renewed stays until it runs out.
    return replace(state, fitted_at_s=now_s, outlook=outlook_of(state.samples) or state.outlook)


def _knob(world: World) -> Knob:
    return load_knob(world, world.capacity_per_s, name="averageValue", unit="requests/s per replica", default=None)


def _make(world: World, setting: float | None) -> Contender:
    chosen = _knob(world).default if setting is None else setting
    each = targets(world, world.capacity_per_s, chosen)
    shares = {key: share_of(world, key) for key in each}
    return Contender(
        name="crane-dsp",
        law=pool_law(lambda facts, kept: _rule(facts, kept, each[facts.pool.key], shares[facts.pool.key])),
        start=LawMemory(),
        wants=Wants(period_s=SYNC_S),
        setting=chosen,
    )


RIVALS = (
    Rival(
        name="crane-dsp",
        summary="crane EffectiveHPA: the higher of requests/s now and the highest foretold for an hour",
        source="crane, prediction algorithm dsp, window 3600 s, history 15 d",
        knob=_knob,
        make=_make,
    ),
)
