"""The load of each seed: what a trace says stays, what is drawn is drawn the same each time."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from tidegate.app.rehearse.loads import LoadOptions, Loads, busiest_per_s, load_over_time, read_loads, trace_facts
from tidegate.app.traces.problem import TraceFileError
from tidegate.perf.profile import PS_PER_S
from tidegate.sim.trace import Trace
from tidegate.terms.errors import BadInputError

ROWS = "".join(f"{i * 0.5},{100 + i},{10 + i % 7}\n" for i in range(2000))


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(name="trace")
def trace_file(tmp_path: Path) -> Path:
    return written(tmp_path, "load.csv", "arrival_s,input_tokens,output_tokens\n" + ROWS)


def loads(*paths: Path, **more: object) -> Loads:
    return read_loads(LoadOptions(traces=paths, block_tokens=512, **more))  # type: ignore[arg-type]


def test_trace_as_it_is_needs_no_seed(trace: Path) -> None:
    made = loads(trace)
    assert not made.drawn
    assert np.array_equal(made.of(0).arrival_ps, made.of(1).arrival_ps)
    assert len(made.of(0)) == 2000
    assert made.notes == ()


@pytest.mark.parametrize("more", [{"scale": 2.5}, {"spread_s": 3.0}, {"scale": 0.5}])
def test_what_is_drawn_depends_on_the_seed_alone(trace: Path, more: dict[str, float]) -> None:
    made = loads(trace, **more)
    again = pickle.loads(pickle.dumps(made))  # noqa: S301  (our own)
    assert made.drawn
    assert np.array_equal(made.of(3).arrival_ps, again.of(3).arrival_ps)
    assert not np.array_equal(made.of(3).arrival_ps[:500], made.of(4).arrival_ps[:500])
    assert made.notes


def test_series_is_drawn_with_lengths_of_the_trace(tmp_path: Path, trace: Path) -> None:
    series = written(tmp_path, "series.csv", "t_s,requests\n" + "".join(f"{60 * i},{i}\n" for i in range(60)))
    made = read_loads(LoadOptions(series=f"{series}:requests", lengths_from=trace, scale=2.0, block_tokens=512))
    drawn = made.of(0)
    assert len(drawn) == pytest.approx(2 * sum(range(60)), rel=0.1)
    assert set(drawn.output_tokens.tolist()) <= set(range(10, 17))
    assert made.format == "series+tidegate-csv"
    assert made.files == (str(series), str(trace))


@pytest.mark.parametrize("text", ["series.csv", "series.csv:", ":requests"])
def test_series_without_file_or_column_is_refused(text: str, trace: Path) -> None:
    with pytest.raises(BadInputError, match="--series: must be FILE:COLUMN"):
        read_loads(LoadOptions(series=text, lengths_from=trace, block_tokens=512))


def test_series_without_lengths_is_refused() -> None:
    with pytest.raises(BadInputError, match="--series: must come with --lengths-from"):
        read_loads(LoadOptions(series="a.csv:b", block_tokens=512))


def test_scale_that_leaves_nothing_or_too_much_is_refused(trace: Path) -> None:
    with pytest.raises(BadInputError, match="--scale: must leave at least one request, got 1e-09 of 2000"):
        loads(trace, scale=1e-9).of(0)
    with pytest.raises(BadInputError, match="--scale: must leave at most 50000000 requests, got 100000 times 2000"):
        loads(trace, scale=1e5).of(0)


def test_ticks_are_noted_with_the_flag_that_spreads_them(tmp_path: Path) -> None:
    rows = "".join(f"{3 * (i // 5)},100,10\n" for i in range(200))
    path = written(tmp_path, "ticks.csv", "arrival_s,input_tokens,output_tokens\n" + rows)
    assert "ticks of about 3 s" in loads(path).notes[0]
    assert "--spread 3s" in loads(path).notes[0]
    assert "spread evenly over the 3 s" in loads(path, spread_s=3.0).notes[0]


def test_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceFileError, match="No such file"):
        loads(tmp_path / "absent.csv")


def test_facts_are_those_of_the_load(trace: Path) -> None:
    made = loads(trace)
    facts = trace_facts(made, made.of(0), seed=0)
    assert facts.requests == 2000
    assert facts.seconds == 999.5
    assert facts.requests_per_s == pytest.approx(2.0, rel=0.01)
    assert facts.peak_requests_per_s == pytest.approx(2.0, rel=0.01)
    assert facts.prompt_tokens.mean == pytest.approx(1099.5)
    assert (facts.output_tokens.p50, facts.output_tokens.p99) == (13.0, 16.0)
    assert sum(facts.load.requests) == 2000
    assert facts.load.step_s == 5.0


def test_busiest_stretch_is_found() -> None:
    at_s = np.concatenate([np.arange(0, 3600, 10.0), np.arange(1800, 2400, 1.0)])
    at_s.sort()
    rows = np.ones(len(at_s), dtype=np.int64)
    made = Trace(name="t", arrival_ps=(at_s * PS_PER_S).astype(np.int64), prompt_tokens=rows, output_tokens=rows)
    assert busiest_per_s(made) == pytest.approx(1.1, rel=0.01)
    assert max(load_over_time(made).requests) == pytest.approx(1.1 * load_over_time(made).step_s, abs=1.1)
