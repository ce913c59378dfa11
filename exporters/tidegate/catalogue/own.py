"""The metrics Tidegate exposes about itself. Names are spelled here and nowhere else."""

from dataclasses import dataclass

from tidegate.catalogue.quantity import Kind, Unit

PREFIX = "tidegate_"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMetric:
    """One metric of our own: full name (counters with `_total`), type, unit, labels and meaning."""

    name: str
    kind: Kind
    unit: Unit
    labels: tuple[str, ...]
    meaning: str
    buckets: tuple[float, ...] = ()  # histograms only, ascending, without +Inf


_POOL = ("service", "pool")

POOL_REPLICAS = OwnMetric(
    name="tidegate_pool_replicas",
    kind=Kind.GAUGE,
    unit=Unit.REPLICAS,
    labels=(*_POOL, "state"),
    meaning="Replicas that exist, by state.",
)
POOL_WANTED = OwnMetric(
    name="tidegate_pool_wanted_replicas",
    kind=Kind.GAUGE,
    unit=Unit.REPLICAS,
    labels=_POOL,
    meaning="Replicas the demand needs before any guard; absent while nothing is known to size on.",
)
POOL_ASKED = OwnMetric(
    name="tidegate_pool_asked_replicas",
    kind=Kind.GAUGE,
    unit=Unit.REPLICAS,
    labels=_POOL,
    meaning="Replicas asked for by the newest decision.",
)
FORECAST = OwnMetric(
    name="tidegate_forecast_requests_per_s",
    kind=Kind.GAUGE,
    unit=Unit.REQUESTS_PER_S,
    labels=("service", "quantile"),
    meaning="Highest forecast arrival rate over the horizon, by quantile.",
)
ARRIVALS = OwnMetric(
    name="tidegate_arrivals_per_s",
    kind=Kind.GAUGE,
    unit=Unit.REQUESTS_PER_S,
    labels=("service",),
    meaning="Arrivals at the gateway as observed; absent while unknown.",
)
CAPACITY = OwnMetric(
    name="tidegate_replica_capacity_requests_per_s",
    kind=Kind.GAUGE,
    unit=Unit.REQUESTS_PER_S,
    labels=(*_POOL, "source"),
    meaning="Arrival rate one replica carries within the objectives.",
)
COLD_START = OwnMetric(
    name="tidegate_cold_start_p95_seconds",
    kind=Kind.GAUGE,
    unit=Unit.SECONDS,
    labels=_POOL,
    meaning="Time from order to ready, 95th percentile; the forecast horizon.",
)
DECISIONS = OwnMetric(
    name="tidegate_decisions_total",
    kind=Kind.COUNTER,
    unit=Unit.EVENTS,
    labels=(*_POOL, "verdict", "reason"),
    meaning="Decisions, by verdict and binding reason.",
)
SIGNAL_UNKNOWN = OwnMetric(
    name="tidegate_signal_unknown",
    kind=Kind.GAUGE,
    unit=Unit.FLAG,
    labels=(*_POOL, "signal", "reason"),
    meaning="1 for each signal that has no number now, with the reason; pool is empty for service signals.",
)
SIGNAL_AGE = OwnMetric(
    name="tidegate_signal_age_seconds",
    kind=Kind.GAUGE,
    unit=Unit.SECONDS,
    labels=(*_POOL, "signal"),
    meaning="Age of the oldest sample a known signal was made from.",
)
CONTRACT_VIOLATIONS = OwnMetric(
    name="tidegate_contract_violations",
    kind=Kind.GAUGE,
    unit=Unit.EVENTS,
    labels=_POOL,
    meaning="Named violations of the metric contract now; 0 when every query matches.",
)
SLO_ATTAINED = OwnMetric(
    name="tidegate_slo_attained_ratio",
    kind=Kind.GAUGE,
    unit=Unit.RATIO,
    labels=("service", "slo", "source"),
    meaning="Share of requests within the objective's threshold over the observe window; absent while unknown.",
)
TICK_DURATION = OwnMetric(
    name="tidegate_tick_duration_seconds",
    kind=Kind.HISTOGRAM,
    unit=Unit.SECONDS,
    labels=(),
    meaning="Wall time of one tick: observe, forecast, decide, plan, act.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
JOURNAL_WRITABLE = OwnMetric(
    name="tidegate_journal_writable",
    kind=Kind.GAUGE,
    unit=Unit.FLAG,
    labels=(),
    meaning="0 while the journal cannot be written; no move is made then.",
)
ALERT_ACTIONS = OwnMetric(
    name="tidegate_alert_actions_total",
    kind=Kind.COUNTER,
    unit=Unit.EVENTS,
    labels=("kind", "outcome"),
    meaning="Alertmanager notices handled, by action and outcome.",
)

OWN: tuple[OwnMetric, ...] = (
    POOL_REPLICAS,
    POOL_WANTED,
    POOL_ASKED,
    FORECAST,
    ARRIVALS,
    CAPACITY,
    COLD_START,
    DECISIONS,
    SIGNAL_UNKNOWN,
    SIGNAL_AGE,
    CONTRACT_VIOLATIONS,
    SLO_ATTAINED,
    TICK_DURATION,
    JOURNAL_WRITABLE,
    ALERT_ACTIONS,
)

# Of an engine twin, beside vLLM's names.
TWIN_LAG = OwnMetric(
    name="tidegate_twin_lag_seconds",
    kind=Kind.GAUGE,
    unit=Unit.SECONDS,
    labels=(),
    meaning="How far the twin's last step ended after its modelled time.",
)
TWIN_WORST_LAG = OwnMetric(
    name="tidegate_twin_worst_lag_seconds",
    kind=Kind.GAUGE,
    unit=Unit.SECONDS,
    labels=(),
    meaning="Largest such lag since the twin started.",
)
TWIN: tuple[OwnMetric, ...] = (TWIN_LAG, TWIN_WORST_LAG)
