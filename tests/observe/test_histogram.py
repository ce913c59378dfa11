"""Shares and quantiles from buckets, and what they do not know."""

import math

import pytest

from tidegate.observe.histogram import Histogram, Snapped, histogram, quantile, share, snap
from tidegate.observe.result import Series


def rows(**rates: float) -> list[Series]:
    """Return bucket rows; a key `le_0_5` is the bound 0.5."""
    names = {key: key.removeprefix("le_").replace("_", ".").replace("inf", "+Inf") for key in rates}
    return [Series(labels={"le": names[key]}, samples=((1.0, rate),)) for key, rate in rates.items()]


def made(**rates: float) -> Histogram:
    one = histogram(rows(**rates))
    assert one is not None
    return one


def test_histogram_adds_rows_of_one_bound_however_it_is_spelled() -> None:
    assert made(le_1=2.0, le_1_0=3.0, le_inf=6.0).buckets == ((1.0, 5.0), (math.inf, 6.0))


def test_histogram_scales_and_shifts_bounds() -> None:
    one = histogram(rows(le_999=2.0, le_inf=4.0), scale_s=0.001, offset=1.0)
    assert one is not None
    assert one.buckets[0] == (1.0, 2.0)


def test_histogram_is_none_without_a_top_bucket_or_numbers() -> None:
    assert histogram([]) is None
    assert histogram(rows(le_1=1.0)) is None
    assert histogram(rows(le_1=math.nan, le_inf=1.0)) is None
    assert histogram([Series(labels={"le": "x"}, samples=((1.0, 1.0),))]) is None


def test_histogram_irons_out_an_inversion() -> None:
    assert made(le_1=2.0, le_2=1.9, le_inf=2.0).buckets[1] == (2.0, 2.0)


def test_snap_takes_the_stricter_bound_and_says_the_next() -> None:
    one = made(le_0_04=1.0, le_0_06=2.0, le_inf=4.0)
    assert snap(one, 0.05) == Snapped(bound_s=0.04, next_bound_s=0.06, exact=False)
    assert snap(one, 0.06) == Snapped(bound_s=0.06, next_bound_s=0.06, exact=True)


def test_snap_above_the_last_finite_bound_leaves_everything_open() -> None:
    assert snap(made(le_1=1.0, le_inf=2.0), 5.0) == Snapped(bound_s=1.0, next_bound_s=math.inf, exact=False)


def test_snap_is_none_below_every_bound() -> None:
    assert snap(made(le_0_1=1.0, le_inf=2.0), 0.05) is None


def test_share_counts_at_or_below() -> None:
    one = made(le_1=1.0, le_2=3.0, le_inf=4.0)
    assert share(one, 1.0) == pytest.approx(0.25)
    assert share(one, math.inf) == pytest.approx(1.0)


def test_quantile_is_linear_inside_its_bucket() -> None:
    at_s, at_least = quantile(made(le_1=1.0, le_2=3.0, le_inf=3.0), 2 / 3)
    assert at_s == pytest.approx(1.5)
    assert not at_least


def test_quantile_beyond_the_last_bound_is_at_least_that() -> None:
    assert quantile(made(le_1=1.0, le_2=2.0, le_inf=4.0), 0.95) == (2.0, True)


def test_quantile_of_all_in_the_top_bucket_is_at_least_the_last_bound() -> None:
    assert quantile(made(le_1=0.0, le_2=0.0, le_inf=4.0), 0.5) == (2.0, True)
