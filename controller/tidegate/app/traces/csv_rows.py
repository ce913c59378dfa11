"""A CSV trace row by row, as strict as can be: finds the line, field and value that the fast reader tripped over."""

import csv
import io
import math
import re
from datetime import UTC, datetime
from pathlib import Path

from tidegate.app.traces.blocks import Blocks
from tidegate.app.traces.layout import HASH_BLOCKS, Header, Layout
from tidegate.app.traces.problem import (
    MAX_ID,
    MAX_SECONDS,
    MAX_TOKENS,
    ORDER_MUST,
    SECONDS_MUST,
    TOKENS_MUST,
    TraceFileError,
    bad_file,
    bad_value,
)
from tidegate.app.traces.source import opened

_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*\Z", re.ASCII)
ID_MUST = f"a whole number from 0 to {MAX_ID}"
TIMESTAMP_MUST = "a date and time such as 2023-11-16 18:15:46.6805900"


def explain(path: Path, header: Header, block_tokens: int) -> TraceFileError:
    """Return what is wrong with the first row of a CSV trace that is not right."""
    with opened(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        reader = csv.reader(text)
        try:
            next(reader)
            check = _Check(path, header, block_tokens)
            for row in reader:
                if row:
                    check.row(reader.line_num, row)
        except csv.Error as exc:
            return bad_file(path, f"line {reader.line_num}: must be CSV: {exc}")
        except TraceFileError as exc:
            return exc
    return bad_file(path, "must be a CSV with one request a line; rows of another shape or numbers of another spelling")


class _Check:
    def __init__(self, path: Path, header: Header, block_tokens: int) -> None:
        self._path = path
        self._header = header
        self._blocks = block_tokens
        self._last_s = -math.inf
        self._first: datetime | None = None

    def row(self, line: int, row: list[str]) -> None:
        """Raise TraceFileError when the row is wrong."""
        header, layout = self._header, self._header.layout
        if len(row) != len(header.columns):
            raise bad_file(self._path, f"line {line}: must have {len(header.columns)} fields, has {len(row)}")
        cells = dict(zip(header.columns, row, strict=True))
        self._arrival(line, layout, cells[layout.arrival])
        prompt = self._whole(line, layout.prompt, cells, (1, MAX_TOKENS), TOKENS_MUST)
        self._whole(line, layout.output, cells, (1, MAX_TOKENS), TOKENS_MUST)
        for name in header.optional:
            if name == HASH_BLOCKS:
                self._hashes(line, cells[name], prompt)
            elif name == "reusable_tokens":
                self._whole(line, name, cells, (0, prompt), f"a whole number from 0 to input_tokens ({prompt})")
            else:
                self._whole(line, name, cells, (0, MAX_ID), ID_MUST)

    def _arrival(self, line: int, layout: Layout, text: str) -> None:
        at_s = self._since_first(line, text, layout) if layout.timestamps else self._seconds(line, text, layout)
        if at_s < self._last_s:
            raise bad_value(self._path, line, layout.arrival, text, f"{ORDER_MUST}: sort the file by {layout.arrival}")
        if at_s > MAX_SECONDS:
            must = f"within {MAX_SECONDS:.0f} s of the first row" if layout.timestamps else SECONDS_MUST
            raise bad_value(self._path, line, layout.arrival, text, must)
        self._last_s = at_s

    def _seconds(self, line: int, text: str, layout: Layout) -> float:
        at_s = float(text) if _NUMBER.match(text) else math.nan
        if not math.isfinite(at_s) or at_s < 0.0:
            raise bad_value(self._path, line, layout.arrival, text, SECONDS_MUST)
        return at_s

    def _since_first(self, line: int, text: str, layout: Layout) -> float:
        try:
            at = datetime.fromisoformat(text.strip())
        except ValueError as exc:
            raise bad_value(self._path, line, layout.arrival, text, TIMESTAMP_MUST) from exc
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        self._first = self._first or at
        return (at - self._first).total_seconds()

    def _whole(self, line: int, name: str, cells: dict[str, str], bounds: tuple[int, int], must: str) -> int:
        text = cells[name]
        number = float(text) if _NUMBER.match(text) else math.nan
        if not math.isfinite(number) or number != int(number) or not bounds[0] <= number <= bounds[1]:
            raise bad_value(self._path, line, name, text, must)
        return int(number)

    def _hashes(self, line: int, text: str, prompt: int) -> None:
        try:
            Blocks(self._blocks).add_text(text, prompt)
        except ValueError as exc:
            raise bad_value(self._path, line, HASH_BLOCKS, text, str(exc)) from exc
