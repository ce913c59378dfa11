"""The fast reader and the strict one agree: what is taken is what was written, what is not is named by its line."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegate.app.traces.read import TraceFileError, read_trace

_ODD = st.sampled_from(
    ["", " ", "nan", "NaN", "inf", "-1", "0", "1e3", "1e-3", "+5", " 7", "7 ", "1_0", "0x10", "5.0", "5.5", "true",
     "1e400", "9" * 30, "-0", "1,2", '"6"', "'6'", "NA", "null", "#", "1.", ".5", "\t4", "٣", "1e", "--2", "5;6"]
)  # fmt: skip
_WHOLE = st.integers(1, 9999).map(str)


@st.composite
def files(draw: st.DrawFn) -> list[list[str]]:
    """Rows of mostly good cells, at most two of them odd."""
    n = draw(st.integers(1, 6))
    at = sorted(draw(st.lists(st.integers(0, 10_000), min_size=n, max_size=n)))
    rows = [[f"{a / 10:g}", draw(_WHOLE), draw(_WHOLE)] for a in at]
    for _ in range(draw(st.integers(0, 2))):
        rows[draw(st.integers(0, n - 1))][draw(st.integers(0, 2))] = draw(_ODD)
    return rows


@given(rows=files())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=400)
def test_every_file_is_read_as_written_or_refused_with_its_line(rows: list[list[str]], tmp_path: Path) -> None:
    path = tmp_path / "load.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(",".join(r) + "\n" for r in rows), "utf-8")
    trace, said = None, ""
    try:
        trace = read_trace(path).trace
    except TraceFileError as exc:
        said = str(exc)
    if trace is None:
        assert re.search(r"load\.csv:\d+: (arrival_s|input_tokens|output_tokens): got|line \d+: must have 3", said)
        return
    cells = [[c.strip().strip('"') for c in row] for row in rows]
    assert trace.arrival_ps.tolist() == [pytest.approx(float(r[0]) * 1e12, abs=2000) for r in cells]
    assert trace.prompt_tokens.tolist() == [float(r[1]) for r in cells]
    assert trace.output_tokens.tolist() == [float(r[2]) for r in cells]
    assert all(float(a) <= float(b) for (a, *_), (b, *_) in pairwise(cells))
