"""Range pieces cover the grid once, and merging never doubles a point."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.observe.result import Series
from tidegate.observe.split import chunks, merge


@settings(deadline=None)
@given(
    start=st.integers(0, 10**6),
    span=st.integers(0, 5_000),
    step=st.sampled_from([0.25, 0.5, 1.0, 2.0, 15.0, 60.0]),
    most=st.integers(1, 300),
)
def test_chunks_cover_every_grid_point_once(start: int, span: int, step: float, most: int) -> None:
    points: list[float] = []
    for first_s, last_s in chunks(start, start + span, step, max_steps=most):
        count = round((last_s - first_s) / step)
        assert 0 <= count <= most
        points += [first_s + i * step for i in range(count + 1)]
    wanted = [k * step for k in range(int(start / step), int((start + span) / step) + 1) if k * step >= start]
    assert points == wanted


def test_chunks_are_none_when_no_grid_point_is_in_the_range() -> None:
    assert chunks(1.0, 2.0, 60.0) == ()


def test_chunks_keep_a_start_on_the_grid_despite_float_noise() -> None:
    start_s = 0.1 * 3  # 0.30000000000000004
    assert chunks(start_s, 0.5, 0.1)[0][0] == pytest.approx(0.3)


def test_chunks_of_11001_points_are_one_query_and_of_11002_are_two() -> None:
    assert len(chunks(0.0, 11_000.0, 1.0)) == 1
    assert len(chunks(0.0, 11_001.0, 1.0)) == 2


@pytest.mark.parametrize(("step_s", "max_steps"), [(0.0, 10), (-1.0, 10), (1.0, 0)])
def test_chunks_refuse_a_step_that_goes_nowhere(step_s: float, max_steps: int) -> None:
    with pytest.raises(ValueError, match="chunks"):
        chunks(0.0, 10.0, step_s, max_steps=max_steps)


def test_merge_keeps_each_time_once_and_the_earlier_part_wins() -> None:
    one = Series(labels={"a": "1"}, samples=((1.0, 10.0), (2.0, 20.0)))
    two = Series(labels={"a": "1"}, samples=((2.0, 99.0), (3.0, 30.0)))
    other = Series(labels={"a": "2"}, samples=((1.0, 1.0),))
    merged = {s.labels["a"]: s.samples for s in merge([[one], [two, other]])}
    assert merged == {"1": ((1.0, 10.0), (2.0, 20.0), (3.0, 30.0)), "2": ((1.0, 1.0),)}
