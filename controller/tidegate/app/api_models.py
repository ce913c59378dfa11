"""The JSON of the API as pydantic models; they make the OpenAPI document and never travel inward.

An unknown signal is an object that says so, never 0 and never null. Names carry their units, as everywhere inside.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Out(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, ser_json_inf_nan="null")


class _Reading(_Out):
    sampled_at_s: float
    """Unix time of the oldest sample used."""
    age_s: float
    """Seconds since then."""
    coverage_ratio: float
    """Share of the ready replicas (or expected series) that reported."""
    source: str
    """The alias that answered."""


class ValueOut(_Reading):
    """A number other than zero."""

    state: Literal["value"] = "value"
    value: float
    at_least: bool
    """True: the truth is this or more (a quantile at the last bucket bound)."""


class ZeroOut(_Reading):
    """A zero that was really measured."""

    state: Literal["zero"] = "zero"
    value: float = 0.0


class UnknownOut(_Reading):
    """No number, and why."""

    state: Literal["unknown"] = "unknown"
    reason: str
    detail: str


SignalOut = Annotated[ValueOut | ZeroOut | UnknownOut, Field(discriminator="state")]


class CountOut(_Out):
    """A number of replicas that is known."""

    state: Literal["value"] = "value"
    value: int


class NoCountOut(_Out):
    """A number of replicas that cannot be told, and why."""

    state: Literal["unknown"] = "unknown"
    reason: str


MaybeCountOut = Annotated[CountOut | NoCountOut, Field(discriminator="state")]


class NoteOut(_Out):
    """One consideration of a decision, in the order it spoke."""

    reason: str
    before_replicas: int
    after_replicas: int
    facts: dict[str, float | None]
    text: str


class DecisionOut(_Out):
    """One pool's decision."""

    decided_at_s: float
    sequence: int
    service: str
    pool: str
    role: str
    verdict: str
    binding: str
    ready_replicas: int
    starting_replicas: int
    draining_replicas: int
    asked_before_replicas: int
    wanted_replicas: MaybeCountOut
    asked_replicas: int
    writes: bool
    """False in advise mode."""
    sentence: str
    """The decision for people."""
    notes: list[NoteOut]


class ReplicaOut(_Out):
    """One replica."""

    name: str
    state: str
    address: str
    node: str
    ordered_at_s: float
    ready_at_s: float | None
    """Absent (null) until it is ready."""
    signals: dict[str, SignalOut]


class CapacityOut(_Out):
    """What one replica carries at the present request lengths."""

    requests_per_s: float
    planned_requests_per_s: float
    """What it is planned for: the policy's `targetUtilisation` of `requests_per_s`."""
    source: str
    binding: str
    prompt_tokens: float
    output_tokens: float
    cold_start_p50_s: float
    cold_start_p95_s: float
    cold_starts_seen: int


class PoolOut(_Out):
    """One pool with its newest decision."""

    service: str
    pool: str
    role: str
    engine: str
    accelerator: str
    profile: str
    gpus_per_replica: int
    min_replicas: int
    max_replicas: int
    cost_usd_per_h: float
    decision: DecisionOut
    states: dict[str, int]
    """Replicas that exist now, by state."""
    metrics_unknown: list[str]
    """Why this decision was held or kept small for want of numbers; empty when all were there."""
    violations: list[str]
    """Named violations of the metric contract."""
    capacity: CapacityOut | None
    """Absent (null) when it could not be computed."""
    signals: dict[str, SignalOut]
    replicas: list[ReplicaOut]


class SliOut(_Out):
    """How one objective fares now."""

    slo: str
    indicator: str
    objective_ratio: float
    threshold_s: float | None
    """As evaluated, after snapping to a bucket bound; absent (null) for availability, and while nothing was read."""
    promised_s: float | None
    """As the policy has it; absent (null) for availability."""
    attained_ratio: SignalOut
    quantile_s: SignalOut
    source: str
    met: Literal["yes", "no", "unknown"]


class ForecastOut(_Out):
    """Quantiles of the arrival rate: `values[i][j]` is `levels[i]`, `step_s * (j + 1)` after `made_at_s`."""

    made_at_s: float
    step_s: float
    levels: list[float]
    values: list[list[float]]
    method: str
    reason: str


class ServiceOut(_Out):
    """One service."""

    service: str
    model: str
    mode: str
    priority: int
    forecast_quantile: float
    """Quantile of the forecast that must be carried, from the policy."""
    signals: dict[str, SignalOut]
    slis: list[SliOut]
    forecast: ForecastOut | None
    """Absent (null) when none could be made."""
    pools: list[PoolOut]


class InterventionOut(_Out):
    """What an operator or an alert has asked for and is in force."""

    kind: str
    service: str
    pool: str
    replicas: int | None
    expires_at_s: float
    origin: str


class StateOut(_Out):
    """The fleet as the newest tick saw it."""

    version: str
    now_s: float
    started_at_s: float
    ready: bool
    reasons: list[str]
    """Why it is not ready."""
    sequence: int | None
    """Absent (null) before the first decision."""
    decided_at_s: float | None
    tick_duration_s: float | None
    gateway_acked: bool
    rate_window_s: float | None = None
    """Seconds over which rates and attained shares are taken; absent (null) when not told."""
    policy_digest: str
    services: list[ServiceOut]
    interventions: list[InterventionOut]


class DecisionsOut(_Out):
    """Decisions, newest first."""

    decisions: list[DecisionOut]


class PoolDetailOut(_Out):
    """One pool with its last decisions."""

    now_s: float
    pool: PoolOut
    decisions: list[DecisionOut]


class SeriesOut(_Out):
    """Points `[Unix time, value]`, oldest first; what is unknown has no point."""

    name: str
    points: list[tuple[float, float]]


class BandOut(_Out):
    """Forecast quantiles as they were made one start-up time ahead, then the newest forecast."""

    levels: list[float]
    points: list[list[float]]
    """`[Unix time, value of each level]`, oldest first."""


class ServiceHistoryOut(_Out):
    """One service over time."""

    service: str
    load: SeriesOut
    band: BandOut
    attained: list[SeriesOut]
    quantiles_s: list[SeriesOut]
    pools: dict[str, list[SeriesOut]]
    """By pool: ready, starting, draining, asked, wanted."""


class HistoryOut(_Out):
    """Series for charts."""

    now_s: float
    since_s: float
    services: list[ServiceHistoryOut]


class HealthOut(_Out):
    """Whether the process, or the controller, is well."""

    status: Literal["ok", "not ready"]
    reasons: list[str]


class RefusalOut(_Out):
    """An alert that asked for something it may not have."""

    alertname: str
    reason: str


class AlertsOut(_Out):
    """What came of one delivery."""

    accepted: bool
    refused: list[RefusalOut]


class ErrorOut(_Out):
    """Why a request was refused."""

    error: str


class RefusedResourceOut(_Out):
    """One resource a gateway turned down (NACK)."""

    type_url: str
    name: str
    version: str
    kept_version: str | None
    """What it goes on with; null when it has none."""
    reason: str
    """Envoy's own words."""


class GatewayOut(_Out):
    """One Envoy as the xDS server sees it."""

    node_id: str
    connected: bool
    seen_ago_s: float
    has_version: str | None
    """Newest snapshot it acknowledged whole; null before the first."""
    resources: dict[str, int]
    """Acknowledged resources by type."""
    waiting_for: list[str]
    refused: list[RefusedResourceOut]


class GatewaysOut(_Out):
    """Every gateway and the snapshot it should have."""

    version: str | None
    gateways: list[GatewayOut]
