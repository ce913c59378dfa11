"""Policies as the core reads them, for tests that need one and do not care which."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tidegate.terms.fleet import EngineKind, PoolKey, Role
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

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def pool_policy(key: PoolKey, **changes: Any) -> PoolPolicy:  # noqa: ANN401  (any field of the policy)
    """Return a pool of one to eight single-GPU replicas, with `changes` to its fields."""
    plain = PoolPolicy(
        key=key,
        role=Role.AGGREGATED,
        engine=EngineKind.VLLM,
        accelerator="nvidia-a100-80gb",
        gpus_per_replica=1,
        parallelism=Parallelism(),
        profile="a100-llama8b-tp1",
        min_replicas=1,
        max_replicas=8,
        cold_start_prior_s=20.0,
        cost_usd_per_h=2.5,
        target=ScaleTarget(kind=TargetKind.LOCAL, name=key.pool),
    )
    return replace(plain, **changes)


def service_policy(
    name: str = "chat",
    pools: Sequence[str] = ("main",),
    **changes: Any,  # noqa: ANN401  (any field of the policy)
) -> ServicePolicy:
    """Return a service that acts, without objectives, with `changes` to its fields."""
    plain = ServicePolicy(
        name=name,
        model=MODEL,
        mode=Mode.ACT,
        priority=100,
        slos=(),
        pools=tuple(pool_policy(PoolKey(service=name, pool=pool)) for pool in pools),
        scaling=ScalingPolicy(
            max_grow_replicas=4,
            max_shrink_replicas=1,
            shrink_stabilisation_s=60.0,
            target_utilisation_ratio=0.85,
            forecast_quantile=0.9,
            stale_after_s=30.0,
        ),
        budget=BudgetPolicy(),
        gateway=GatewayPolicy(retries=3, idle_timeout_s=300.0, max_body_bytes=8 << 20),
        cache=CachePolicy(),
    )
    return replace(plain, **changes)
