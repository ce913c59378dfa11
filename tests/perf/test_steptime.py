"""Step times against figures worked out by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.app.config_profile import load_profile
from tidegate.perf.steptime import dense_ps, dense_table_ps, step_ps

A100 = load_profile("a100-llama8b-tp1")


def test_step_adds_up_as_computed_by_hand() -> None:
    # Reading 3 and computing 4 meet at p = 2: 5. Then 1 + 0.5 fixed, 2 * 100 per KV token, 6 * 10 * (2 * 5 + 10) / 2
    # pairs, 7 * 3 per sequence.
    profile = replace(
        A100,
        step_base_ps=1000,
        host_fixed_ps=500,
        weight_read_ps=3000,
        compute_ps_per_token=400,
        smooth_max_power=2.0,
        kv_read_ps_per_token=2,
        attention_ps_per_pair=6,
        host_ps_per_sequence=7,
    )

    took = step_ps(profile, tokens=10, kv_read_tokens=100, double_pairs=10 * (2 * 5 + 10), sequences=3)

    assert took == 1000 + 500 + 5000 + 200 + 600 + 21


@pytest.mark.parametrize(
    ("tokens", "kv", "pairs", "sequences", "milliseconds"),
    [
        # Worked out with the published coefficients of A100 8B TP1: 7.07224, 4.72631, 54.9989 us, 82.701 ns, 3072 ps.
        (1, 500, 0, 1, 11.8902),  # sqrt(4.72631^2 + 0.0549989^2) = 4.72663; + 7.07224 + 0.04135 + 0.05
        (64, 64_000, 0, 64, 21.4581),  # sqrt(4.72631^2 + 3.51993^2) = 5.89298; + 7.07224 + 5.29286 + 3.2
        (2048, 0, 2048 * 2048, 1, 126.3019),  # 112.7369 + 7.07224 + 6.44245 + 0.05
    ],
)
def test_step_matches_the_published_coefficients(
    tokens: int, kv: int, pairs: int, sequences: int, milliseconds: float
) -> None:
    took = step_ps(A100, tokens=tokens, kv_read_tokens=kv, double_pairs=pairs, sequences=sequences)

    assert took / 1e9 == pytest.approx(milliseconds, rel=5e-4)


def test_dense_table_covers_the_token_budget_and_no_more() -> None:
    assert len(dense_table_ps(A100)) == A100.token_budget + 1
    with pytest.raises(IndexError):
        step_ps(A100, tokens=A100.token_budget + 1, kv_read_tokens=0, double_pairs=0, sequences=1)


def test_dense_adds_when_the_power_is_one() -> None:
    profile = replace(A100, smooth_max_power=1.0)

    assert dense_ps(profile, 100) == pytest.approx(profile.weight_read_ps + 100 * profile.compute_ps_per_token)


def test_dense_is_the_larger_of_the_two_when_the_power_is_high() -> None:
    profile = replace(A100, smooth_max_power=16.0)

    assert dense_ps(profile, 1) == pytest.approx(profile.weight_read_ps)
    assert dense_ps(profile, 2000) == pytest.approx(2000 * profile.compute_ps_per_token, rel=1e-6)


@given(tokens=st.integers(1, 2047), power=st.floats(1.0, 16.0))
def test_dense_never_falls_with_more_tokens(tokens: int, power: float) -> None:
    profile = replace(A100, smooth_max_power=power)

    assert dense_ps(profile, tokens + 1) >= dense_ps(profile, tokens) >= profile.weight_read_ps
