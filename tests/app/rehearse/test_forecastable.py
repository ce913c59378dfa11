"""Which loads count as forecastable, and what is said of those that cannot be judged."""

import numpy as np
import pytest

from tidegate.app.rehearse.forecastable import MEMBERS, MOST_ORIGINS, MOST_WAPE_RATIO, forecastable_of, rates_of
from tidegate.perf.profile import PS_PER_S
from tidegate.sim.trace import FloatArray, Trace


def trace_at(at_s: FloatArray) -> Trace:
    """Return one-token requests at these moments."""
    ones = np.ones(len(at_s), dtype=np.int64)
    arrival_ps = np.sort(np.rint(at_s * PS_PER_S)).astype(np.int64)
    return Trace(name="load", arrival_ps=arrival_ps, prompt_tokens=ones, output_tokens=ones)


def trace_of_rates(rates: FloatArray, *, step_s: float = 60.0) -> Trace:
    """Return evenly spaced arrivals at each step's rate, with one at the very end."""
    steps = []
    for i, rate in enumerate(rates):
        n = round(rate * step_s)
        steps.append((i + (np.arange(n) + 0.5) / max(n, 1)) * step_s)
    return trace_at(np.concatenate([*steps, [len(rates) * step_s]]))


def test_rates_are_per_second_of_whole_steps() -> None:
    trace = trace_at(np.array([0.0, 1.0, 9.9, 10.0, 19.0, 21.0]))
    assert rates_of(trace, 10.0).tolist() == pytest.approx([0.3, 0.2])


def test_steady_load_is_forecastable_without_error() -> None:
    found, reason = forecastable_of(trace_of_rates(np.full(120, 3.0)), horizon_s=100.0)
    assert reason is None
    assert found is not None
    assert found.wape_ratio == pytest.approx(0.0, abs=0.01)
    assert (found.forecastable, found.horizon_s) == (True, 100.0)


def test_error_is_at_most_that_of_the_last_value() -> None:
    # Load that alternates every 60 steps between 2 and 4: the last value errs by 2 for `ahead` steps after each turn.
    rates = np.tile(np.repeat([2.0, 4.0], 60), 3)
    found, _ = forecastable_of(trace_of_rates(rates), horizon_s=120.0)
    assert found is not None
    origins = np.arange(12, len(rates) - 1)
    errors = np.abs(rates[origins - 1] - rates[origins + 1]).sum() / rates[origins + 1].sum()
    assert found.wape_ratio <= errors + 1e-9


def test_trend_wins_on_a_long_ramp() -> None:
    found, _ = forecastable_of(trace_of_rates(np.linspace(1.0, 30.0, 200)), horizon_s=300.0)
    assert found is not None
    assert found.member == "trend with level shifts"


def test_mean_wins_on_noise_around_a_level() -> None:
    rng = np.random.default_rng(1)
    found, _ = forecastable_of(trace_of_rates(rng.uniform(1.0, 3.0, 400)), horizon_s=120.0)
    assert found is not None
    assert found.member == "mean of 10 minutes"
    assert found.wape_ratio == pytest.approx(0.5 / 2.0, abs=0.04)  # mean deviation of a uniform spread of 2 is 0.5


def test_bursts_without_pattern_are_not_forecastable() -> None:
    rng = np.random.default_rng(2)
    found, _ = forecastable_of(trace_of_rates(np.where(rng.random(300) < 0.2, 10.0, 0.2)), horizon_s=120.0)
    assert found is not None
    assert found.wape_ratio > MOST_WAPE_RATIO
    assert not found.forecastable


def test_border_is_inclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = np.tile([1.0, 1.0, 2.0], 80)
    found, _ = forecastable_of(trace_of_rates(rates), horizon_s=60.0)
    assert found is not None
    for limit, expected in ((found.wape_ratio, True), (np.nextafter(found.wape_ratio, 0.0), False)):
        monkeypatch.setattr("tidegate.app.rehearse.forecastable.MOST_WAPE_RATIO", float(limit))
        again, _ = forecastable_of(trace_of_rates(rates), horizon_s=60.0)
        assert again is not None
        assert again.forecastable is expected


def test_no_member_sees_the_future(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def spy(past: FloatArray, step_s: float, ahead: int) -> float:
        lengths.append(len(past))
        assert (step_s, ahead) == (60.0, 5)
        return float(past[-1])

    monkeypatch.setattr("tidegate.app.rehearse.forecastable.MEMBERS", {"spy": spy})
    rates = np.arange(1.0, 61.0)  # so that the last value errs by exactly `ahead`
    found, _ = forecastable_of(trace_of_rates(rates), horizon_s=300.0)
    assert found is not None
    origins = np.array(lengths)
    assert origins.max() + 5 == 60
    assert found.wape_ratio == pytest.approx(5.0 * len(origins) / rates[origins + 4].sum(), rel=1e-6)


def test_short_load_is_judged_in_shorter_steps() -> None:
    found, reason = forecastable_of(trace_of_rates(np.full(20, 4.0), step_s=30.0), horizon_s=20.0)
    assert found is not None, reason
    assert found.horizon_s == 20.0


def test_load_shorter_than_any_judgement_says_so() -> None:
    found, reason = forecastable_of(trace_of_rates(np.full(3, 4.0)), horizon_s=120.0)
    assert found is None
    assert reason is not None
    assert "180 s of load" in reason
    assert "needs 325 s" in reason


def test_need_that_is_named_is_enough() -> None:
    found, reason = forecastable_of(trace_of_rates(np.full(65, 4.0), step_s=5.0), horizon_s=120.0)
    assert found is not None, reason


def test_load_that_came_all_at_once_is_said_to_be_empty_later() -> None:
    at_s = np.concatenate([np.linspace(0.0, 50.0, 100), [3600.0]])
    found, reason = forecastable_of(trace_at(at_s), horizon_s=120.0)
    assert found is None
    assert reason == "no request arrived in any step that was forecast"


def test_long_load_is_judged_from_a_bounded_number_of_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [0]

    def counted(past: FloatArray, step_s: float, ahead: int) -> float:  # noqa: ARG001  (a member)
        calls[0] += 1
        return float(past[-1])

    monkeypatch.setattr("tidegate.app.rehearse.forecastable.MEMBERS", {"counted": counted})
    forecastable_of(trace_of_rates(np.full(1440, 1.0)), horizon_s=120.0)
    assert calls == [MOST_ORIGINS]


def test_members_are_three() -> None:
    assert list(MEMBERS) == ["last value", "mean of 10 minutes", "trend with level shifts"]
