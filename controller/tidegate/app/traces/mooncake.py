"""A Mooncake trace: one JSON object a line with `timestamp` (ms), `input_length`, `output_length`, `hash_ids`."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidegate.app.traces.columns import Columns
from tidegate.app.traces.problem import (
    MAX_REQUESTS,
    MAX_SECONDS,
    MAX_TOKENS,
    ORDER_MUST,
    TOKENS_MUST,
    bad_file,
    bad_value,
)
from tidegate.app.traces.source import opened

_PS_PER_MS = 1_000_000_000
_TIME_MUST = f"a number of milliseconds from 0 to {1000 * MAX_SECONDS:.0f}"
_TOLD_EVERY = 50_000


def read_jsonl(path: Path, *, block_tokens: int, told: Callable[[int], None] | None = None) -> Columns:
    """Return the columns of a Mooncake trace; `hash_ids` may be left out, by all requests or none.

    Raises:
        TraceFileError: Any line is wrong; the text names line, field and value.
    """
    columns = Columns(block_tokens=block_tokens)
    with opened(path) as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as exc:
                raise bad_file(path, f"line {number}: must be one JSON object: {_why(exc)}") from exc
            if not isinstance(row, dict):
                raise bad_file(path, f"line {number}: must be one JSON object, is {type(row).__name__}")
            if not len(columns) and "hash_ids" in row:
                columns = Columns(block_tokens=block_tokens, hashed=True)
            _take(path, number, row, columns)
            if columns.full:
                raise bad_file(path, f"must hold at most {MAX_REQUESTS} requests, holds more")
            if told is not None and len(columns) % _TOLD_EVERY == 0:
                told(len(columns))
    return columns


def _why(exc: Exception) -> str:
    return exc.msg if isinstance(exc, json.JSONDecodeError) else type(exc).__name__


def _take(path: Path, number: int, row: dict[str, Any], columns: Columns) -> None:
    missing = [f for f in ("timestamp", "input_length", "output_length") if f not in row]
    if missing:
        found = ", ".join(list(row)[:12]) or "none"
        raise bad_file(path, f"line {number}: fields {', '.join(missing)} are missing; found {found}")
    at_ms = row["timestamp"]
    if not _is_number(at_ms) or not 0 <= at_ms <= 1000 * MAX_SECONDS:
        raise bad_value(path, number, "timestamp", at_ms, _TIME_MUST)
    at_ps = round(at_ms * _PS_PER_MS)
    if len(columns) and at_ps < columns.arrival_ps[-1]:
        raise bad_value(path, number, "timestamp", at_ms, f"{ORDER_MUST}: sort the file by timestamp")
    for field in ("input_length", "output_length"):
        if not isinstance(row[field], int) or isinstance(row[field], bool) or not 1 <= row[field] <= MAX_TOKENS:
            raise bad_value(path, number, field, row[field], TOKENS_MUST)
    columns.arrival_ps.append(at_ps)
    columns.prompt_tokens.append(row["input_length"])
    columns.output_tokens.append(row["output_length"])
    ids = row.get("hash_ids", [])
    if columns.blocks is None:
        if "hash_ids" in row:
            raise bad_value(path, number, "hash_ids", ids, "given from the first line on, or never")
        return
    if not isinstance(ids, list):
        raise bad_value(path, number, "hash_ids", ids, "a list of whole numbers")
    try:
        columns.blocks.add_ids(ids, row["input_length"])
    except ValueError as exc:
        raise bad_value(path, number, "hash_ids", ids, str(exc)) from exc


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
