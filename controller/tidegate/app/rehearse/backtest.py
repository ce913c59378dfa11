"""A service's own history as a load, and the replicas it really had as one more policy."""

from functools import partial

import numpy as np

from tidegate.app.rehearse.lengths import TokenCounts
from tidegate.app.rehearse.past import LENGTH_STEP_S, Past
from tidegate.app.traces.problem import MAX_REQUESTS
from tidegate.baselines.schedule import Schedule, schedule_contender
from tidegate.perf.profile import PS_PER_S
from tidegate.sim.policies import Contender, Knob, Rival, World
from tidegate.sim.trace import FloatArray, Trace
from tidegate.terms.errors import BadInputError

PRESENT = "present"
_BEYOND_NOTED_RATIO = 0.01


def trace_of_past(past: Past, rng: np.random.Generator, *, name: str, factor: float = 1.0) -> Trace:
    """Return a load like the past: Poisson arrivals at its rates, lengths from its histograms.

    Steps whose rate is unknown get one between their neighbours': unknown is not zero. Prompt and output lengths are
    drawn apart: histograms do not tell which prompt got which answer.

    Args:
        past: At least one known step.
        rng: Draws counts, times and lengths.
        name: Of the trace.
        factor: Multiplies the load, > 0.

    Raises:
        BadInputError: It would be more requests than can be rehearsed, or none.
    """
    rates = filled(past.arrivals_per_s)
    mean = rates * past.step_s * factor
    if float(mean.sum()) > MAX_REQUESTS:
        msg = f"backtest: must be at most {MAX_REQUESTS} requests, is {mean.sum():.3g}: give a shorter --since"
        raise BadInputError(msg)
    counts = rng.poisson(mean)
    total = int(counts.sum())
    if total == 0:
        msg = f"backtest: no request arrived in the time asked for: its mean rate is {rates.mean():g} requests/s"
        raise BadInputError(msg)
    step = np.repeat(np.arange(len(counts)), counts)
    at_s = (step + rng.random(total)) * past.step_s
    at_s.sort()
    stretch = np.floor(at_s / LENGTH_STEP_S).astype(np.int64)
    return Trace(
        name=name,
        arrival_ps=np.floor(at_s * PS_PER_S).astype(np.int64),
        prompt_tokens=past.prompt.draw(_inside(past.prompt, stretch), rng),
        output_tokens=past.output.draw(_inside(past.output, stretch), rng),
    )


def _inside(lengths: object, stretch: np.ndarray) -> np.ndarray:
    """Return stretches cut to those the histogram has: its last one may lack the end of the span."""
    return np.minimum(stretch, len(lengths.counts) - 1) if isinstance(lengths, TokenCounts) else stretch


def filled(values: FloatArray) -> FloatArray:
    """Return the values with each gap drawn straight between its neighbours, the ends held.

    Raises:
        ValueError: None of them is known.
    """
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        msg = "filled: must have at least one known value, has none"
        raise ValueError(msg)
    return np.interp(np.arange(len(values)), known, values[known])


def notes_of(past: Past) -> tuple[str, ...]:
    """Return what a reader must know of a load made from a history."""
    notes = [f"{what}: {source}" for what, source in past.sources]
    notes.append("Arrivals are Poisson inside each step of the history; prompt and output lengths are drawn apart.")
    if past.known_ratio < 1.0:
        notes.append(
            f"{100 * (1 - past.known_ratio):.1f} % of the steps have no arrival rate; they got one between their "
            "neighbours'."
        )
    for side, lengths in (("prompt", past.prompt), ("output", past.output)):
        if lengths.beyond_ratio > _BEYOND_NOTED_RATIO:
            notes.append(
                f"{100 * lengths.beyond_ratio:.1f} % of the {side} lengths lie beyond the histogram's last bound and "
                "count as that bound: the load is lighter than it was."
            )
    if any(what == "arrivals" and "finished" in source for what, source in past.sources):
        notes.append(
            "Arrivals were read off finished requests: where the fleet was overloaded, what really came was more."
        )
    return tuple(notes)


def present_schedule(past: Past, *, cold_start_s: float) -> Schedule | None:
    """Return the replicas the service had, each ordered a cold start before it was seen ready; None when not known.

    What was counted are replicas that served, so their order came a cold start earlier. They leave when they left.
    """
    if not past.replicas:
        return None
    ahead = round(cold_start_s / past.step_s)
    rows = {}
    for key, seen in past.replicas.items():
        serving = np.rint(filled(seen)).astype(int)
        # The greatest of now and the next cold start: ordered early, removed on time.
        asked = [int(serving[i : i + ahead + 1].max()) for i in range(len(serving))]
        rows[key] = tuple(asked)
    return Schedule(step_s=past.step_s, counts=rows)


def present(schedule: Schedule) -> Rival:
    """Return the law that asks for what there was; it has no knob."""
    return Rival(
        name=PRESENT,
        summary="the replica counts the service really had",
        source="your own Prometheus",
        knob=_no_knob,
        make=partial(_present, schedule),
    )


def _no_knob(world: World) -> Knob | None:  # noqa: ARG001  (the signature of Rival)
    return None


def _present(schedule: Schedule, world: World, setting: float | None) -> Contender:  # noqa: ARG001
    return schedule_contender(PRESENT, schedule)
