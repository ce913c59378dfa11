import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.terms.signal import Signal, TrueZero, Unknown, UnknownReason, Value, combine, reading, unknown


def _read(number: float) -> Signal:
    return reading(number, sampled_at_s=100.0, coverage_ratio=1.0, source="vllm:num_requests_running")


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_reading_gives_a_number_only_for_a_finite_one(number: float) -> None:
    signal = _read(number)
    if math.isfinite(number):
        assert not isinstance(signal, Unknown)
        assert signal.number == number
    else:
        assert isinstance(signal, Unknown)


def test_reading_tells_a_true_zero_from_a_value() -> None:
    assert isinstance(_read(0.0), TrueZero)
    assert isinstance(_read(-0.0), TrueZero)
    assert isinstance(_read(1e-300), Value)


def test_unknown_has_no_number_and_no_truth_value() -> None:
    signal = unknown(UnknownReason.STALE, "age 40 s", now_s=1.0, source="x")
    assert not hasattr(signal, "number")
    assert not hasattr(signal, "value")
    with pytest.raises(TypeError, match="truth value"):
        bool(signal)
    with pytest.raises(TypeError):
        float(signal)  # type: ignore[arg-type]


@pytest.mark.parametrize("signal", [_read(0.0), _read(3.0)])
def test_known_signals_have_no_truth_value_either(signal: Signal) -> None:
    # `if signal:` would read a true zero as missing.
    with pytest.raises(TypeError, match="truth value"):
        bool(signal)


@pytest.mark.parametrize("number", [0.0, math.nan, math.inf])
def test_value_refuses_what_is_not_a_value(number: float) -> None:
    with pytest.raises(ValueError, match="finite and not 0"):
        Value(value=number, sampled_at_s=1.0, coverage_ratio=1.0, source="x")


def test_true_zero_refuses_another_number() -> None:
    with pytest.raises(ValueError, match="0 by definition"):
        TrueZero(zero=1.0, sampled_at_s=1.0, coverage_ratio=1.0, source="x")


@pytest.mark.parametrize("coverage", [-0.1, 1.1, math.nan])
def test_reading_refuses_a_coverage_outside_0_to_1(coverage: float) -> None:
    with pytest.raises(ValueError, match="coverage_ratio"):
        reading(1.0, sampled_at_s=1.0, coverage_ratio=coverage, source="x")


def test_age_is_never_negative_when_the_sample_is_from_the_future() -> None:
    assert _read(1.0).age_s(90.0) == 0.0
    assert _read(1.0).age_s(130.0) == 30.0


def test_combine_sums_the_known_and_says_how_many_reported() -> None:
    missing = unknown(UnknownReason.ABSENT, "", now_s=100.0, source="x")
    total = combine([_read(2.0), missing, _read(3.0), _read(0.0)], expected=4, source="sum", now_s=101.0)
    assert isinstance(total, Value)
    assert total.number == 5.0
    assert total.coverage_ratio == 0.75


def test_combine_is_unknown_when_nobody_reported() -> None:
    missing = unknown(UnknownReason.STALE, "age 99 s", now_s=100.0, source="x")
    total = combine([missing, missing], expected=2, source="sum", now_s=101.0)
    assert isinstance(total, Unknown)
    assert total.reason is UnknownReason.STALE
    assert isinstance(combine([], expected=2, source="sum", now_s=101.0), Unknown)


def test_combine_keeps_a_true_zero_when_all_idle() -> None:
    total = combine([_read(0.0), _read(0.0)], expected=2, source="sum", now_s=101.0)
    assert isinstance(total, TrueZero)
    assert total.coverage_ratio == 1.0
