"""The demo's arrivals: a slice of a real trace, thinned to a tide that rises and falls."""

import csv
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from tidegate.sim.arrivals import Arrival
from tidegate.terms.errors import BadInputError

# (share of the demo's length, share of the real requests kept): low water, flood, high water, ebb, low water.
TIDE = ((0.0, 0.09), (0.12, 0.09), (0.4, 0.85), (0.52, 0.85), (0.63, 0.15), (1.0, 0.15))

# Fractional part of the golden ratio: its multiples spread evenly over 0..1, so thinning is even and repeatable.
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0

_COLUMNS = ("arrival_s", "input_tokens", "output_tokens")


class TraceFileError(BadInputError):
    """A trace that cannot be used; names file, line, column and value."""


def read_trace(path: Path) -> tuple[Arrival, ...]:
    """Return all requests of a CSV trace, ascending in time.

    Raises:
        TraceFileError: Unreadable, empty, wrong header, or a value that is not a finite, non-negative number.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            found = tuple(_rows(path, file))
    except OSError as exc:
        msg = f"{path}: cannot be read: {exc.strerror}"
        raise TraceFileError(msg) from exc
    except (UnicodeDecodeError, csv.Error) as exc:
        msg = f"{path}: is not a CSV text file: {exc}"
        raise TraceFileError(msg) from exc
    if not found:
        msg = f"{path}: holds no request; must have at least one row under {','.join(_COLUMNS)}"
        raise TraceFileError(msg)
    return found


def _rows(path: Path, lines: Iterator[str]) -> Iterator[Arrival]:
    reader = csv.DictReader(lines)
    columns = tuple(reader.fieldnames or ())
    missing = [c for c in _COLUMNS if c not in columns]
    if missing:
        msg = f"{path}:1: columns {', '.join(missing)} are missing; found {', '.join(columns) or 'no header'}"
        raise TraceFileError(msg)
    last_s = -math.inf
    for row in reader:
        where = f"{path}:{reader.line_num}"
        at_s = _number(where, "arrival_s", row["arrival_s"])
        if at_s < last_s:
            msg = f"{where}: arrival_s: must not be earlier than the row before ({last_s:g}), got {at_s:g}"
            raise TraceFileError(msg)
        last_s = at_s
        yield Arrival(
            at_s=at_s,
            prompt_tokens=int(_number(where, "input_tokens", row["input_tokens"], least=1.0)),
            output_tokens=int(_number(where, "output_tokens", row["output_tokens"], least=1.0)),
        )


def _number(where: str, column: str, text: str | None, *, least: float = 0.0) -> float:
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < least:
        msg = f"{where}: {column}: must be a finite number >= {least:g}, got {text!r}"
        raise TraceFileError(msg)
    return number


def tide_ratio(at_ratio: float) -> float:
    """Return the share of real requests kept at `at_ratio` (0..1) of the demo: linear between the points of TIDE."""
    for (x0, y0), (x1, y1) in pairwise(TIDE):
        if at_ratio <= x1:
            return y0 + (y1 - y0) * (at_ratio - x0) / (x1 - x0)
    return TIDE[-1][1]


def tidal(trace: Sequence[Arrival], *, seconds: float, copies: int = 1) -> tuple[Arrival, ...]:
    """Return the first `seconds` of the trace, thinned to the tide.

    Args:
        trace: Ascending in time.
        seconds: Length of the demo, > 0; the tide is stretched to it, the trace is not.
        copies: Superposes this many stretches of the trace, each `seconds` long, to scale the load up.

    Raises:
        TraceFileError: The trace is shorter than `seconds * copies`.
    """
    if trace[-1].at_s < seconds * copies * 0.99:
        msg = f"trace: is {trace[-1].at_s:g} s long, must be at least {seconds * copies:g} s for this demo"
        raise TraceFileError(msg)
    kept = [
        Arrival(at_s=a.at_s % seconds, prompt_tokens=a.prompt_tokens, output_tokens=a.output_tokens)
        for i, a in enumerate(trace)
        if a.at_s < seconds * copies and (i * _GOLDEN) % 1.0 < tide_ratio((a.at_s % seconds) / seconds)
    ]
    return tuple(sorted(kept, key=lambda a: a.at_s))
