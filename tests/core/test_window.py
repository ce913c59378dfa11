"""The stabilisation window: bounded, watched from end to end, forgetting what has passed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.window import look_back, remember

History = tuple[tuple[float, int], ...]


def grown(wanted: list[int], *, every_s: float, length_s: float) -> History:
    """Return the history after one decision each `every_s`, the first at 0."""
    history: History = ()
    for i, number in enumerate(wanted):
        history = remember(history, number, now_s=every_s * i, length_s=length_s)
    return history


@given(
    wanted=st.lists(st.integers(0, 50), min_size=1, max_size=300),
    every_s=st.sampled_from([0.1, 1.0, 5.0, 30.0]),
    length_s=st.sampled_from([0.0, 10.0, 60.0, 600.0]),
)
def test_history_stays_small_and_never_forgets_a_peak_within_the_window(
    wanted: list[int], every_s: float, length_s: float
) -> None:
    history = grown(wanted, every_s=every_s, length_s=length_s)
    now_s = every_s * (len(wanted) - 1)
    assert len(history) <= 36
    seen = look_back(history, now_s=now_s, length_s=length_s, stale_after_s=30.0)
    inside = [n for i, n in enumerate(wanted) if every_s * i > now_s - length_s]
    if length_s > 0.0:
        assert seen.highest_replicas is not None
        assert seen.highest_replicas >= max(inside)


def test_window_is_covered_once_it_was_watched_from_end_to_end() -> None:
    for count, covered in ((6, False), (7, True), (8, True)):
        history = grown([3] * count, every_s=10.0, length_s=60.0)
        now_s = 10.0 * (count - 1)
        assert look_back(history, now_s=now_s, length_s=60.0, stale_after_s=30.0).covered is covered


def test_an_uncovered_window_says_when_it_will_be() -> None:
    history = grown([3] * 3, every_s=10.0, length_s=60.0)
    assert look_back(history, now_s=20.0, length_s=60.0, stale_after_s=30.0).covered_at_s == 60.0


@pytest.mark.parametrize(("gap_s", "covered"), [(30.0, True), (30.1, False)])
def test_a_gap_longer_than_allowed_ends_the_watch(gap_s: float, covered: bool) -> None:  # noqa: FBT001
    history = tuple((10.0 * i, 3) for i in range(8))
    now_s = 70.0 + gap_s
    assert look_back(history, now_s=now_s, length_s=60.0, stale_after_s=30.0).covered is covered


def test_a_peak_is_forgotten_after_the_window() -> None:
    history = grown([9] + [2] * 20, every_s=10.0, length_s=60.0)
    assert look_back(history, now_s=200.0, length_s=60.0, stale_after_s=30.0).highest_replicas == 2


def test_nothing_wanted_is_not_remembered() -> None:
    assert remember(((1.0, 4),), None, now_s=5.0, length_s=60.0) == ((1.0, 4),)


def test_a_window_of_zero_is_always_covered() -> None:
    assert look_back((), now_s=5.0, length_s=0.0, stale_after_s=30.0).covered
