"""A service's policy, as the core reads it. The YAML spelling and its checks live in `tidegate.app.config`."""

from dataclasses import dataclass
from enum import StrEnum

from tidegate.terms.fleet import EngineKind, PoolKey, Role
from tidegate.terms.slo import Indicator, Slo


class Mode(StrEnum):
    """Whether decisions are carried out."""

    ADVISE = "advise"  # decide and show, write nothing
    ACT = "act"


class TargetKind(StrEnum):
    """What is scaled."""

    LOCAL = "local"  # engine twins as processes on this machine
    DEPLOYMENT = "deployment"  # Kubernetes; not built yet


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleTarget:
    """The object whose replica count is set."""

    kind: TargetKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Degrees per replica; their product is the replica's GPU count."""

    tensor: int = 1
    pipeline: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPolicy:
    """One pool of equal replicas."""

    key: PoolKey
    role: Role
    engine: EngineKind
    accelerator: str  # e.g. "nvidia-a100-80gb"
    gpus_per_replica: int
    parallelism: Parallelism
    profile: str  # name of an engine profile
    min_replicas: int
    max_replicas: int
    cold_start_prior_s: float  # believed p95 until measured
    cost_usd_per_h: float  # per replica
    target: ScaleTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPolicy:
    """Limits on movement, shared by all pools of a service."""

    max_grow_replicas: int  # per decision
    max_shrink_replicas: int  # per decision
    shrink_stabilisation_s: float | None  # None: twice the measured cold start
    target_utilisation_ratio: float  # share of a replica's capacity to plan for, (0, 1]
    forecast_quantile: float  # the demand quantile that must be carried, (0, 1)
    stale_after_s: float  # a signal older than this may not lower anything


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPolicy:
    """How Envoy treats the service's requests."""

    retries: int
    idle_timeout_s: float  # between two bytes of a stream
    max_body_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePolicy:
    """KV-cache offload. `enabled=True` is not built yet."""

    enabled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPolicy:
    """Caps over all pools of the service; None means no cap."""

    max_cost_usd_per_h: float | None = None
    max_gpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePolicy:
    """Everything an operator promised and allowed for one model."""

    name: str
    model: str
    mode: Mode
    priority: int  # higher wins
    slos: tuple[Slo, ...]
    pools: tuple[PoolPolicy, ...]
    scaling: ScalingPolicy
    budget: BudgetPolicy
    gateway: GatewayPolicy
    cache: CachePolicy

    def threshold_s(self, indicator: Indicator) -> float | None:
        """Return the tightest threshold for `indicator`, or None when no objective names it."""
        found = [s.threshold_s for s in self.slos if s.indicator is indicator and s.threshold_s is not None]
        return min(found, default=None)
