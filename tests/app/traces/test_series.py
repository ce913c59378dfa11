"""A load series becomes arrivals: as many as it says, when it says, of lengths that were really seen."""

from pathlib import Path

import numpy as np
import pytest

from tidegate.app.traces.problem import TraceFileError
from tidegate.app.traces.series import SeriesUnit, arrivals_of, expected_requests, read_series, unit_of
from tidegate.perf.profile import PS_PER_S
from tidegate.sim.trace import Trace

LENGTHS = Trace(
    name="lengths",
    arrival_ps=np.array([0, 1, 2], dtype=np.int64),
    prompt_tokens=np.array([100, 200, 300], dtype=np.int64),
    output_tokens=np.array([1, 2, 3], dtype=np.int64),
)
TEXT = "t_s,requests,tokens,rpm\n0,600,60000,60\n600,6000,0,30\n1200,60,6000,0\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "load.csv"
    path.write_text(text, encoding="utf-8")
    return path


def rng(seed: int = 3) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        ("value", "requests"),
        ("rpm_mid", "requests/min"),
        ("A_prod_prompt_tokens_per_min", "tokens/min"),
        ("tokens", "tokens"),
        ("requests_per_second", "requests/s"),
        ("tps", "tokens/s"),
        ("tpm", "tokens/min"),
        ("permits", "requests"),
    ],
)
def test_unit_is_told_from_the_name(column: str, unit: str) -> None:
    assert unit_of(column) == SeriesUnit(unit)


def test_series_of_requests_gives_that_many_inside_each_step(tmp_path: Path) -> None:
    series = read_series(written(tmp_path, TEXT), "requests")
    assert series.step_s.tolist() == [600.0, 600.0, 600.0]
    trace = arrivals_of(series, LENGTHS, rng())
    counts = np.histogram(trace.arrival_ps / PS_PER_S, bins=[0, 600, 1200, 1800])[0]
    # Poisson: within five standard deviations.
    for count, mean in zip(counts, (600, 6000, 60), strict=True):
        assert abs(count - mean) < 5 * mean**0.5
    assert np.all(np.diff(trace.arrival_ps) >= 0)
    pairs = set(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))
    assert pairs == {(100, 1), (200, 2), (300, 3)}


def test_series_of_tokens_is_divided_by_the_mean_prompt(tmp_path: Path) -> None:
    series = read_series(written(tmp_path, TEXT), "tokens")
    assert expected_requests(series, LENGTHS).tolist() == [300.0, 0.0, 30.0]


def test_series_per_minute_is_multiplied_by_its_step(tmp_path: Path) -> None:
    series = read_series(written(tmp_path, TEXT), "rpm")
    assert expected_requests(series, LENGTHS).tolist() == [600.0, 300.0, 0.0]


def test_unit_given_wins_over_the_name(tmp_path: Path) -> None:
    series = read_series(written(tmp_path, TEXT), "rpm", unit=SeriesUnit.REQUESTS)
    assert expected_requests(series, LENGTHS).tolist() == [60.0, 30.0, 0.0]


def test_factor_multiplies_and_seed_decides(tmp_path: Path) -> None:
    series = read_series(written(tmp_path, TEXT), "requests")
    tenth = arrivals_of(series, LENGTHS, rng(1), factor=0.1)
    assert 560 < len(tenth) < 780
    assert np.array_equal(tenth.arrival_ps, arrivals_of(series, LENGTHS, rng(1), factor=0.1).arrival_ps)
    assert len(tenth) != len(arrivals_of(series, LENGTHS, rng(2), factor=0.1))


def test_uneven_steps_last_until_the_next_row(tmp_path: Path) -> None:
    series = read_series(written(tmp_path, "t_s,n\n100,1\n160,1\n460,1\n760,1\n"), "n")
    assert series.start_s.tolist() == [0.0, 60.0, 360.0, 660.0]
    assert series.step_s.tolist() == [60.0, 300.0, 300.0, 300.0]


WRONG = {
    "no such column": (TEXT, "request", "no column 'request' (did you mean requests?); found t_s, requests"),
    "the time itself": (TEXT, "t_s", "'t_s' is the time column, name one of the load"),
    "negative": (TEXT + "1800,-1,0,0\n", "requests", ':5: requests: got "-1", must be a number from 0 on'),
    "nan": (TEXT + "1800,nan,0,0\n", "requests", ':5: requests: got "nan", must be a number from 0 on'),
    "empty cell": (TEXT + "1800,,0,0\n", "requests", ':5: requests: got "", must be a number from 0 on'),
    "unsorted": (TEXT + "600,1,0,0\n", "requests", ':5: t_s: got "600", must be seconds, a number later than'),
    "short row": (TEXT + "1800,1\n", "requests", "line 5: must have 4 fields, has 2"),
    "one row": ("t_s,n\n0,1\n", "n", "must hold at least two rows, else there is no step, holds 1"),
    "empty": ("", "n", "is empty"),
}


@pytest.mark.parametrize("what", list(WRONG))
def test_bad_series_is_one_error_that_names_the_place(tmp_path: Path, what: str) -> None:
    text, column, said = WRONG[what]
    with pytest.raises(TraceFileError) as raised:
        read_series(written(tmp_path, text), column)
    assert said in str(raised.value)


def test_series_of_more_than_can_be_rehearsed_says_what_to_do(tmp_path: Path) -> None:
    series = read_series(written(tmp_path, "t_s,n\n0,1e9\n60,1e9\n"), "n")
    with pytest.raises(TraceFileError, match=r"at most 50000000 requests, stands for 2e\+09; give --scale"):
        arrivals_of(series, LENGTHS, rng())


def test_series_of_nothing_is_refused(tmp_path: Path) -> None:
    series = read_series(written(tmp_path, "t_s,n\n0,0\n60,0\n"), "n")
    with pytest.raises(TraceFileError, match="stands for no request at all"):
        arrivals_of(series, LENGTHS, rng())
