"""Many series, one number: copies are not added, parts are, and a restart is no fall."""

import math

import pytest

from tidegate.catalogue.engines_sglang import SGLANG
from tidegate.catalogue.quantity import Fold
from tidegate.observe import fold
from tidegate.observe.result import Series


def counter(*numbers: float, start_s: float = 0.0, **labels: str) -> Series:
    return Series(labels=labels, samples=tuple((start_s + i, n) for i, n in enumerate(numbers)))


def per_s(*series: Series, copies: tuple[str, ...] = (), family: tuple[Series, ...] = ()) -> float | None:
    got = fold.rate(series, copies, since_s=0.0, family=family)
    return None if got is None else got.number


def test_gauge_sums_engines_and_takes_the_largest_of_copies() -> None:
    series = [
        counter(3.0, engine="0", pid="1"),
        counter(4.0, engine="0", pid="2"),
        counter(5.0, engine="1", pid="1"),
    ]
    got = fold.gauge(series, ("pid",), Fold.SUM)
    assert got is not None
    assert got.number == 9.0


def test_gauge_of_ratios_is_the_fullest() -> None:
    got = fold.gauge([counter(0.2, engine="0"), counter(0.9, engine="1")], (), Fold.MAX)
    assert got is not None
    assert got.number == 0.9


def test_gauge_with_one_nan_is_nan() -> None:
    for how in Fold:
        got = fold.gauge([counter(1.0, engine="0"), counter(math.nan, engine="1")], (), how)
        assert got is not None
        assert math.isnan(got.number)


def test_gauge_of_nothing_is_none() -> None:
    assert fold.gauge([], (), Fold.SUM) is None


def test_totals_leave_parts_out_where_a_total_is_exposed() -> None:
    total, part = counter(7.0), counter(3.0, priority="1")
    assert fold.totals([total, part], SGLANG) == (total,)
    assert fold.totals([part], SGLANG) == (part,)


def test_live_leaves_out_what_the_newest_scrape_no_longer_had() -> None:
    gone, there = counter(1.0, 1.0, engine="1"), counter(1.0, 1.0, 1.0, 1.0, engine="0")
    assert fold.live([gone, there], 1.0) == (there,)


def test_rate_is_growth_over_the_time_between_samples() -> None:
    assert per_s(counter(10.0, 12.0, 14.0)) == 2.0


def test_rate_of_a_flat_counter_is_zero() -> None:
    assert per_s(counter(10.0, 10.0)) == 0.0


def test_rate_goes_on_over_a_restart() -> None:
    # 100 -> 104, restart, 2 -> 6: grew by 4, 2 and 4 in three seconds.
    assert per_s(counter(100.0, 104.0, 2.0, 6.0)) == pytest.approx(10 / 3)


def test_rate_needs_two_samples() -> None:
    assert per_s(counter(10.0)) is None
    assert per_s() is None


def test_rate_takes_copies_once_and_adds_parts() -> None:
    series = (
        counter(0.0, 2.0, tp_rank="0", dp_rank="0"),
        counter(0.0, 2.0, tp_rank="1", dp_rank="0"),
        counter(0.0, 3.0, tp_rank="0", dp_rank="1"),
    )
    assert per_s(*series, copies=("tp_rank",)) == 5.0


def test_rate_takes_no_target_for_born_because_another_was_scraped_before_it() -> None:
    early = counter(500.0, 501.0, 502.0, 503.0, job="a", instance="1")
    for late in (
        counter(9000.0, 9001.0, start_s=1.5, job="a", instance="2"),
        counter(9000.0, 9001.0, start_s=1.5, job="b", instance="1"),
    ):
        assert per_s(early, late) == pytest.approx(2.0)
        assert per_s(late, family=(early,)) == pytest.approx(1.0)


def test_rate_counts_a_series_born_in_the_window_from_zero() -> None:
    old, born = counter(5.0, 5.0, 5.0, 5.0, reason="stop"), counter(3.0, 3.0, start_s=2.0, reason="abort")
    assert per_s(old, born) == pytest.approx(1.0)


def test_rate_counts_the_first_series_of_a_family_that_goes_on_from_zero() -> None:
    requests, cut = counter(5.0, 5.0, 5.0, 5.0), counter(3.0, start_s=3.0)
    assert per_s(cut, family=(requests,)) == pytest.approx(1.0)


def test_rate_does_not_count_old_totals_when_all_labels_change_at_once() -> None:
    before, after = counter(1000.0, 1000.0, a="x"), counter(1000.0, 1000.0, start_s=2.0, a="y")
    assert per_s(before, after) == 0.0


def test_rate_of_a_negative_counter_is_negative() -> None:
    got = per_s(counter(-5.0, -3.0))
    assert got is not None
    assert got < 0


def test_rate_with_nan_is_nan() -> None:
    got = per_s(counter(1.0, math.nan, 3.0))
    assert got is not None
    assert math.isnan(got)
