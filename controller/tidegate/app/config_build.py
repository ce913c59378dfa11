"""Checked pydantic models to the frozen types the core reads."""

from pathlib import Path

from tidegate.app.config_model import NodeModel, PoolModel, ServicePolicyModel, SloModel
from tidegate.terms.errors import NotBuiltYetError
from tidegate.terms.fleet import PoolKey
from tidegate.terms.observation import NodeInventory
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
from tidegate.terms.slo import Slo

_TARGETS = {"Local": TargetKind.LOCAL, "Deployment": TargetKind.DEPLOYMENT}
_MODES = {"advise": Mode.ADVISE, "act": Mode.ACT}


def profile_reference(name_or_path: str, folder: Path) -> str:
    """Return a profile's name as it is, or a profile file's path as seen from the policy file's folder."""
    is_path = "/" in name_or_path or name_or_path.endswith((".yaml", ".yml"))
    return str(folder / name_or_path) if is_path else name_or_path


def policy_of(model: ServicePolicyModel, folder: Path) -> ServicePolicy:
    """Return the policy of a model that passed every check; `folder` is where its file lies."""
    spec = model.spec
    if spec.mode not in _MODES:
        msg = f"spec.mode: {spec.mode} mode is not built yet"
        raise NotBuiltYetError(msg)
    scaling, gateway = spec.scaling, spec.gateway
    return ServicePolicy(
        name=model.metadata.name,
        model=spec.model,
        mode=_MODES[spec.mode],
        priority=spec.priority,
        slos=tuple(_slo(s) for s in spec.slos),
        pools=tuple(_pool(model.metadata.name, p, folder) for p in spec.pools),
        scaling=ScalingPolicy(
            max_grow_replicas=scaling.max_grow_replicas,
            max_shrink_replicas=scaling.max_shrink_replicas,
            shrink_stabilisation_s=scaling.shrink_stabilisation,
            target_utilisation_ratio=scaling.target_utilisation,
            forecast_quantile=scaling.forecast_quantile,
            stale_after_s=scaling.stale_after,
        ),
        budget=BudgetPolicy(max_cost_usd_per_h=spec.budget.max_cost_per_hour, max_gpus=spec.budget.max_gpus),
        gateway=GatewayPolicy(
            retries=gateway.retries,
            idle_timeout_s=gateway.idle_timeout,
            max_body_bytes=gateway.max_body_bytes,
        ),
        cache=CachePolicy(enabled=spec.cache.offload.enabled),
    )


def node_of(model: NodeModel) -> NodeInventory:
    """Return the inventory's node."""
    return NodeInventory(
        name=model.name,
        accelerator=model.accelerator,
        gpus=model.gpus,
        topology_domain=model.topology_domain,
    )


def _slo(model: SloModel) -> Slo:
    # Rounded to 12 digits so that `percentile: 99.9` and `objective: 0.999` are the same promise.
    objective = model.objective if model.objective is not None else round((model.percentile or 0.0) / 100, 12)
    return Slo(
        name=model.name,
        indicator=model.indicator,
        objective_ratio=objective,
        threshold_s=model.threshold,
        window_s=model.window,
    )


def _pool(service: str, model: PoolModel, folder: Path) -> PoolPolicy:
    return PoolPolicy(
        key=PoolKey(service=service, pool=model.name),
        role=model.role,
        engine=model.engine,
        accelerator=model.accelerator,
        gpus_per_replica=model.gpus_per_replica,
        parallelism=Parallelism(tensor=model.parallelism.tensor, pipeline=model.parallelism.pipeline),
        profile=profile_reference(model.engine_profile, folder),
        min_replicas=model.min_replicas,
        max_replicas=model.max_replicas,
        cold_start_prior_s=model.cold_start,
        cost_usd_per_h=model.cost_per_hour,
        target=ScaleTarget(kind=_TARGETS[model.scale_target.kind], name=model.scale_target.name or model.name),
    )
