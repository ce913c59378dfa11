"""Least squares, and step-time coefficients from measured steps."""

from collections.abc import Sequence

import numpy as np
import pytest

from tidegate.perf.fit import FloatArray, StepTable, Unknown, fit_steps, solve


def line(values: Sequence[float]) -> FloatArray:
    x = np.linspace(0.0, 1.0, 11)
    errors: FloatArray = (values[0] + values[1] * x - (2.0 + 3.0 * x)) / 0.1
    return errors


def test_solve_finds_a_line_and_how_well_it_is_known() -> None:
    unknowns = [
        Unknown(name="at 0", start=0.0, low=-10.0, high=10.0, step=1e-3),
        Unknown(name="slope", start=0.0, low=-10.0, high=10.0, step=1e-3),
    ]

    found = solve(line, unknowns)

    assert found.values == pytest.approx((2.0, 3.0), abs=1e-4)
    # Ordinary least squares: sd of the slope is sd / sqrt(sum of (x - mean)^2) = 0.1 / sqrt(1.1).
    assert found.spreads[1] == pytest.approx(0.1 / np.sqrt(1.1), rel=0.01)
    assert found.cost == pytest.approx(0.0, abs=1e-6)


def test_solve_keeps_within_bounds_and_near_a_prior_that_nothing_contradicts() -> None:
    bounded = solve(line, [Unknown(name="at 0", start=0.0, low=-1.0, high=1.0, step=1e-3), _slope(prior=None)])
    assert bounded.values[0] == 1.0

    def blind(values: Sequence[float]) -> FloatArray:
        return np.array([values[0] - 1.0])

    found = solve(blind, [_slope(prior=None), _slope(prior=0.5)])
    assert found.values == pytest.approx((1.0, 0.25), abs=1e-4)
    assert found.spreads[1] == pytest.approx(0.5, rel=0.01)


def _slope(*, prior: float | None) -> Unknown:
    return Unknown(name="slope", start=0.25, low=-10.0, high=10.0, step=1e-3, prior_spread=prior)


def made_table(count: int = 60) -> StepTable:
    random = np.random.default_rng(5)
    tokens = np.concatenate([np.arange(1, 257, 16), random.integers(256, 8192, count)]).astype(np.float64)
    kv = random.uniform(0.0, 400_000.0, len(tokens))
    pairs = random.uniform(0.0, 3e7, len(tokens))
    compute = 20e-6 * tokens
    dense = (0.006**2 + compute**2) ** 0.5
    return StepTable(
        tokens=tokens, kv_read_tokens=kv, pairs=pairs, seconds=0.001 + dense + 42e-9 * kv + 800e-12 * pairs
    )


def test_fit_steps_finds_the_coefficients_of_a_table_without_noise() -> None:
    fit = fit_steps(made_table())

    assert fit.smooth_max_power == 2.0
    assert fit.error_ratio < 0.002
    assert fit.compute_ps_per_token == pytest.approx(20e6, rel=0.01)
    assert fit.kv_read_ps_per_token == pytest.approx(42e3, rel=0.01)
    assert fit.attention_ps_per_pair == pytest.approx(800, rel=0.02)
    assert fit.step_base_ps + fit.weight_read_ps == pytest.approx(7e9, rel=0.01)


def test_fit_steps_states_the_error_of_noise() -> None:
    table = made_table()
    noise = np.random.default_rng(6).normal(1.0, 0.05, len(table.seconds))
    noisy = StepTable(
        tokens=table.tokens,
        kv_read_tokens=table.kv_read_tokens,
        pairs=table.pairs,
        seconds=table.seconds * noise,
    )

    assert fit_steps(noisy).error_ratio == pytest.approx(0.04, abs=0.01)  # mean of |normal| is 0.8 of its spread


def test_fit_steps_refuses_a_table_that_is_too_short_or_not_positive() -> None:
    with pytest.raises(ValueError, match="need >= 10 steps"):
        fit_steps(
            StepTable(tokens=np.ones(9), kv_read_tokens=np.ones(9), pairs=np.ones(9), seconds=np.ones(9)),
        )
    with pytest.raises(ValueError, match="of more than 0 s"):
        fit_steps(
            StepTable(tokens=np.ones(12), kv_read_tokens=np.ones(12), pairs=np.ones(12), seconds=np.zeros(12)),
        )
