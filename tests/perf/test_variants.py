"""Profiles derived from others."""

import pytest

from tidegate.app.config_profile import load_profile
from tidegate.perf.profile import profile_problems
from tidegate.perf.steptime import step_ps
from tidegate.perf.variants import Weights, quantised, scaled

H100 = load_profile("h100-llama70b-tp4")
WEIGHT_BYTES = 141_108_000_000
KV_BYTES = 327_680


def test_scaled_divides_every_step_by_the_ratio() -> None:
    base = step_ps(H100, tokens=900, kv_read_tokens=50_000, double_pairs=800_000, sequences=40)

    slow = step_ps(scaled(H100, 0.9), tokens=900, kv_read_tokens=50_000, double_pairs=800_000, sequences=40)

    assert slow == pytest.approx(base / 0.9, rel=1e-5)
    assert scaled(H100, 0.9).front_end_ps == round(H100.front_end_ps / 0.9)


def test_scaled_keeps_limits_and_name() -> None:
    fast = scaled(H100, 1.1)

    assert (fast.name, fast.kv_capacity_tokens, fast.token_budget) == (
        H100.name,
        H100.kv_capacity_tokens,
        H100.token_budget,
    )
    assert scaled(H100, 1.0) is H100


@pytest.mark.parametrize("ratio", [0.0, -1.0, float("nan"), float("inf")])
def test_scaled_refuses_a_ratio_that_is_none(ratio: float) -> None:
    with pytest.raises(ValueError, match="ratio must be"):
        scaled(H100, ratio)


@pytest.mark.parametrize("weights", list(Weights))
def test_quantised_turns_freed_weights_into_kv_and_stays_sound(weights: Weights) -> None:
    small = quantised(H100, weights, weight_bytes=WEIGHT_BYTES, kv_bytes_per_token=KV_BYTES)

    assert profile_problems(small) == ()
    assert small.kv_capacity_tokens % small.block_tokens == 0
    assert small.kv_capacity_tokens > H100.kv_capacity_tokens + WEIGHT_BYTES * 0.4 / KV_BYTES
    assert small.weight_read_ps < H100.weight_read_ps
    assert small.name == f"h100-llama70b-tp4-{weights}"


def test_quantised_is_near_the_profile_fitted_to_the_quantised_engine() -> None:
    # That checkpoint brings an FP8 KV cache.
    derived = quantised(H100, Weights.FP8, weight_bytes=WEIGHT_BYTES, kv_bytes_per_token=KV_BYTES, kv_bytes_ratio=0.5)
    fitted = load_profile("h100-llama70b-fp8-tp4")

    for tokens, context in ((1, 500), (32, 32_000), (256, 100_000), (2048, 0)):
        by_ratio = step_ps(derived, tokens=tokens, kv_read_tokens=context, double_pairs=0, sequences=0)
        by_fit = step_ps(fitted, tokens=tokens, kv_read_tokens=context, double_pairs=0, sequences=0)
        assert by_ratio == pytest.approx(by_fit, rel=0.25)
    assert derived.kv_capacity_tokens == pytest.approx(fitted.kv_capacity_tokens, rel=0.25)


def test_quantised_refuses_sizes_that_are_none() -> None:
    with pytest.raises(ValueError, match="sizes must be > 0"):
        quantised(H100, Weights.FP8, weight_bytes=0, kv_bytes_per_token=KV_BYTES)
