"""NVIDIA's planner: golden values of its capacity search, and next-request estimates."""

import pytest

from tidegate.baselines.dynamo_engine import (
    EngineLimits,
    EngineLoad,
    aggregated_capacity,
    batches,
    chunked_s,
    decode_capacity,
    next_itl_s,
    next_ttft_s,
    prefill_capacity,
)

# The engine of the golden values, which were taken by running the planner itself: 8 ms a pass, 0.025 ms per prompt
# token; 0.02 ms per decoding request and 2e-5 ms per KV token.
LIMITS = EngineLimits(token_budget=8192, max_sequences=256, kv_tokens=500_000)


def forward(prefill: int, decoding: int, context: int) -> float:
    return (8.0 + 0.025 * prefill + 0.02 * decoding + 2e-5 * context) / 1000.0


def test_prefill_capacity_is_the_golden_value() -> None:
    found = prefill_capacity(forward, LIMITS, prompt_tokens=3000.0, ttft_s=0.5)
    assert found is not None
    assert found.batch == 2
    assert found.ttft_s == pytest.approx(0.158)
    assert round(found.requests_per_s, 3) == 12.658


def test_decode_capacity_is_the_golden_value() -> None:
    found = decode_capacity(forward, LIMITS, prompt_tokens=3000.0, output_tokens=150.0, itl_s=0.03)
    assert found is not None
    assert found.batch == 162
    assert found.itl_s is not None
    assert round(1000.0 * found.itl_s, 3) == 21.203
    assert round(found.requests_per_s, 3) == 50.936


def test_prefill_capacity_takes_the_fastest_when_none_meets_the_limit() -> None:
    found = prefill_capacity(forward, LIMITS, prompt_tokens=3000.0, ttft_s=0.05)
    assert found is not None
    assert not found.eligible
    assert found.batch == 2


def test_prefill_capacity_tries_one_prompt_when_it_exceeds_the_budget() -> None:
    found = prefill_capacity(forward, LIMITS, prompt_tokens=10_000.0, ttft_s=1.0)
    assert found is not None
    assert found.batch == 1
    assert found.ttft_s == pytest.approx((8.0 + 0.025 * 8192 + 8.0 + 0.025 * 1808) / 1000.0)


def test_prefill_capacity_leaves_out_what_the_cache_holds_up_to_a_bound() -> None:
    half = prefill_capacity(forward, LIMITS, prompt_tokens=3000.0, ttft_s=0.5, hit_ratio=0.5)
    whole = prefill_capacity(forward, LIMITS, prompt_tokens=3000.0, ttft_s=0.5, hit_ratio=1.0)
    assert half is not None
    assert whole is not None
    assert half.batch == 5
    assert whole.batch == 54  # 5 % of 3000 tokens remain


def test_capacity_is_unknown_without_lengths() -> None:
    assert prefill_capacity(forward, LIMITS, prompt_tokens=0.0, ttft_s=0.5) is None
    assert decode_capacity(forward, LIMITS, prompt_tokens=3000.0, output_tokens=0.0, itl_s=0.03) is None


def test_aggregated_capacity_keeps_prompts_in_balance_with_answers() -> None:
    found = aggregated_capacity(forward, LIMITS, prompt_tokens=3000.0, output_tokens=150.0, ttft_s=0.5, itl_s=0.03)
    assert found is not None
    assert found.eligible
    # 22 decodes bring 440 prompt tokens: 8 + 11 + 0.44 + 1.353 ms; the next batch would miss 30 ms only at 38.
    assert found.itl_s is not None
    assert found.itl_s <= 0.03
    assert found.itl_s == pytest.approx(forward(20 * found.batch, found.batch, found.batch * 3075))
    above = forward(20 * (found.batch + 1), found.batch + 1, (found.batch + 1) * 3075)
    assert above > 0.03


def test_batches_are_all_or_evenly_spaced() -> None:
    assert list(batches(3)) == [1, 2, 3]
    spaced = list(batches(1000))
    assert (len(spaced), spaced[0], spaced[-1]) == (128, 1, 1000)


def test_next_ttft_is_the_drain_of_the_queue_and_the_requests_own_prefill() -> None:
    load = EngineLoad(queued_prompt_tokens=9_000.0)
    expected = chunked_s(forward, LIMITS, 12_000)
    assert next_ttft_s(forward, LIMITS, load, prompt_tokens=3000.0) == expected
    assert next_ttft_s(forward, LIMITS, load, prompt_tokens=3000.0, queue_factor=0.0) == forward(3000, 0, 0)


def test_next_itl_counts_the_request_that_joins() -> None:
    load = EngineLoad(decoding=10.0, context_tokens=30_000.0, queued_decodes=2.0, queued_context_tokens=6_000.0)
    assert next_itl_s(forward, load, context_tokens=3000.0) == forward(0, 13, 39_000)
    assert next_itl_s(forward, load, context_tokens=0.0, decode_factor=2.0) == forward(0, 24, 72_000)
