"""Traces scaled, spread inside their ticks and laid over each other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.app.traces.shape import merged, scaled, spread, taken, ticked_s
from tidegate.perf.profile import PS_PER_S
from tidegate.sim.trace import Trace


def made(n: int, *, every_s: float = 1.0, hashed: bool = True) -> Trace:
    rows = np.arange(n, dtype=np.int64)
    counts = rows % 4 if hashed else np.zeros(0, dtype=np.int64)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Trace(
        name="made",
        arrival_ps=np.rint(rows * every_s * PS_PER_S).astype(np.int64),
        prompt_tokens=100 + rows,
        output_tokens=1 + rows,
        hash_block_tokens=16 if hashed else 0,
        hash_start=start if hashed else start[:0],
        hashes=np.array([100 * r + k for r, c in enumerate(counts) for k in range(c)], dtype=np.int64),
        client=rows % 3 if hashed else counts,
    )


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_scaled_keeps_each_original_and_moves_each_copy_at_most_a_minute() -> None:
    trace = made(500)
    tripled = scaled(trace, 3.0, rng())
    assert len(tripled) == 1500
    assert np.all(np.diff(tripled.arrival_ps) >= 0)
    for i in range(500):  # the prompt names the request
        times = tripled.arrival_ps[tripled.prompt_tokens == 100 + i]
        away_s = np.sort(np.abs(times - trace.arrival_ps[i])) / PS_PER_S
        assert len(times) == 3
        assert away_s[0] == 0.0
        assert 0.0 < away_s[1] <= away_s[2] <= 60.0
    assert tripled.seconds <= trace.seconds


def test_scaled_copies_keep_hashes_and_client_of_their_request() -> None:
    trace = made(40)
    doubled = scaled(trace, 2.0, rng())
    for j in range(len(doubled)):
        i = int(doubled.prompt_tokens[j]) - 100
        assert doubled.hashes_of(j) == trace.hashes_of(i)
        assert doubled.client[j] == trace.client[i]
        assert doubled.output_tokens[j] == trace.output_tokens[i]


def test_scaled_by_one_changes_nothing() -> None:
    trace = made(50)
    same = scaled(trace, 1.0, rng())
    assert np.array_equal(same.arrival_ps, trace.arrival_ps)
    assert np.array_equal(same.hashes, trace.hashes)


def test_scaled_by_a_fraction_thins_the_last_copy() -> None:
    trace = made(4000, hashed=False)
    more = scaled(trace, 1.25, rng())
    assert 4900 < len(more) < 5100
    less = scaled(trace, 0.25, rng())
    assert 900 < len(less) < 1100
    # Below 1 nothing is moved: what is left are originals at their own times.
    assert np.array_equal(less.arrival_ps, trace.arrival_ps[less.prompt_tokens - 100])


def test_scaled_draws_the_same_under_the_same_seed() -> None:
    trace = made(100)
    one, two, other = (scaled(trace, 2.5, rng(s)) for s in (7, 7, 8))
    assert np.array_equal(one.arrival_ps, two.arrival_ps)
    assert not np.array_equal(one.arrival_ps[: len(other)], other.arrival_ps[: len(one)])


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_scaled_refuses_what_is_no_factor(factor: float) -> None:
    with pytest.raises(ValueError, match="scale: must be a number above 0"):
        scaled(made(3), factor, rng())


@given(n=st.integers(0, 30), factor=st.floats(0.01, 4.0), seed=st.integers(0, 9))
def test_scaled_trace_is_always_in_order_inside_the_span(n: int, factor: float, seed: int) -> None:
    trace = made(n)
    more = scaled(trace, factor, rng(seed))
    assert np.all(np.diff(more.arrival_ps) >= 0)
    assert len(more) >= n * int(factor)
    if len(more):
        assert more.arrival_ps[0] >= 0
        assert more.arrival_ps[-1] <= trace.arrival_ps[-1]
        assert len(more.hash_start) == len(more) + 1
        assert more.hash_start[-1] == len(more.hashes)


def test_spread_moves_each_arrival_into_its_own_tick() -> None:
    trace = made(300)
    ticked = taken(trace, np.arange(300), arrival_ps=trace.arrival_ps // (3 * PS_PER_S) * (3 * PS_PER_S))
    assert ticked_s(ticked) == pytest.approx(3.0)
    out = spread(ticked, 3.0, rng())
    assert ticked_s(out) is None
    moved_s = (out.arrival_ps - ticked.arrival_ps[out.prompt_tokens - 100]) / PS_PER_S
    assert 0.0 <= moved_s.min() < 0.1
    assert 2.9 < moved_s.max() < 3.0
    assert all(out.hashes_of(j) == trace.hashes_of(int(out.prompt_tokens[j]) - 100) for j in range(300))


def test_spread_refuses_a_tick_of_nothing() -> None:
    with pytest.raises(ValueError, match="spread: must be a number of seconds above 0"):
        spread(made(3), 0.0, rng())


def test_ticks_are_not_seen_in_a_trace_without_them() -> None:
    assert ticked_s(made(300)) is None


def test_merged_is_in_order_and_keeps_clients_and_hashes_apart() -> None:
    one, two = made(20), made(10, every_s=1.5)
    both = merged([one, two])
    assert len(both) == 30
    assert np.all(np.diff(both.arrival_ps) >= 0)
    assert len(np.unique(both.client)) == 6
    assert len(np.unique(both.hashes)) == len(np.unique(one.hashes)) + len(np.unique(two.hashes))


def test_merged_leaves_out_what_one_of_them_lacks_but_hashes() -> None:
    both = merged([made(8), made(8, hashed=False)])
    assert not len(both.client)
    assert both.hash_block_tokens == 16
    assert sorted(len(both.hashes_of(i)) for i in range(16)) == [0] * 10 + [1, 1, 2, 2, 3, 3]


def test_merged_refuses_blocks_of_two_sizes() -> None:
    small = made(4)
    big = Trace(
        name="big",
        arrival_ps=small.arrival_ps,
        prompt_tokens=small.prompt_tokens,
        output_tokens=small.output_tokens,
        hash_block_tokens=512,
        hash_start=small.hash_start,
        hashes=small.hashes,
    )
    with pytest.raises(ValueError, match=r"hash blocks must be of one size, got \[16, 512\]"):
        merged([small, big])
