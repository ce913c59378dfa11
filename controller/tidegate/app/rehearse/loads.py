"""The load a rehearsal plays, drawn anew for each seed; small enough to be sent to other processes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tidegate.app.rehearse.backtest import trace_of_past
from tidegate.app.rehearse.document import Lengths, LoadOverTime, TraceFacts
from tidegate.app.rehearse.past import Past
from tidegate.app.traces.problem import MAX_REQUESTS
from tidegate.app.traces.read import read_trace, read_traces
from tidegate.app.traces.series import LoadSeries, SeriesUnit, arrivals_of, read_series
from tidegate.app.traces.shape import scaled, spread, ticked_s
from tidegate.perf.profile import PS_PER_S
from tidegate.sim.trace import Int64Array, Trace
from tidegate.terms.errors import BadInputError

_DRAWN_STEPS = 288  # of a day: five minutes each
_BUSY_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What the command line says about the load."""

    traces: tuple[Path, ...] = ()
    series: str = ""  # FILE:COLUMN
    series_unit: SeriesUnit | None = None
    lengths_from: Path | None = None
    scale: float = 1.0
    spread_s: float | None = None
    block_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loads:
    """A load for each seed, from a trace, a series or a history.

    What a trace says stays as it is; the seed decides copies' jitter, thinning, places inside ticks, and for a series
    or history the arrivals and their lengths.
    """

    name: str
    files: tuple[str, ...]
    format: str
    trace: Trace | None = None  # the whole load, or only lengths when there is a series
    series: LoadSeries | None = None
    past: Past | None = None
    scale: float = 1.0
    spread_s: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def drawn(self) -> bool:
        """Whether another seed gives another load."""
        return self.series is not None or self.past is not None or self.scale != 1.0 or self.spread_s is not None

    def of(self, seed: int) -> Trace:
        """Return the load under a seed; the same one each time.

        Raises:
            BadInputError: It has no request, or more than can be rehearsed.
        """
        rng = np.random.default_rng([seed, 0x71DE])
        if self.past is not None:
            return trace_of_past(self.past, rng, name=self.name, factor=self.scale)
        if self.trace is None:
            msg = "loads: must be made of a trace, a series or a history"
            raise ValueError(msg)
        if self.series is not None:
            return arrivals_of(self.series, self.trace, rng, factor=self.scale)
        trace = self.trace
        if len(trace) * self.scale > MAX_REQUESTS:
            msg = f"--scale: must leave at most {MAX_REQUESTS} requests, got {self.scale:g} times {len(trace)}"
            raise BadInputError(msg)
        if self.spread_s is not None:
            trace = spread(trace, self.spread_s, rng)
        made = trace if self.scale == 1.0 else scaled(trace, self.scale, rng)
        if not len(made):
            msg = f"--scale: must leave at least one request, got {self.scale:g} of {len(trace)}"
            raise BadInputError(msg)
        return made


def read_loads(options: LoadOptions, *, told: Callable[[Path, int], None] | None = None) -> Loads:
    """Return the loads of trace files, or of a series with lengths from a trace.

    Raises:
        BadInputError: A file cannot be used, or options contradict each other.
    """
    if not options.series:
        read = read_traces(options.traces, block_tokens=options.block_tokens, told=told)
        return Loads(
            name=read.trace.name,
            files=tuple(map(str, read.files)),
            format=read.format,
            trace=read.trace,
            scale=options.scale,
            spread_s=options.spread_s,
            notes=_notes(read.trace, options),
        )
    path, column = _series_parts(options.series)
    if options.lengths_from is None:
        msg = "--series: must come with --lengths-from TRACE, whose request lengths are drawn"
        raise BadInputError(msg)
    series = read_series(path, column, unit=options.series_unit)
    lengths = read_trace(options.lengths_from, block_tokens=options.block_tokens, told=told)
    made = f"Arrivals are Poisson inside each step of {series.name} ({series.unit}); lengths are drawn from"
    return Loads(
        name=series.name,
        files=(str(path), str(options.lengths_from)),
        format=f"series+{lengths.format}",
        trace=lengths.trace,
        series=series,
        scale=options.scale,
        notes=(f"{made} {lengths.trace.name}, in pairs.",),
    )


def _series_parts(text: str) -> tuple[Path, str]:
    file, colon, column = text.rpartition(":")
    if not colon or not file or not column:
        msg = f"--series: must be FILE:COLUMN, got {text!r}"
        raise BadInputError(msg)
    return Path(file), column


def _notes(trace: Trace, options: LoadOptions) -> tuple[str, ...]:
    notes = []
    if options.spread_s is not None:
        notes.append(f"Arrivals are spread evenly over the {options.spread_s:g} s after each.")
    elif (tick_s := ticked_s(trace)) is not None:
        notes.append(
            f"Arrivals come in ticks of about {tick_s:g} s: TTFT here is that of bursts nobody sent; "
            f"give --spread {tick_s:.3g}s."
        )
    if options.scale != 1.0:
        notes.append(
            f"Scaled x{options.scale:g}: copies of each request, each moved by up to 60 s, its prefix kept; "
            "the first copy stays in its place."
        )
    if len(options.traces) > 1:
        notes.append("The files are laid on top of each other, each from its own second 0.")
    return tuple(notes)


def trace_facts(loads: Loads, trace: Trace, *, seed: int) -> TraceFacts:
    """Return what the document says of the load; whether it can be foreseen is filled in later."""
    seconds = max(trace.seconds, 1e-9)
    return TraceFacts(
        name=loads.name,
        files=loads.files,
        format=loads.format,
        requests=len(trace),
        seconds=trace.seconds,
        requests_per_s=len(trace) / seconds,
        peak_requests_per_s=busiest_per_s(trace),
        prompt_tokens=_lengths(trace.prompt_tokens),
        output_tokens=_lengths(trace.output_tokens),
        hash_block_tokens=trace.hash_block_tokens,
        scale=loads.scale,
        seed=seed,
        load=load_over_time(trace),
    )


def _lengths(tokens: Int64Array) -> Lengths:
    p50, p99 = np.quantile(tokens, [0.5, 0.99])
    return Lengths(mean=float(tokens.mean()), p50=float(p50), p99=float(p99))


def busiest_per_s(trace: Trace, *, window_s: float = _BUSY_S) -> float:
    """Return the highest arrival rate over any `window_s` that begins at a request (the whole, if it is shorter)."""
    if not len(trace):
        return 0.0
    window = min(window_s, max(trace.seconds, 1e-9))
    ends = np.searchsorted(trace.arrival_ps, trace.arrival_ps + round(window * PS_PER_S), side="right")
    return float((ends - np.arange(len(trace))).max()) / window


def load_over_time(trace: Trace) -> LoadOverTime:
    """Return arrivals in some hundred equal steps of a round length."""
    span_s = max(trace.seconds, 1.0)
    rounds = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 86_400)
    step_s = float(next((s for s in rounds if span_s / s <= _DRAWN_STEPS), rounds[-1]))
    index = trace.arrival_ps // round(step_s * PS_PER_S)
    counts = np.bincount(index, minlength=int(span_s // step_s) + 1)
    return LoadOverTime(step_s=step_s, requests=tuple(int(n) for n in counts))
