"""An engine whose steps can be added up by hand."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tidegate.perf.profile import EngineProfile

# p = 1 adds reading and computing, so with these figures a step of N tokens, K KV tokens, 2A double pairs and S
# sequences takes 100 + 10 + N + 2K + 3 * 2A / 2 + 7S picoseconds.
_PLAIN = EngineProfile(
    name="plain",
    model="test/model",
    accelerator="none",
    engine="vllm",
    engine_version="0",
    tensor_parallel=1,
    source="made up",
    dated="2026-01-01",
    step_base_ps=100,
    weight_read_ps=10,
    compute_ps_per_token=1,
    smooth_max_power=1.0,
    compute_factor_ratio=1.0,
    kv_read_ps_per_token=2,
    attention_ps_per_pair=3,
    host_fixed_ps=0,
    host_ps_per_sequence=7,
    front_end_ps=50,
    kv_capacity_tokens=1600,
    block_tokens=16,
    token_budget=64,
    max_sequences=8,
    max_context_tokens=1000,
)


@pytest.fixture
def engine() -> Callable[..., EngineProfile]:
    """Return a factory: the plain engine with some fields changed."""

    def make(**changes: object) -> EngineProfile:
        return replace(_PLAIN, **changes)  # type: ignore[arg-type]

    return make
