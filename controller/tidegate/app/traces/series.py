"""A load series (requests or tokens per step) turned into arrivals, lengths drawn from a trace."""

import csv
import io
import math
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np

from tidegate.app.config_problem import did_you_mean
from tidegate.app.traces.problem import MAX_REQUESTS, MAX_SECONDS, bad_file, bad_value
from tidegate.app.traces.source import first_line, opened, stem
from tidegate.perf.profile import PS_PER_S
from tidegate.sim.trace import FloatArray, Trace

MAX_STEPS = 1_000_000
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*\Z", re.ASCII)
_TIME_COLUMNS = ("t_s", "time_s", "arrival_s", "timestamp_s")
_VALUE_MUST = "a number from 0 on"


class SeriesUnit(StrEnum):
    """What a number of a load series counts."""

    REQUESTS = "requests"  # per step
    REQUESTS_PER_MIN = "requests/min"
    REQUESTS_PER_S = "requests/s"
    TOKENS = "tokens"  # prompt tokens per step
    TOKENS_PER_MIN = "tokens/min"
    TOKENS_PER_S = "tokens/s"

    @property
    def tokens(self) -> bool:
        """Whether prompt tokens are counted, not requests."""
        return self.value.startswith("tokens")

    @property
    def per_s(self) -> float | None:
        """Seconds that one number covers; None: its own step."""
        return {"min": 60.0, "s": 1.0}.get(self.value.partition("/")[2])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadSeries:
    """Load by step; step i runs from `start_s[i]` for `step_s[i]`."""

    name: str
    start_s: FloatArray  # (n,) ascending, from 0
    step_s: FloatArray  # (n,) > 0
    values: FloatArray  # (n,) >= 0
    unit: SeriesUnit


def unit_of(column: str) -> SeriesUnit:
    """Return what a column's name says it counts: tokens when it says so, per minute or second likewise."""
    lower = column.lower()
    what = "tokens" if "token" in lower or re.search(r"(^|_)tp[sm](_|$)", lower) else "requests"
    every = ""
    if re.search(r"per_?min|(^|_)[rtq]pm(_|$)", lower):
        every = "/min"
    elif re.search(r"per_?s(ec(ond)?)?(_|$)|(^|_)[rtq]ps(_|$)", lower):
        every = "/s"
    return SeriesUnit(what + every)


def read_series(path: Path, column: str, *, unit: SeriesUnit | None = None) -> LoadSeries:
    """Return one column of a CSV of load by time.

    The time column is `t_s` (or `time_s`, `arrival_s`, `timestamp_s`), else the first one: seconds, ascending. A step
    lasts until the next row, the last one as long as the median step.

    Args:
        path: Plain or gzip.
        column: The one to read.
        unit: What it counts; None: as its name says.

    Raises:
        TraceFileError: The file cannot be used; the text names line, column, value and what it must be.
    """
    with opened(path) as stream:
        header = tuple(c.strip() for c in next(csv.reader([first_line(path, stream)]), []))
        if column not in header:
            found = ", ".join(header[:12])
            raise bad_file(path, f"header: no column {column!r}{did_you_mean(column, header)}; found {found}")
        time = next((c for c in _TIME_COLUMNS if c in header), header[0])
        if time == column:
            raise bad_file(path, f"header: {column!r} is the time column, name one of the load")
        at_s, values = _read(path, io.TextIOWrapper(stream, encoding="utf-8", newline=""), header, (time, column))
    if len(at_s) < 2:  # noqa: PLR2004  (one row has no step)
        raise bad_file(path, f"must hold at least two rows, else there is no step, holds {len(at_s)}")
    steps = np.diff(at_s)
    return LoadSeries(
        name=f"{stem(path)}:{column}",
        start_s=at_s - at_s[0],
        step_s=np.append(steps, np.median(steps)),
        values=values,
        unit=unit or unit_of(column),
    )


def _read(
    path: Path, text: io.TextIOWrapper, header: tuple[str, ...], used: tuple[str, str]
) -> tuple[FloatArray, FloatArray]:
    time, column = used
    at_s: list[float] = []
    values: list[float] = []
    for line, row in enumerate(csv.reader(text), start=2):
        if not row:
            continue
        if len(row) != len(header):
            raise bad_file(path, f"line {line}: must have {len(header)} fields, has {len(row)}")
        moment, value = row[header.index(time)], row[header.index(column)]
        moment_must = f"seconds, a number later than the row before, at most {MAX_SECONDS:.0f} after the first"
        at_s.append(_number(path, line, time, moment, moment_must))
        if at_s[-1] - at_s[0] > MAX_SECONDS or (len(at_s) > 1 and at_s[-1] <= at_s[-2]):
            raise bad_value(path, line, time, moment, moment_must)
        values.append(_number(path, line, column, value, _VALUE_MUST))
        if values[-1] < 0.0:
            raise bad_value(path, line, column, value, _VALUE_MUST)
        if len(values) > MAX_STEPS:
            raise bad_file(path, f"must hold at most {MAX_STEPS} rows, holds more")
    return np.array(at_s), np.array(values)


def _number(path: Path, line: int, column: str, text: str, must: str) -> float:
    number = float(text) if _NUMBER.match(text) else math.nan
    if not math.isfinite(number):
        raise bad_value(path, line, column, text, must)
    return number


def expected_requests(series: LoadSeries, lengths: Trace) -> FloatArray:
    """Return the mean number of requests in each step, shape (n,)."""
    per_step = series.values if series.unit.per_s is None else series.values * series.step_s / series.unit.per_s
    return per_step / float(lengths.prompt_tokens.mean()) if series.unit.tokens else per_step


def arrivals_of(series: LoadSeries, lengths: Trace, rng: np.random.Generator, *, factor: float = 1.0) -> Trace:
    """Return a load that follows the series: Poisson arrivals inside each step, lengths drawn in pairs from a trace.

    Args:
        series: The load.
        lengths: Whose (prompt, output) pairs are drawn, with replacement; not empty.
        rng: Draws counts, times and lengths.
        factor: Multiplies the load, > 0.

    Raises:
        TraceFileError: It would be more requests than can be rehearsed, or none.
    """
    mean = expected_requests(series, lengths) * factor
    where = Path(series.name)
    if float(mean.sum()) > MAX_REQUESTS:
        must = f"must stand for at most {MAX_REQUESTS} requests, stands for {mean.sum():.3g}"
        raise bad_file(where, f"{must}; give --scale below 1, or another --series-unit (now {series.unit})")
    counts = rng.poisson(mean)
    total = int(counts.sum())
    if total == 0:
        raise bad_file(where, f"stands for no request at all, its sum is {series.values.sum():g} {series.unit}")
    at_s = np.repeat(series.start_s, counts) + rng.random(total) * np.repeat(series.step_s, counts)
    at_s.sort()
    chosen = rng.integers(0, len(lengths), total)
    return Trace(
        name=series.name,
        arrival_ps=np.floor(at_s * PS_PER_S).astype(np.int64),
        prompt_tokens=lengths.prompt_tokens[chosen],
        output_tokens=lengths.output_tokens[chosen],
    )
