"""NVIDIA's planner: its budget guard, beside the clamp it masks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.baselines.dynamo_budget import (
    Band,
    Pair,
    Side,
    clamp_pair,
    clamp_single,
    fit_pair,
    guard_pair,
    guard_single,
    within,
)

WIDE, NARROW = Side(gpus=8), Side(gpus=1)
ONE = Side(gpus=1)


def test_raw_clamp_grows_decode_as_found() -> None:
    assert clamp_pair((10, 1), WIDE, NARROW, Band(most=20)) == (2, 4)


def test_guard_masks_the_clamp() -> None:
    assert guard_pair((2, 1), (10, 1), WIDE, NARROW, Band(most=20)) == (2, 1)


def test_clamp_gives_nothing_when_the_least_footprint_is_over_the_ceiling() -> None:
    assert clamp_pair((3, 3), WIDE, NARROW, Band(most=8)) == (0, 0)
    assert clamp_single(3, WIDE, Band(most=4)) == 0


@pytest.mark.parametrize(
    ("current", "proposed", "expected"),
    [
        ((4, 4), (5, 4), (4, 4)),  # at the ceiling, no donor
        ((4, 4), (5, 3), (5, 3)),  # a swap that fits
        ((4, 4), (7, 3), (5, 3)),  # the largest part of a swap that fits
        ((4, 4), (3, 4), (3, 4)),  # down is free
        ((2, 2), (4, 4), (4, 4)),
        ((6, 4), (2, 2), (4, 4)),  # over the ceiling: brought back from where it stands, the proposal does not count
    ],
)
def test_guard_at_the_ceiling(current: Pair, proposed: Pair, expected: Pair) -> None:
    assert guard_pair(current, proposed, ONE, ONE, Band(most=8)) == expected


def test_guard_holds_a_pure_down_at_the_floor() -> None:
    band = Band(most=16, least=4)
    assert guard_pair((2, 2), (1, 2), ONE, ONE, band) == (2, 2)
    assert guard_single(4, 3, ONE, band) == 4
    assert guard_single(5, 4, ONE, band) == 4


def test_guard_of_one_role_holds_at_the_ceiling_and_clamps_below_it() -> None:
    assert guard_single(8, 9, ONE, Band(most=8)) == 8
    assert guard_single(5, 12, ONE, Band(most=8)) == 8
    assert guard_single(10, 12, ONE, Band(most=8)) == 8


def test_swap_moves_both_or_neither() -> None:
    # One prefill replica is 8 accelerators: giving one decode replica cannot pay for it.
    assert fit_pair((1, 8), (2, 7), WIDE, NARROW, Band(most=16)) == (1, 8)


counts = st.integers(min_value=1, max_value=12)


pairs = st.tuples(counts, counts)


@given(now=pairs, proposed=pairs, gpus=st.integers(1, 4), most=st.integers(8, 40))
def test_guard_never_reverses_a_direction_nor_leaves_the_ceiling(
    now: Pair, proposed: Pair, gpus: int, most: int
) -> None:
    prefill, band = Side(gpus=gpus), Band(most=most)
    got = guard_pair(now, proposed, prefill, ONE, band)
    if within(now[0] * gpus + now[1], band, 0):
        assert all(min(n, p) <= g <= max(n, p) for n, p, g in zip(now, proposed, got, strict=True))
        assert got[0] * gpus + got[1] <= most
