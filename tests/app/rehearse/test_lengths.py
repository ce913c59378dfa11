"""Lengths drawn from histograms: the right share in each bucket, and the right mean."""

import numpy as np
import pytest

from tidegate.app.rehearse.lengths import MeanOnly, TokenCounts


def counts(*rows: list[float], mean: float | None = None) -> TokenCounts:
    return TokenCounts(bounds=np.array([10.0, 100.0, 1000.0]), counts=np.array(rows), mean_tokens=mean)


def drawn(of: TokenCounts | MeanOnly, n: int = 40_000, row: int = 0) -> np.ndarray:
    return of.draw(np.full(n, row, dtype=np.int64), np.random.default_rng(4))


def test_each_bucket_gets_its_share_and_no_count_lies_outside() -> None:
    out = drawn(counts([100.0, 300.0, 600.0, 0.0]))
    shares = np.histogram(out, bins=[0.5, 10.5, 100.5, 1000.5])[0] / len(out)
    assert shares == pytest.approx([0.1, 0.3, 0.6], abs=0.01)
    assert out.min() >= 1
    assert out.max() <= 1000


@pytest.mark.parametrize("mean", [150.0, 300.0, 500.0])
def test_known_mean_is_kept_inside_the_buckets(mean: float) -> None:
    out = drawn(counts([100.0, 300.0, 600.0, 0.0], mean=mean))
    assert out.mean() == pytest.approx(mean, rel=0.02)
    assert (out <= 10).mean() == pytest.approx(0.1, abs=0.01)


def test_counts_beyond_the_last_bound_are_that_bound_and_are_said() -> None:
    of = counts([0.0, 0.0, 50.0, 50.0])
    assert of.beyond_ratio == 0.5
    assert (drawn(of) == 1000).mean() == pytest.approx(0.5, abs=0.02)


def test_each_stretch_has_its_own_lengths_unless_it_is_too_thin() -> None:
    of = counts([1000.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1000.0, 0.0], [0.0, 0.0, 3.0, 0.0])
    assert drawn(of, row=0).max() <= 10
    assert drawn(of, row=1).min() > 100
    assert (drawn(of, row=2) <= 10).mean() == pytest.approx(0.5, abs=0.02)


def test_mean_alone_is_kept() -> None:
    out = drawn(MeanOnly(mean_tokens=211.0))
    assert out.mean() == pytest.approx(211.0, rel=0.02)
    assert out.min() >= 1
