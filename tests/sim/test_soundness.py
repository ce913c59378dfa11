"""What no fleet can be made of is refused, with what it is and what it must be."""

from dataclasses import replace

import pytest
from tests.sim.worlds import LINK, Engine, hashed, load, pool, setup

from tidegate.sim.fleet import FleetSim
from tidegate.sim.setup import CacheSetup, FleetSetup
from tidegate.sim.soundness import check_fleet
from tidegate.sim.trace import Trace
from tidegate.terms.fleet import Role

NOTHING = load()


def refusal(trace: Trace, one: FleetSetup) -> str:
    with pytest.raises(ValueError, match="must be") as caught:
        check_fleet(trace, one)
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"pools": ()}, "setup: pools must be at least one"),
        ({"sweep_s": 0.0}, "setup: sweep_s must be > 0"),
        ({"crash_retries": -1}, "setup: crash_retries must be >= 0"),
        ({"ttft_bounds_ps": (2, 1)}, "setup: ttft_bounds_ps must be ascending"),
    ],
)
def test_fleet_refuses_a_setup_without_sense(engine: Engine, changes: dict[str, object], text: str) -> None:
    one: FleetSetup = replace(setup(pool(engine())), **changes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=text):
        FleetSim(NOTHING, one)


def test_fleet_refuses_pools_and_traces_without_sense(engine: Engine) -> None:
    cache = CacheSetup(hash_block_tokens=32, remote_blocks=4)
    plain = hashed(load((0, 70, 1)), 32, (1, 2))
    other = replace(cache, remote_blocks=5)
    bad: list[tuple[Trace, FleetSetup, str]] = [
        (NOTHING, setup(pool(engine(), -1)), "pool chat/main: initial must be >= 0"),
        (NOTHING, setup(pool(engine(), weight=0)), "pool chat/main: weight must be >= 1"),
        (NOTHING, setup(pool(engine(block_tokens=0))), "profile plain: block_tokens must be >= 1"),
        (NOTHING, setup(pool(engine()), pool(engine(), role=Role.DECODE)), "all aggregated, or prefill and decode"),
        (NOTHING, setup(pool(engine(), role=Role.PREFILL)), "prefill with decode pools behind them"),
        (load((0, 70, 1)), setup(pool(engine(), cache=cache)), "must be that of the trace load (0), got 32"),
        (plain, setup(pool(engine(), cache=cache), pool(engine(), cache=other)), "cache.remote_blocks must be equal"),
        (load((5, 1, 1), (4, 1, 1)), setup(pool(engine())), "trace load: arrival_ps must be >= 0 and never falling"),
        (load((0, 0, 1)), setup(pool(engine())), "trace load: prompt_tokens must be 1 numbers >= 1"),
        (load((0, 1, 1), prefix_id=(1, 2)), setup(pool(engine())), "prefix_id must be empty or 1 numbers"),
    ]
    for trace, one, text in bad:
        assert text in refusal(trace, one)


def test_decode_pools_have_no_cache_and_links_no_gains(engine: Engine) -> None:
    prefill, decode = pool(engine(), role=Role.PREFILL), pool(engine(), role=Role.DECODE)
    cached = replace(decode, cache=CacheSetup(hash_block_tokens=32))
    trace = hashed(load((0, 70, 1)), 32, (1, 2))
    assert "cache must be none in a decode pool" in refusal(trace, setup(prefill, cached, link=LINK))
    for link in (None, replace(LINK, base_ps=-1), replace(LINK, ps_per_token=-1)):
        assert "link must be a link with costs >= 0" in refusal(trace, setup(prefill, decode, link=link))
    check_fleet(trace, setup(prefill, decode, link=LINK))
