"""Trace files to traces: the format is told from the first line."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.app.traces.blocks import DEFAULT_BLOCK_TOKENS
from tidegate.app.traces.csv_fast import read_csv
from tidegate.app.traces.layout import MOONCAKE, header_of
from tidegate.app.traces.mooncake import read_jsonl
from tidegate.app.traces.problem import TraceFileError, bad_file
from tidegate.app.traces.shape import merged
from tidegate.app.traces.source import first_line, opened, stem
from tidegate.sim.trace import Trace

__all__ = ["ReadTrace", "TraceFileError", "read_trace", "read_traces"]

Told = Callable[[Path, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTrace:
    """A trace and how it was read."""

    trace: Trace
    format: str  # "tidegate-csv", "azure-csv", "mooncake-jsonl"; several joined by "+"
    files: tuple[Path, ...]


def read_trace(path: Path, *, block_tokens: int = DEFAULT_BLOCK_TOKENS, told: Told | None = None) -> ReadTrace:
    """Return the trace in one file.

    Args:
        path: CSV with a header of ours or Azure's, or JSON lines as Mooncake's; plain or gzip.
        block_tokens: Prompt tokens that one hash block stands for.
        told: Called now and then with the file and the number of requests read so far.

    Raises:
        TraceFileError: The file cannot be used; the text names line, field, value and what it must be.
    """
    with opened(path) as stream:
        line = first_line(path, stream)
    on_rows = None if told is None else lambda rows: told(path, rows)
    if line.lstrip().startswith("{"):
        name = MOONCAKE
        columns = read_jsonl(path, block_tokens=block_tokens, told=on_rows)
    else:
        header = header_of(path, line)
        name = header.layout.name
        columns = read_csv(path, header, block_tokens=block_tokens, told=on_rows)
    if not len(columns):
        raise bad_file(path, "holds no request, must have at least one row under its header")
    return ReadTrace(trace=columns.trace(stem(path)), format=name, files=(path,))


def read_traces(
    paths: Sequence[Path], *, block_tokens: int = DEFAULT_BLOCK_TOKENS, told: Told | None = None
) -> ReadTrace:
    """Return the traces of several files on top of each other, each from its own second 0.

    Raises:
        TraceFileError: Any of them cannot be used.
    """
    read = [read_trace(path, block_tokens=block_tokens, told=told) for path in paths]
    if len(read) == 1:
        return read[0]
    return ReadTrace(
        trace=merged([r.trace for r in read]),
        format="+".join(dict.fromkeys(r.format for r in read)),
        files=tuple(paths),
    )
