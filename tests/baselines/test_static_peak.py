"""The static size is the smallest that keeps the objectives on the same arrivals."""

from dataclasses import replace

import pytest

from tidegate.baselines.static_peak import keeps, static, static_peak
from tidegate.sim.rehearse import RehearsalResult
from tidegate.terms.decision import Memory, PoolMemory
from tidegate.terms.fleet import EngineKind, PoolKey, Role
from tidegate.terms.observation import Observation
from tidegate.terms.policy import (
    BudgetPolicy,
    CachePolicy,
    GatewayPolicy,
    Mode,
    Parallelism,
    PoolPolicy,
    ScaleTarget,
    ScalingPolicy,
    ServicePolicy,
    TargetKind,
)

KEY = PoolKey(service="chat", pool="main")
OBJECTIVES = (("ttft", 0.95), ("tpot", 0.9))


def result(size: int, needed: int, *, failed: int = 0) -> RehearsalResult:
    ratio = 0.99 if size >= needed else 0.9
    return RehearsalResult(
        outcomes=(), attained_ratio=(("ttft", ratio), ("tpot", 1.0)), joint_ratio=ratio, failed=failed,
        replica_seconds=float(size), gpu_seconds=0.0, replicas_peak=size, events=(), replicas_over_time=(),
        decisions=(), ended_s=0.0,
    )  # fmt: skip


@pytest.mark.parametrize("needed", range(1, 12))
@pytest.mark.parametrize("most", [1, 2, 7, 11])
def test_static_peak_finds_the_smallest_size(needed: int, most: int) -> None:
    tried: list[int] = []

    def run(size: int) -> RehearsalResult:
        tried.append(size)
        return result(size, needed)

    found = static_peak(run, objectives=OBJECTIVES, max_replicas=most)
    assert (found.replicas, found.kept) == ((needed, True) if needed <= most else (most, False))
    assert found.result.replicas_peak == found.replicas
    assert len(set(tried)) == len(tried) <= 8


def test_an_objective_is_kept_at_its_ratio_and_not_with_a_failed_request() -> None:
    good = replace(result(1, 1), attained_ratio=(("ttft", 0.95), ("tpot", 0.9)))
    assert keeps(good, OBJECTIVES)
    assert not keeps(replace(good, attained_ratio=(("ttft", 0.9499), ("tpot", 1.0))), OBJECTIVES)
    assert not keeps(replace(good, failed=1), OBJECTIVES)


def test_static_policy_asks_for_the_same_whatever_it_sees() -> None:
    pool = PoolPolicy(
        key=KEY, role=Role.AGGREGATED, engine=EngineKind.VLLM, accelerator="a", gpus_per_replica=1,
        parallelism=Parallelism(), profile="p", min_replicas=1, max_replicas=2, cold_start_prior_s=1.0,
        cost_usd_per_h=1.0, target=ScaleTarget(kind=TargetKind.LOCAL, name="main"),
    )  # fmt: skip
    scaling = ScalingPolicy(
        max_grow_replicas=4, max_shrink_replicas=1, shrink_stabilisation_s=None, target_utilisation_ratio=0.8,
        forecast_quantile=0.9, stale_after_s=30.0,
    )  # fmt: skip
    policy = ServicePolicy(
        name="chat", model="m", mode=Mode.ACT, priority=1, slos=(), pools=(pool,), scaling=scaling,
        budget=BudgetPolicy(), gateway=GatewayPolicy(retries=1, idle_timeout_s=1.0, max_body_bytes=1),
        cache=CachePolicy(),
    )  # fmt: skip
    before = Memory(sequence=4, pools=(PoolMemory(key=KEY, asked_replicas=1),))
    empty = Observation(observed_at_s=9.0, services=())
    decision, after = static(5)(empty, (), (), (policy,), before, now_s=9.0)
    assert (decision.sequence, decision.decided_at_s, after.sequence) == (5, 9.0, 5)
    assert (decision.pools[0].asked_before_replicas, decision.pools[0].asked_replicas) == (1, 5)
