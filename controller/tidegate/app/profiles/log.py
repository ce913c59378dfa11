"""Benchmark logs: what was asked when, and how long the answers took."""

import csv
import gzip
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tidegate.app.config_problem import did_you_mean
from tidegate.terms.errors import BadInputError

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
NEEDED = ("arrival_s", "input_tokens", "output_tokens", "ttft_s", "decode_s")
OPTIONAL = ("workload", "qps", "replicas")
_MOST_TOKENS = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Load:
    """One run of a benchmark: requests in order of arrival, as columns of shape (n,)."""

    workload: str
    qps: str  # as written; empty when the log has no such column
    replicas: int
    arrival_s: FloatArray  # >= 0, never falling
    prompt_tokens: Int64Array
    output_tokens: Int64Array
    ttft_s: FloatArray  # from arrival to first token
    decode_s: FloatArray  # from first to last token

    @property
    def name(self) -> str:
        """How the load is named on the command line and in tables."""
        return " ".join(part for part in (self.workload, self.qps) if part) or "all"

    def __len__(self) -> int:
        return len(self.arrival_s)


def read_log(path: Path, *, replicas: int) -> tuple[Load, ...]:
    """Return the loads of a CSV (or .csv.gz), by workload and rising qps.

    Needed columns: NEEDED. `workload`, `qps` and `replicas`, where present, tell loads apart.

    Args:
        path: The file.
        replicas: Of every load, when the file has no such column, >= 1.

    Raises:
        BadInputError: Not readable, no such columns, no rows, or a value out of range; names file, row and column.
    """
    columns: dict[tuple[str, str, int], list[tuple[float, int, int, float, float]]] = {}
    for row, found in _rows(path):
        where = f"{path}: row {row}"
        count = _whole(found.get("replicas") or replicas, "replicas", where)
        key = (found.get("workload") or "", found.get("qps") or "", count)
        request = (
            _number(found["arrival_s"], "arrival_s", where, least=0.0),
            _whole(found["input_tokens"], "input_tokens", where),
            _whole(found["output_tokens"], "output_tokens", where),
            _number(found["ttft_s"], "ttft_s", where, least=1e-9),
            _number(found["decode_s"], "decode_s", where, least=0.0),
        )
        rows = columns.setdefault(key, [])
        if rows and request[0] < rows[-1][0]:
            advice = "sort the rows, or give each load its own qps or workload"
            msg = f"{where}: arrival_s: must not fall within a load: {rows[-1][0]:g}, then {request[0]:g}; {advice}"
            raise BadInputError(msg)
        rows.append(request)
    if not columns:
        msg = f"{path}: must hold at least one request, has none"
        raise BadInputError(msg)
    return tuple(_load(key, columns[key]) for key in sorted(columns, key=_order))


def _order(key: tuple[str, str, int]) -> tuple[str, float, str, int]:
    workload, qps, replicas = key
    try:
        rate = float(qps)
    except ValueError:
        rate = math.inf
    return workload, rate, qps, replicas


def _load(key: tuple[str, str, int], rows: list[tuple[float, int, int, float, float]]) -> Load:
    whole = np.array(rows, dtype=np.float64)
    return Load(
        workload=key[0],
        qps=key[1],
        replicas=key[2],
        arrival_s=whole[:, 0],
        prompt_tokens=whole[:, 1].astype(np.int64),
        output_tokens=whole[:, 2].astype(np.int64),
        ttft_s=whole[:, 3],
        decode_s=whole[:, 4],
    )


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="utf-8", newline="") as lines:
            reader = csv.DictReader(lines)
            header = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = header
            missing = [name for name in NEEDED if name not in header]
            if missing:
                hint = did_you_mean(missing[0], header)
                msg = f"{path}: must have the columns {', '.join(missing)}; found {', '.join(header) or 'none'}{hint}"
                raise BadInputError(msg)
            for row in reader:
                if None in row or None in row.values():
                    msg = f"{path}: row {reader.line_num}: must have {len(header)} columns, as the header"
                    raise BadInputError(msg)
                yield reader.line_num, row
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as exc:
        why = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        msg = f"{path}: cannot be read as CSV: {why}"
        raise BadInputError(msg) from exc


def _number(text: object, column: str, where: str, *, least: float) -> float:
    try:
        value = float(str(text))
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= least):
        must = "a number > 0" if least > 0.0 else "a number >= 0"
        msg = f"{where}: {column}: must be {must}, got {str(text)!r}"
        raise BadInputError(msg)
    return value


def _whole(text: object, column: str, where: str) -> int:
    value = _number(text, column, where, least=0.0)
    if value != int(value) or not 1 <= value <= _MOST_TOKENS:
        msg = f"{where}: {column}: must be a whole number >= 1, got {str(text)!r}"
        raise BadInputError(msg)
    return int(value)
