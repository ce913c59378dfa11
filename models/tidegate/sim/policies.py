"""What a scaling law is to a rehearsal: a function with the signature of `core.decide`, its period and its knob."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from tidegate.perf.profile import EngineProfile
from tidegate.terms.capacity import PoolCapacity
from tidegate.terms.decision import Decision
from tidegate.terms.fleet import PoolKey
from tidegate.terms.forecast import Forecast, Quantity
from tidegate.terms.history import History
from tidegate.terms.observation import Observation, ServiceObservation
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.slo import Indicator

MemoryT = TypeVar("MemoryT")


class PolicyFn(Protocol[MemoryT]):
    """The signature of `core.decide` and of every baseline; what is remembered is each law's own."""

    def __call__(
        self,
        obs: Observation,
        forecasts: Sequence[Forecast],
        capacity: Sequence[PoolCapacity],
        policies: Sequence[ServicePolicy],
        memory: MemoryT,
        *,
        now_s: float,
    ) -> tuple[Decision, MemoryT]:
        """Return the decision and what must be remembered."""
        ...


class Forecaster(Protocol):
    """The signature of `forecast.select.foresee`."""

    def __call__(
        self, histories: Sequence[History], *, horizons_s: dict[str, float], now_s: float
    ) -> tuple[Forecast, ...]:
        """Return demand quantiles per service and quantity."""
        ...


class ColdStarts(Protocol):
    """Seconds from order to ready of each start seen, oldest first."""

    def __call__(self, key: PoolKey, /) -> tuple[float, ...]:
        """Return them for one pool."""
        ...


class Sizer(Protocol):
    """What one replica carries now; profiles and period are bound beforehand."""

    def __call__(
        self,
        policies: tuple[ServicePolicy, ...],
        services: tuple[ServiceObservation, ...],
        *,
        cold_starts: ColdStarts,
        previous: tuple[PoolCapacity, ...],
        now_s: float,
    ) -> tuple[PoolCapacity, ...]:
        """Return one capacity per pool."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What whoever configures a law may know beforehand: the policy, a profile, and what was measured of the load.

    The profile is the belief; a rehearsal's real engines may be faster or slower.
    """

    policy: ServicePolicy
    profiles: dict[str, EngineProfile]  # by name, every pool's
    capacity_per_s: dict[PoolKey, float]  # believed requests/s of one replica inside the latency objectives
    concurrency: dict[PoolKey, float]  # requests in flight in one replica at that rate
    prompt_tokens: float  # mean of the load
    output_tokens: float
    cold_start_s: float  # p95
    mean_per_s: float  # requests/s of the whole load
    peak_per_s: float  # the busiest 10 minutes


class KnobScale(StrEnum):
    """How a knob's range is searched."""

    LINEAR = "linear"
    LOG = "log"
    INTEGER = "integer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """The one setting that trades attainment for GPU time.

    `safe` is the end of the range with the most replicas, `thrifty` the one with the fewest.
    """

    name: str  # the law's own word, e.g. "averageValue"
    unit: str
    safe: float
    thrifty: float
    default: float  # as shipped or as documented
    scale: KnobScale = KnobScale.LINEAR


@dataclass(frozen=True, slots=True, kw_only=True)
class Wants:
    """What a law reads and how often; what is not asked for is not computed, and is unknown to it.

    Whoever reads Prometheus reads the same one, scraped each 5 s with rates over six scrapes, as `tidegate run` does by
    default; a product that scrapes by itself, or documents another period, says so.
    """

    period_s: float  # between two decisions
    scrape_interval_s: float = 5.0
    rate_window_s: float = 30.0  # > scrape_interval_s
    rates: bool = True  # of the service and its pools: arrivals, mean lengths, failures, finished requests, tokens
    replicas: bool = False  # per-replica gauges: running and waiting requests, KV use
    replica_rates: bool = False  # per-replica rates too: finished requests, tokens, preemptions; implies `replicas`
    engine_detail: bool = False  # EngineDetail of each replica; implies `replicas`
    latencies: tuple[tuple[Indicator, float, float], ...] = ()  # (indicator, quantile, window_s)
    slis: bool = False  # attained share of the policy's objectives; their quantiles are asked for by `latencies`
    histories: tuple[Quantity, ...] = tuple(Quantity)  # of the load's past; only with a forecaster
    folds_copies: bool = (
        False  # takes the largest of an engine's duplicate series, so a second exporter doubles nothing
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A law ready to run."""

    name: str
    law: PolicyFn[Any]
    start: Any  # its first memory
    wants: Wants
    setting: float | None = None  # the knob's value; None: it has none
    initial_replicas: int | None = None  # per pool; None: that of the fleet setup
    forecaster: Forecaster | None = None
    sizer: Sizer | None = None
    keeps_memory: bool = False  # a restarted controller finds its memory again, in a journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A law that can be configured for a world: how to make it, and what its knob is.

    `make(world, setting)` returns the contender; `setting` is None for the default. The range of `knob` may depend on
    the world, hence a function of it.
    """

    name: str
    summary: str  # one line
    source: str  # whose law it is, where it is written down
    knob: Callable[[World], Knob | None]
    make: Callable[[World, float | None], Contender]
