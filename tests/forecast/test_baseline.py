"""The contract every forecast keeps, and what the baseline promises on top."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.forecast.baseline import LEAST_SAMPLES, forecast
from tidegate.forecast.intervals import NOISE_WINDOW_S
from tidegate.forecast.select import LEVELS, foresee
from tidegate.forecast.series import HistoryTooShortError, on_grid
from tidegate.terms.forecast import Forecast, Quantity
from tidegate.terms.history import History

STEP_S = 10.0
START_S = 1_000.0
RNG = np.random.default_rng(7)


def history(values: Sequence[float | None], *, step_s: float = STEP_S) -> History:
    """Return a history on the grid; None is a gap."""
    samples = tuple((START_S + step_s * i, float(v)) for i, v in enumerate(values) if v is not None)
    return History(service="chat", quantity=Quantity.REQUESTS_PER_S, step_s=step_s, samples=samples, source="test")


def ahead(values: Sequence[float | None], *, horizon_s: float = 40.0, step_s: float = STEP_S) -> Forecast:
    """Return the forecast made right at the last step."""
    now_s = START_S + step_s * (len(values) - 1)
    return forecast(history(values, step_s=step_s), horizon_s=horizon_s, levels=LEVELS, now_s=now_s)


SERIES: dict[str, Sequence[float | None]] = {
    "constant": [5.0] * 100,
    "zeros": [0.0] * 100,
    "one_sample": [4.0],
    "too_short": [4.0, 5.0, 6.0],
    "one_spike": [2.0] * 50 + [200.0] + [2.0] * 50,
    "poisson": list(RNG.poisson(50, 300) / STEP_S),
    "on_off": ([0.0] * 10 + [8.0] * 10) * 8,
    "ramp": list(np.linspace(0.0, 10.0, 120)),
    "collapse": [50.0] * 60 + [0.0] * 3,
    "half_gaps": [5.0 if i % 2 else None for i in range(200)],
    "long_gap": [*([5.0] * 50), *([None] * 100), *([5.0] * 3)],
    "huge": [1e300] * 40,
    "beyond_floats": [*([1.7e308] * 20), *([5.0] * 20)],
    "tiny": [1e-300] * 40,
}


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("horizon_s", [1.0, 40.0, 900.0])
def test_forecast_keeps_the_contract(name: str, horizon_s: float) -> None:
    made = ahead(SERIES[name], horizon_s=horizon_s)
    assert len(made.values) == len(made.levels) == len(LEVELS)
    assert {len(row) for row in made.values} == {math.ceil(horizon_s / STEP_S)}
    assert made.horizon_s >= horizon_s
    assert all(math.isfinite(v) and v >= 0.0 for row in made.values for v in row)
    assert all(low <= high for lower, upper in pairwise(made.values) for low, high in zip(lower, upper, strict=True))
    assert made.method
    assert made.reason


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(st.one_of(st.none(), st.floats(0.0, 1e9)), min_size=1, max_size=80),
    horizon_s=st.floats(1.0, 600.0),
)
def test_forecast_keeps_the_contract_on_any_series(values: list[float | None], horizon_s: float) -> None:
    if all(v is None for v in values):
        with pytest.raises(HistoryTooShortError, match="no usable sample"):
            ahead(values, horizon_s=horizon_s)
        return
    made = ahead(values, horizon_s=horizon_s)
    assert all(math.isfinite(v) and v >= 0.0 for row in made.values for v in row)
    assert all(low <= high for lower, upper in pairwise(made.values) for low, high in zip(lower, upper, strict=True))


def test_forecast_of_a_constant_is_the_constant_with_counting_noise() -> None:
    made = ahead([5.0] * 100)
    centre, p90 = made.values[LEVELS.index(0.5)], made.values[LEVELS.index(0.9)]
    assert centre == pytest.approx([5.0] * 4)
    assert p90 == pytest.approx([5.0 + 1.2815515655446004 * math.sqrt(5.0 / NOISE_WINDOW_S)] * 4)


@pytest.mark.parametrize(("before", "after"), [(2.0, 6.0), (4.0, 12.0), (9.0, 1.0)])
def test_level_shift_is_followed_within_two_steps(before: float, after: float) -> None:
    made = ahead([*([before] * 60), after, after])
    assert made.values[LEVELS.index(0.5)][0] == pytest.approx(after)
    assert made.peak(0.95) >= after


def test_one_spike_is_not_a_level_shift() -> None:
    made = ahead([*([5.0] * 60), 50.0, *([5.0] * 4)])
    assert made.values[LEVELS.index(0.5)][0] == pytest.approx(5.0, abs=3.0)


def test_forecast_leads_on_a_ramp() -> None:
    made = ahead(list(np.linspace(1.0, 10.0, 60)), horizon_s=60.0)
    centre = made.values[LEVELS.index(0.5)]
    assert centre[-1] > centre[0] > 9.8


def test_gaps_are_not_zeros() -> None:
    with_gaps = ahead([5.0 if i % 3 else None for i in range(90)])
    assert with_gaps.values[LEVELS.index(0.5)][0] == pytest.approx(5.0)
    assert with_gaps.values == ahead([5.0] * 90).values


def test_a_gap_at_the_end_is_looked_across() -> None:
    made = forecast(history([5.0] * 60), horizon_s=20.0, levels=LEVELS, now_s=START_S + STEP_S * 70)
    assert made.values[LEVELS.index(0.5)][0] == pytest.approx(5.0)
    assert "110 s old" in made.reason


def test_short_history_falls_back_to_the_last_value_and_says_so() -> None:
    short = ahead([3.0] * (LEAST_SAMPLES - 1))
    assert (short.method, short.values[LEVELS.index(0.5)][0]) == ("last_value", 3.0)
    assert (
        short.reason == f"history too short: have {LEAST_SAMPLES - 1} samples, need {LEAST_SAMPLES}; using last_value"
    )
    assert ahead([3.0] * LEAST_SAMPLES).method == "trend+residuals"


@pytest.mark.parametrize("name", ["one_spike", "on_off", "poisson", "ramp"])
def test_band_never_exceeds_its_cap(name: str) -> None:
    series = SERIES[name]
    made = ahead(series, horizon_s=900.0)
    highest = max(v for v in series if v is not None)
    noise = 3.0 * math.sqrt(max(highest, 1.0 / STEP_S) / STEP_S)
    assert max(made.values[-1]) <= 1.5 * highest + noise


def test_more_load_never_lowers_the_forecast() -> None:
    base = ahead(SERIES["poisson"])
    doubled = ahead([2.0 * v for v in SERIES["poisson"] if v is not None])
    assert all(
        low <= high
        for lower, upper in zip(base.values, doubled.values, strict=True)
        for low, high in zip(lower, upper, strict=True)
    )


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_quantiles_cover_poisson_load_at_every_lead(level: float) -> None:
    series = [float(v) for v in np.random.default_rng(11).poisson(80, 700) / STEP_S]
    hits = trials = 0
    for origin in range(200, 690, 5):
        made = ahead(series[:origin])
        row = made.values[LEVELS.index(level)]
        hits += sum(came <= have for came, have in zip(series[origin : origin + 4], row, strict=True))
        trials += 4
    # Counting noise is a lower bound on the width, so coverage may lie above its level.
    assert level - 0.03 <= hits / trials


def test_bad_samples_are_dropped() -> None:
    clean = history([5.0] * 40)
    dirty = History(
        service="chat",
        quantity=Quantity.REQUESTS_PER_S,
        step_s=STEP_S,
        samples=(*clean.samples, (START_S + 400.0, math.nan), (START_S + 410.0, -3.0), (START_S + 9e9, 7.0)),
        source="test",
    )
    grid = on_grid(dirty, now_s=START_S + 500.0)
    assert grid.samples == 40
    assert np.nanmax(grid.values) == 5.0


def test_a_step_that_is_no_number_is_a_bug_of_the_caller() -> None:
    with pytest.raises(ValueError, match="step_s"):
        on_grid(history([1.0], step_s=math.nan), now_s=START_S)


def test_foresee_uses_each_services_horizon_and_leaves_out_the_unknown() -> None:
    known = history([5.0] * 40)
    empty = History(service="other", quantity=Quantity.REQUESTS_PER_S, step_s=STEP_S, samples=(), source="test")
    made = foresee((known, empty), horizons_s={"chat": 55.0}, now_s=START_S + 390.0)
    assert [(f.service, f.horizon_s) for f in made] == [("chat", 60.0)]
