"""The search for a replica's capacity finds what trying each limit alone finds, in fewer looks."""

import math

from hypothesis import given
from hypothesis import strategies as st

from tidegate.app.config_profile import load_profile
from tidegate.perf import capacity
from tidegate.perf.steptime import dense_ps

PROFILE = load_profile("a100-llama8b-tp1")


def alone(bound: capacity._Bound) -> float:
    """The largest u at which one limit holds, by plain bisection."""

    def holds(u: float) -> bool:
        return bound.figure(u) <= bound.most

    if not holds(1e-6):
        return 0.0
    low = high = 0.1
    while high < 1e6 and holds(high):
        low, high = high, high * 4.0
    while low > 1e-6 and not holds(low):
        low, high = low / 4.0, low
    while high > low * 1.0001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


logarithms = st.floats(min_value=0.0, max_value=4.5)


@given(
    prompt=logarithms,
    output=logarithms,
    ttft_s=st.none() | st.floats(min_value=0.005, max_value=30.0),
    tpot_s=st.none() | st.floats(min_value=0.005, max_value=1.0),
)
def test_search_equals_the_lowest_of_each_limit_alone(
    prompt: float, output: float, ttft_s: float | None, tpot_s: float | None
) -> None:
    load = capacity._Load(PROFILE, prompt=10.0**prompt, output=10.0**output, quantile=0.95)
    bounds = capacity._limits(load, ttft_s, tpot_s)
    found = [(alone(b), b.limit) for b in bounds]
    assert capacity._most(bounds) == min(found, key=lambda pair: pair[0])


@given(st.floats(min_value=0.0, max_value=1e6))
def test_load_knows_the_dense_part_of_a_step(tokens: float) -> None:
    load = capacity._Load(PROFILE, prompt=100.0, output=100.0, quantile=0.95)
    assert load.dense_ps(tokens) == dense_ps(PROFILE, tokens)


def test_search_looks_at_few_points() -> None:
    load = capacity._Load(PROFILE, prompt=1155.0, output=211.0, quantile=0.95)
    looks: list[float] = []
    tpot_s = load.tpot_s

    def counted(u: float) -> float:
        looks.append(u)
        return tpot_s(u)

    bounds = [b for b in capacity._limits(load, 1.0, 0.08) if b.limit is not capacity.Limit.TPOT]
    capacity._most([*bounds, capacity._Bound(limit=capacity.Limit.TPOT, figure=counted, most=0.08)])
    assert len(looks) <= 12
