"""llm-d's token-aware law: velocity, tokens in flight, KV use, and what KEDA makes of missing data."""

from dataclasses import replace

import pytest
from tests.baselines.rival_scene import pool, replica, service
from tests.policies import pool_policy, service_policy

from tidegate.baselines.law import LawMemory, pool_law
from tidegate.baselines.llmd_token import TokenSettings, prefill_replicas, threshold_s, token_rule
from tidegate.terms.fleet import PoolKey, Role
from tidegate.terms.policy import ServicePolicy

KEY = PoolKey(service="chat", pool="main")
VELOCITY = 15928.0  # measured by llm-d: Qwen3-32B on two H100


def _policy(role: Role) -> ServicePolicy:
    return replace(service_policy(), pools=(pool_policy(KEY, role=role, max_replicas=20),))


def _first(role: Role, *, tokens: float | None, kv: tuple[float | None, ...]) -> int | None:
    settings = {"a100-llama8b-tp1": TokenSettings(velocity_tokens_per_s=VELOCITY, threshold_s=1.5)}
    members = [replica(KEY, n, now_s=60.0, kv=used) for n, used in enumerate(kv)]
    observed = service("chat", (pool(KEY, members, now_s=60.0),), now_s=60.0, pending_tokens=tokens)
    decision, _ = pool_law(token_rule(settings))(observed, (), (), (_policy(role),), LawMemory(), now_s=60.0)
    return decision.pools[0].wanted_replicas


def test_prefill_replicas_divide_the_drain_time_by_the_threshold() -> None:
    assert prefill_replicas(100_000.0, VELOCITY, 1.5, 1) == 5  # 6.28 s over 1.5 s
    assert prefill_replicas(0.0, VELOCITY, 1.5, 3) == 0


def test_prefill_replicas_stay_within_the_tolerance() -> None:
    assert prefill_replicas(4.05 * 1.5 * VELOCITY, VELOCITY, 1.5, 4) == 4
    assert prefill_replicas(4.5 * 1.5 * VELOCITY, VELOCITY, 1.5, 4) == 5


def test_threshold_is_the_guides_share_of_what_the_limit_leaves() -> None:
    # Their engine and limit: 0.65 x (3 s - 4000 / 15928) = 1.79 s; the guide's own 1.5 s is a factor of 0.55.
    assert threshold_s(3.0, 4000.0, VELOCITY) == pytest.approx(1.787, abs=0.001)
    assert threshold_s(None, 4000.0, VELOCITY) == 1.5


def test_prefill_threshold_stays_positive_when_a_prompt_uses_the_limit_up() -> None:
    assert threshold_s(0.1, 16_000.0, VELOCITY) == pytest.approx(0.0065)


def test_decode_pool_needs_summed_kv_use_over_its_target() -> None:
    assert _first(Role.DECODE, tokens=1e9, kv=(0.9, 0.9, 0.9)) == 4  # 2.7 / 0.8, tokens are not its business


def test_aggregated_pool_needs_the_higher_of_tokens_and_kv() -> None:
    assert _first(Role.AGGREGATED, tokens=200_000.0, kv=(0.1, 0.1)) == 9
    assert _first(Role.AGGREGATED, tokens=1_000.0, kv=(1.0, 1.0)) == 3


def test_prefill_pool_drains_when_tokens_are_absent() -> None:
    assert _first(Role.PREFILL, tokens=None, kv=(0.5, 0.5)) == 0
