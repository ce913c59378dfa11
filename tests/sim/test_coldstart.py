"""Cold starts: fixed ones in turn, and drawn ones as the sum of their parts."""

import math

import numpy as np
import pytest

from tidegate.sim.coldstart import ColdStart, EmpiricalPart, LognormalPart, cold_starts

IMAGE = EmpiricalPart(name="image", seen_s=(0.0, 40.0))
WEIGHTS = LognormalPart(name="weights", median_s=20.0, p95_s=42.0)
WARM_UP = LognormalPart(name="warm-up", median_s=15.0, p95_s=15.0)


def test_cold_starts_are_taken_in_turn() -> None:
    cold = ColdStart(samples_s=(10.0, 20.0))
    assert [cold.of(i) for i in range(3)] == [10.0, 20.0, 10.0]


@pytest.mark.parametrize("bad", [(), (-1.0,), (math.inf,), (math.nan,)])
def test_cold_start_refuses_times_that_are_none(bad: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="samples_s must hold at least one finite time"):
        ColdStart(samples_s=bad)
    with pytest.raises(ValueError, match="cold start part image: seen_s must hold"):
        EmpiricalPart(name="image", seen_s=bad)


@pytest.mark.parametrize(("median_s", "p95_s"), [(0.0, 1.0), (2.0, 1.0), (1.0, math.inf), (math.nan, 1.0)])
def test_lognormal_part_refuses_quantiles_out_of_order(median_s: float, p95_s: float) -> None:
    with pytest.raises(ValueError, match="cold start part weights: need 0 < median_s <= p95_s"):
        LognormalPart(name="weights", median_s=median_s, p95_s=p95_s)


def test_drawn_cold_starts_have_the_quantiles_of_their_part() -> None:
    drawn = np.array(cold_starts([WEIGHTS], np.random.default_rng(1), 40_000).samples_s)
    assert np.quantile(drawn, [0.5, 0.95]) == pytest.approx([20.0, 42.0], rel=0.03)


def test_drawn_cold_starts_are_the_sums_of_their_parts() -> None:
    both = np.array(cold_starts([IMAGE, WARM_UP], np.random.default_rng(2), 1000).samples_s)
    assert set(np.round(both, 9).tolist()) == {15.0, 55.0}
    assert 0.4 < np.mean(both > 30.0) < 0.6


def test_drawn_cold_starts_depend_on_the_generator_alone() -> None:
    first, second = (cold_starts([IMAGE, WEIGHTS, WARM_UP], np.random.default_rng(7), 50) for _ in range(2))
    assert first == second
    assert first != cold_starts([IMAGE, WEIGHTS, WARM_UP], np.random.default_rng(8), 50)


def test_cold_starts_need_parts_and_a_count() -> None:
    rng = np.random.default_rng(0)
    for parts, count in (([], 3), ([WEIGHTS], 0)):
        with pytest.raises(ValueError, match="at least one part and a count >= 1"):
            cold_starts(parts, rng, count)
