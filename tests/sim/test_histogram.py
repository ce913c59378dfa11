"""Shares and quantiles of classic histograms, as Prometheus works them out."""

import numpy as np
import pytest

from tidegate.sim.histogram import bounds_with, quantile, share

BOUNDS = (10**12, 2 * 10**12, 4 * 10**12)


def grown(*counts: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(counts, dtype=np.int64)


@pytest.mark.parametrize(
    ("counts", "level", "seconds"),
    [
        ((10, 0, 0, 0), 0.5, 0.5),  # half of the first bucket, from 0
        ((10, 10, 0, 0), 0.5, 1.0),  # just at a bound
        ((10, 10, 0, 0), 0.75, 1.5),
        ((10, 0, 10, 0), 0.75, 3.0),  # over an empty bucket
        ((0, 0, 8, 0), 0.25, 2.5),
    ],
)
def test_quantile_is_linear_inside_its_bucket(counts: tuple[int, ...], level: float, seconds: float) -> None:
    found = quantile(grown(*counts), BOUNDS, level)
    assert found is not None
    assert found[0] == pytest.approx(seconds)
    assert not found[1]


def test_quantile_beyond_the_last_bound_is_that_bound_or_more() -> None:
    assert quantile(grown(1, 0, 0, 9), BOUNDS, 0.5) == (4.0, True)


def test_quantile_of_no_events_is_none() -> None:
    assert quantile(grown(0, 0, 0, 0), BOUNDS, 0.5) is None


def test_share_counts_what_is_at_or_below_the_threshold() -> None:
    assert share(grown(6, 2, 1, 1), BOUNDS, 2 * 10**12) == 0.8
    assert share(grown(0, 0, 0, 0), BOUNDS, 2 * 10**12) is None
    with pytest.raises(ValueError, match="tuple"):
        share(grown(6, 2, 1, 1), BOUNDS, 3 * 10**12)


def test_thresholds_become_bounds_once_and_in_order() -> None:
    assert bounds_with(BOUNDS, [3.0, 1.0, 0.08]) == (80_000_000_000, 10**12, 2 * 10**12, 3 * 10**12, 4 * 10**12)
