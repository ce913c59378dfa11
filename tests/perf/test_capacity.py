"""Capacity in closed form: sane, monotone, and what the simulated replica confirms."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.app.config_profile import load_profile, shipped_profiles
from tidegate.perf.capacity import Limit, Sustainable, replica_capacity
from tidegate.perf.profile import PS_PER_S, EngineProfile
from tidegate.sim.events import SimRequest
from tidegate.sim.replica import ReplicaSim

A100 = load_profile("a100-llama8b-tp1")
FOREVER_PS = 1 << 90

limits_s = st.one_of(st.none(), st.floats(0.02, 20.0))
lengths = st.floats(1.0, 20_000.0)
profiles = st.sampled_from(shipped_profiles()).map(load_profile)


def chat(profile: EngineProfile, ttft_s: float | None, tpot_s: float | None) -> Sustainable:
    return replica_capacity(profile, ttft_s=ttft_s, tpot_s=tpot_s, prompt_tokens=1155.0, output_tokens=211.0)


def simulated_p95(profile: EngineProfile, rate: float, prompt: float, output: float) -> tuple[float, float]:
    """Return p95 TTFT and TPOT, in seconds, of 2,500 requests with exponential lengths."""
    draw = np.random.default_rng(11)
    sim = ReplicaSim(profile)
    arrived: list[int] = []
    wanted: list[int] = []
    at_s = 0.0
    for key in range(2_500):
        at_s += draw.exponential(1.0 / rate)
        arrived.append(round(at_s * PS_PER_S))
        wanted.append(max(1, round(draw.exponential(output))))
        p = max(1, round(draw.exponential(prompt)))
        assert sim.submit(SimRequest(key=key, prompt_tokens=p, output_tokens=wanted[-1]), arrived[-1])
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step in sim.step_until(FOREVER_PS):
        for key in step.emitted:
            first.setdefault(key, step.ended_at_ps)
            last[key] = step.ended_at_ps
    ttft = sorted((first[k] - arrived[k]) / PS_PER_S for k in first)
    tpot = sorted((last[k] - first[k]) / PS_PER_S / (wanted[k] - 1) for k in first if wanted[k] > 1)
    return ttft[int(0.95 * len(ttft))], tpot[int(0.95 * len(tpot))]


@pytest.mark.parametrize(
    ("ttft_s", "tpot_s", "prompt", "output"),
    [(None, 0.04, 1155.0, 211.0), (None, 0.08, 1155.0, 211.0), (1.0, None, 1155.0, 211.0), (None, 0.04, 200.0, 200.0)],
)
def test_capacity_is_where_the_simulated_replica_meets_its_limit(
    ttft_s: float | None, tpot_s: float | None, prompt: float, output: float
) -> None:
    found = replica_capacity(A100, ttft_s=ttft_s, tpot_s=tpot_s, prompt_tokens=prompt, output_tokens=output)

    # The limit holds a little below the capacity and is missed a little above: within 15 % it is neither rosy nor shy.
    below = simulated_p95(A100, found.requests_per_s * 0.85, prompt, output)
    above = simulated_p95(A100, found.requests_per_s * 1.15, prompt, output)
    which, limit_s = (0, ttft_s) if ttft_s is not None else (1, tpot_s)
    assert limit_s is not None
    assert below[which] <= limit_s < above[which]


def test_capacity_names_the_limit_that_binds() -> None:
    long = replica_capacity(A100, ttft_s=None, tpot_s=None, prompt_tokens=100.0, output_tokens=2000.0)
    tight = load_profile("a100-llama70b-tp2")

    assert chat(A100, 1.0, 0.04).binding is Limit.TPOT
    assert chat(A100, 0.3, 1.0).binding is Limit.TTFT
    assert long.binding in (Limit.SEQUENCES, Limit.KV)
    assert chat(tight, None, None).binding is Limit.KV
    assert (
        replica_capacity(A100, ttft_s=None, tpot_s=None, prompt_tokens=8000.0, output_tokens=2.0).binding
        is Limit.COMPUTE
    )


def test_capacity_is_zero_when_an_idle_replica_misses_a_limit() -> None:
    found = chat(A100, None, 0.005)

    assert (found.requests_per_s, found.binding) == (0.0, Limit.TPOT)


def test_capacity_of_one_token_answers_ignores_tpot() -> None:
    found = replica_capacity(A100, ttft_s=None, tpot_s=0.001, prompt_tokens=100.0, output_tokens=1.0)

    assert found.requests_per_s > 0.0


def test_capacity_grows_with_better_hardware() -> None:
    assert chat(load_profile("h100-llama8b-tp1"), 1.0, 0.05).requests_per_s > chat(A100, 1.0, 0.05).requests_per_s


@settings(deadline=None)
@given(profile=profiles, ttft_s=limits_s, tpot_s=limits_s, prompt=lengths, output=lengths, more=st.floats(1.01, 5.0))
def test_capacity_never_rises_with_longer_requests(
    *, profile: EngineProfile, ttft_s: float | None, tpot_s: float | None, prompt: float, output: float, more: float
) -> None:
    def rate(p: float, o: float) -> float:
        return replica_capacity(profile, ttft_s=ttft_s, tpot_s=tpot_s, prompt_tokens=p, output_tokens=o).requests_per_s

    # 0.1 %: the bisection stops within a part in ten thousand.
    base = rate(prompt, output) * 1.001
    assert rate(prompt * more, output) <= base
    assert rate(prompt, output * more) <= base


@settings(deadline=None)
@given(profile=profiles, prompt=lengths, output=lengths, limit_s=st.floats(0.01, 10.0), looser=st.floats(1.0, 10.0))
def test_capacity_never_falls_with_looser_limits(
    profile: EngineProfile, prompt: float, output: float, limit_s: float, looser: float
) -> None:
    def rate(ttft_s: float, tpot_s: float) -> float:
        return replica_capacity(
            profile, ttft_s=ttft_s, tpot_s=tpot_s, prompt_tokens=prompt, output_tokens=output
        ).requests_per_s

    rates = [rate(limit_s, limit_s / 5), rate(limit_s * looser, limit_s / 5), rate(limit_s * looser, limit_s * looser)]
    assert all(after >= before * 0.999 for before, after in pairwise(rates))


@settings(deadline=None)
@given(profile=profiles, ttft_s=limits_s, tpot_s=limits_s, prompt=lengths, output=lengths)
def test_capacity_keeps_its_own_limits(
    profile: EngineProfile, ttft_s: float | None, tpot_s: float | None, prompt: float, output: float
) -> None:
    found = replica_capacity(profile, ttft_s=ttft_s, tpot_s=tpot_s, prompt_tokens=prompt, output_tokens=output)

    if found.requests_per_s > 0.0:
        assert ttft_s is None or found.ttft_s <= ttft_s
        assert tpot_s is None or output <= 1.0 or found.tpot_s <= tpot_s
        assert found.decoding <= profile.max_sequences
        assert found.kv_used_ratio <= 1.0


@pytest.mark.parametrize(
    ("prompt", "output", "ttft_s", "quantile"),
    [
        (0.0, 1.0, 1.0, 0.95),
        (float("nan"), 1.0, 1.0, 0.95),
        (1.0, float("inf"), 1.0, 0.95),
        (1.0, 1.0, 0.0, 0.95),
        (1.0, 1.0, 1.0, 0.4),
        (1.0, 1.0, 1.0, 1.0),
    ],
)
def test_capacity_refuses_what_is_no_load(prompt: float, output: float, ttft_s: float, quantile: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        replica_capacity(
            A100, ttft_s=ttft_s, tpot_s=None, prompt_tokens=prompt, output_tokens=output, quantile=quantile
        )
