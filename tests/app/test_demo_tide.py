from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.app.demo.tide import TIDE, TraceFileError, read_trace, tidal, tide_ratio
from tidegate.sim.arrivals import Arrival

SLICE = Path(__file__).parents[2] / "examples" / "traces" / "azure2023_conv_10min.csv"


def test_read_trace_gives_the_shipped_slice_whole() -> None:
    trace = read_trace(SLICE)
    lines = SLICE.read_text().splitlines()
    assert len(trace) == len(lines) - 1
    assert trace[0] == Arrival(
        at_s=float(lines[1].split(",")[0]),
        prompt_tokens=int(lines[1].split(",")[1]),
        output_tokens=int(lines[1].split(",")[2]),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "columns arrival_s, input_tokens, output_tokens are missing; found no header"),
        ("a,b\n1,2\n", "are missing; found a, b"),
        ("arrival_s,input_tokens,output_tokens\n", "holds no request"),
        ("arrival_s,input_tokens,output_tokens\n1,2,3\n0.5,2,3\n", ":3: arrival_s: must not be earlier"),
        ("arrival_s,input_tokens,output_tokens\nnan,2,3\n", ":2: arrival_s: must be a finite number >= 0, got 'nan'"),
        ("arrival_s,input_tokens,output_tokens\n1,-2,3\n", ":2: input_tokens: must be a finite number >= 1, got '-2'"),
        ("arrival_s,input_tokens,output_tokens\n1,2\n", ":2: output_tokens: must be a finite number >= 1, got None"),
    ],
)
def test_read_trace_names_file_line_column_and_value(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(TraceFileError) as caught:
        read_trace(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_read_trace_refuses_binary_missing_and_folders(tmp_path: Path) -> None:
    binary = tmp_path / "b.csv"
    binary.write_bytes(bytes(range(128, 256)) * 10)
    for path, message in [(binary, "not a CSV"), (tmp_path / "no.csv", "No such file"), (tmp_path, "Is a directory")]:
        with pytest.raises(TraceFileError, match=message):
            read_trace(path)


@given(st.floats(0.0, 1.0))
def test_tide_ratio_stays_between_low_and_high_water(at_ratio: float) -> None:
    assert min(y for _, y in TIDE) <= tide_ratio(at_ratio) <= 1.0


def test_tidal_keeps_more_requests_at_high_water_than_at_low() -> None:
    trace = tuple(Arrival(at_s=i / 10.0, prompt_tokens=1, output_tokens=1) for i in range(3000))
    kept = tidal(trace, seconds=200.0)
    low = sum(a.at_s < 20.0 for a in kept) / 200
    high = sum(82.0 <= a.at_s < 102.0 for a in kept) / 200
    assert low == pytest.approx(TIDE[0][1], abs=0.02)
    assert high == pytest.approx(max(y for _, y in TIDE), abs=0.02)
    assert list(kept) == sorted(kept, key=lambda a: a.at_s)
    assert kept == tidal(trace, seconds=200.0)


def test_tidal_superposes_copies_to_scale_the_load() -> None:
    trace = tuple(Arrival(at_s=i / 10.0, prompt_tokens=1, output_tokens=1) for i in range(4001))
    one, two = tidal(trace, seconds=200.0), tidal(trace, seconds=200.0, copies=2)
    assert len(two) == pytest.approx(2 * len(one), rel=0.02)
    assert max(a.at_s for a in two) < 200.0


def test_tidal_refuses_a_trace_that_is_too_short() -> None:
    with pytest.raises(TraceFileError, match="must be at least 200 s"):
        tidal((Arrival(at_s=5.0, prompt_tokens=1, output_tokens=1),), seconds=200.0)
