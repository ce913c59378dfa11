"""The two CSV spellings of a trace, told apart by their header."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.app.config_problem import did_you_mean
from tidegate.app.traces.problem import bad_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which column holds what."""

    name: str
    arrival: str
    prompt: str
    output: str
    timestamps: bool = False  # the arrival is a date and time; the first one is second 0
    optional: tuple[str, ...] = ()

    @property
    def required(self) -> tuple[str, ...]:
        """The columns without which it is no trace."""
        return (self.arrival, self.prompt, self.output)


HASH_BLOCKS = "hash_blocks"
OWN = Layout(
    name="tidegate-csv",
    arrival="arrival_s",
    prompt="input_tokens",
    output="output_tokens",
    optional=("prefix_id", "reusable_tokens", HASH_BLOCKS, "client"),
)
AZURE = Layout(name="azure-csv", arrival="TIMESTAMP", prompt="ContextTokens", output="GeneratedTokens", timestamps=True)
_SHOWN_CHARS = 60
LAYOUTS = (OWN, AZURE)
MOONCAKE = "mooncake-jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the first line of a CSV says."""

    layout: Layout
    columns: tuple[str, ...]  # all of them, in order

    @property
    def optional(self) -> tuple[str, ...]:
        """Optional columns that are there."""
        return tuple(c for c in self.layout.optional if c in self.columns)

    @property
    def used(self) -> tuple[str, ...]:
        """Columns that are read, in the file's order."""
        known = (*self.layout.required, *self.layout.optional)
        return tuple(c for c in self.columns if c in known)


def header_of(path: Path, line: str) -> Header:
    """Return the layout a header stands for.

    Raises:
        TraceFileError: It fits none; the text says what was found and what is needed. Or a column is given twice, or
            an optional one seems misspelt.
    """
    columns = tuple(c.strip() for c in next(csv.reader([line]), []))
    fitting = [lay for lay in LAYOUTS if set(lay.required) <= set(columns)]
    if not fitting:
        needs = "; or ".join(f"{','.join(lay.required)} ({lay.name})" for lay in LAYOUTS)
        raise bad_file(
            path,
            f"header: found the columns {_shown(columns)}; needs {needs}; "
            f"or JSON lines with timestamp, input_length, output_length ({MOONCAKE})",
        )
    twice = sorted({c for c in columns if columns.count(c) > 1 and c})
    if twice:
        raise bad_file(path, f"header: column {twice[0]} is given twice")
    layout = fitting[0]
    for column in columns:
        if column not in (*layout.required, *layout.optional):
            meant = did_you_mean(column, layout.optional)
            if meant:
                raise bad_file(path, f"header: unknown column {column!r}{meant}")
    return Header(layout=layout, columns=columns)


def _shown(columns: Sequence[str]) -> str:
    few = [c[:_SHOWN_CHARS] if c.isprintable() else ascii(c[:_SHOWN_CHARS]) for c in columns[:12]]
    return ", ".join(c or "(empty)" for c in few) + (f" and {len(columns) - 12} more" if len(columns) > 12 else "")  # noqa: PLR2004
