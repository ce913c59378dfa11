"""A CSV trace in chunks of columns; anything odd is left to the row reader to explain."""

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd  # type: ignore[import-untyped]  # publishes no types

from tidegate.app.traces.columns import OPTIONAL, Columns
from tidegate.app.traces.csv_rows import explain
from tidegate.app.traces.layout import HASH_BLOCKS, Header, Layout
from tidegate.app.traces.problem import MAX_ID, MAX_REQUESTS, MAX_SECONDS, MAX_TOKENS, bad_file
from tidegate.app.traces.source import opened
from tidegate.perf.profile import PS_PER_S
from tidegate.sim.trace import Int64Array

_CHUNK_ROWS = 200_000
_PS_PER_NS = 1000
Told = Callable[[int], None]


class _OddError(Exception):
    """Something the row reader must look at."""


def read_csv(path: Path, header: Header, *, block_tokens: int, told: Told | None = None) -> Columns:
    """Return the columns of a CSV trace.

    Args:
        path: Plain or gzip.
        header: Its first line.
        block_tokens: Prompt tokens that one hash block stands for.
        told: Called with the number of rows read so far.

    Raises:
        TraceFileError: Any row is wrong; the text names line, field and value.
    """
    optional = tuple(c for c in header.optional if c in OPTIONAL)
    columns = Columns(block_tokens=block_tokens, optional=optional, hashed=HASH_BLOCKS in header.optional)
    try:
        with opened(path) as stream, warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            reader = _Reader(header, columns)
            for chunk in _chunks(stream, header):
                reader.take(chunk)
                if columns.full:
                    raise bad_file(path, f"must hold at most {MAX_REQUESTS} requests, holds more")
                if told is not None:
                    told(len(columns))
    except (_OddError, pd.errors.ParserError, pd.errors.ParserWarning, pd.errors.EmptyDataError, ValueError) as exc:
        raise explain(path, header, block_tokens) from exc
    return columns


def _chunks(stream: io.BufferedReader, header: Header) -> Any:  # noqa: ANN401  (pandas publishes no types)
    texts = [c for c in (HASH_BLOCKS, header.layout.arrival if header.layout.timestamps else "") if c in header.columns]
    stream.readline()
    # All columns are named and none is chosen: else pandas drops what a row has too much without a word.
    names = [c if c in header.used else f"unused {i}" for i, c in enumerate(header.columns)]
    return pd.read_csv(
        stream,
        chunksize=_CHUNK_ROWS,
        header=None,
        names=names,
        dtype=dict.fromkeys(texts, str),
        index_col=False,
        na_filter=False,
        low_memory=False,
        encoding="utf-8",
    )


class _Reader:
    """Takes chunks in order and appends what they hold."""

    def __init__(self, header: Header, columns: Columns) -> None:
        self._header = header
        self._columns = columns
        self._last_ps = 0
        self._first_ns: int | None = None

    def take(self, chunk: Any) -> None:  # noqa: ANN401
        layout = self._header.layout
        if not len(chunk):
            return
        arrival_ps = self._moments(chunk, layout) if layout.timestamps else _seconds(chunk[layout.arrival].to_numpy())
        if arrival_ps[0] < self._last_ps or np.any(arrival_ps[1:] < arrival_ps[:-1]):
            raise _OddError
        self._last_ps = int(arrival_ps[-1])
        prompt = _whole(chunk[layout.prompt].to_numpy(), 1, MAX_TOKENS)
        output = _whole(chunk[layout.output].to_numpy(), 1, MAX_TOKENS)
        self._columns.extend(arrival_ps, prompt, output)
        for name in self._columns.optional:
            values = _whole(chunk[name].to_numpy(), 0, MAX_ID)
            if name == "reusable_tokens" and np.any(values > prompt):
                raise _OddError
            self._columns.extend_optional(name, values)
        if self._columns.blocks is not None:
            for text, tokens in zip(chunk[HASH_BLOCKS].tolist(), prompt.tolist(), strict=True):
                self._columns.blocks.add_text(text, tokens)

    def _moments(self, chunk: Any, layout: Layout) -> Int64Array:  # noqa: ANN401
        at = pd.to_datetime(chunk[layout.arrival], format="ISO8601", utc=True, errors="coerce")
        if at.isna().any():
            raise _OddError
        ns: Int64Array = at.to_numpy(dtype="datetime64[ns]").astype(np.int64)
        if self._first_ns is None:
            self._first_ns = int(ns[0])
        since_ns = ns - self._first_ns
        if np.any(since_ns < 0) or np.any(since_ns > MAX_SECONDS * 1e9):
            raise _OddError
        return since_ns * _PS_PER_NS


def _seconds(values: npt.NDArray[Any]) -> Int64Array:
    if values.dtype.kind not in "iuf":
        raise _OddError
    seconds = values.astype(np.float64)
    if not np.all((seconds >= 0.0) & (seconds <= MAX_SECONDS)):  # NaN fails both
        raise _OddError
    return np.rint(seconds * PS_PER_S).astype(np.int64)


def _whole(values: npt.NDArray[Any], least: int, most: int) -> Int64Array:
    if values.dtype.kind not in "iuf":
        raise _OddError
    if values.dtype.kind == "f" and not np.all(np.isfinite(values) & (values == np.rint(values))):
        raise _OddError
    # Compared before the cast: a count beyond 64 bits would wrap into range.
    if not np.all((values >= least) & (values <= most)):
        raise _OddError
    return values.astype(np.int64)
