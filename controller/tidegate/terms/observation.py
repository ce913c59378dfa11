"""What is seen of the fleet at one moment, every number a `Signal`."""

from dataclasses import dataclass
from enum import StrEnum

from tidegate.terms.fleet import PoolKey, Replica
from tidegate.terms.signal import Signal
from tidegate.terms.slo import Indicator


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDetail:
    """What only some laws read of an engine: its KV capacity and the work inside it. Not every source offers it."""

    kv_capacity_tokens: Signal
    waiting_prompt_tokens: Signal  # prompt tokens still to compute, of waiting and running requests
    context_tokens: Signal  # tokens whose KV the running requests hold


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaObservation:
    """One replica with its own series, joined by name."""

    replica: Replica
    running_requests: Signal
    waiting_requests: Signal
    kv_used_ratio: Signal  # 0..1
    finished_per_s: Signal
    prompt_tokens_per_s: Signal
    output_tokens_per_s: Signal
    preemptions_per_s: Signal
    engine: EngineDetail | None = None  # None: not read by this source


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolObservation:
    """One pool: its members and their sums. Coverage counts ready replicas only."""

    key: PoolKey
    replicas: tuple[ReplicaObservation, ...]
    running_requests: Signal
    waiting_requests: Signal
    finished_per_s: Signal
    output_tokens_per_s: Signal
    gateway_in_flight_requests: Signal  # Envoy's own count for this pool
    gateway_pending_requests: Signal  # held in Envoy, no endpoint yet
    violations: tuple[str, ...] = ()  # named metric contract violations


@dataclass(frozen=True, slots=True, kw_only=True)
class SliReading:
    """How one objective fares right now (over the observe window, not the SLO window)."""

    slo: str
    attained_ratio: Signal  # share of requests within the threshold
    quantile_s: Signal  # latency at the objective's quantile
    source: str  # "gateway" or "engine", and why
    threshold_s: float | None  # as evaluated, after snapping to a bucket bound


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyReading:
    """One quantile of one latency over one window, at the gateway."""

    indicator: Indicator
    quantile: float  # (0, 1)
    window_s: float
    seconds: Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceObservation:
    """One service (model) as a whole."""

    service: str
    arrivals_per_s: Signal  # at the gateway
    prompt_tokens_mean: Signal  # per request
    output_tokens_mean: Signal
    failed_per_s: Signal  # 5xx and cut streams at the gateway
    slis: tuple[SliReading, ...]
    pools: tuple[PoolObservation, ...]
    latencies: tuple[LatencyReading, ...] = ()  # what was asked for beside the objectives
    pending_prompt_tokens: Signal | None = None  # of requests without a first token; None: not read


class InterventionKind(StrEnum):
    """What an operator or an alert may ask for."""

    FREEZE = "freeze"  # keep every pool as it is
    FLOOR = "floor"  # never below `replicas`


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervention:
    """A bounded, expiring request from outside; a fact, weighed by the core like any other."""

    kind: InterventionKind
    pool: PoolKey
    replicas: int | None  # for FLOOR
    expires_at_s: float
    origin: str  # e.g. "alertmanager:HighTtft"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInventory:
    """One node of the declared or discovered inventory."""

    name: str
    accelerator: str
    gpus: int
    topology_domain: str  # e.g. rack or NVLink domain; "" when unlabelled


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The whole fleet at `observed_at_s`."""

    observed_at_s: float
    services: tuple[ServiceObservation, ...]
    nodes: tuple[NodeInventory, ...] | None = None  # None: unknown, so no inventory limit is applied
    interventions: tuple[Intervention, ...] = ()
