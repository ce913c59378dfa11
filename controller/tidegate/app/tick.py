"""One tick: observe, foresee, size, decide. Composition only; every step lives in its own room."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tidegate.app.record import TickInputs, TickRecord
from tidegate.app.sizing import pool_capacities
from tidegate.core.decide import decide
from tidegate.forecast.select import foresee
from tidegate.perf.profile import EngineProfile
from tidegate.terms.capacity import PoolCapacity
from tidegate.terms.decision import Memory
from tidegate.terms.fleet import Membership, PoolKey
from tidegate.terms.history import History
from tidegate.terms.observation import Intervention, NodeInventory, Observation
from tidegate.terms.plan import Receipt
from tidegate.terms.policy import ServicePolicy

# Demand quantiles kept with every decision, beside those that the policies ask for.
LEVELS = (0.5, 0.9, 0.95, 0.99)

# Past load pulled per tick: enough for the baseline's residuals (horizon + 30 steps), small for Prometheus.
HISTORY_STEPS = 120


def levels_of(policies: Sequence[ServicePolicy]) -> tuple[float, ...]:
    """Return the quantiles to foresee, ascending: every policy's own is among them, so that what it asks is carried."""
    return tuple(sorted({*LEVELS, *(p.scaling.forecast_quantile for p in policies)}))


class Sight(Protocol):
    """What a tick needs of `observe`."""

    def observe(self, policies: Sequence[ServicePolicy], membership: Membership, now_s: float) -> Observation:
        """Return the fleet as seen now; absence is a value, never an exception."""
        ...

    def histories(
        self, policies: Sequence[ServicePolicy], now_s: float, span_s: float, step_s: float
    ) -> tuple[History, ...]:
        """Return past load per service on a step grid."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The sources of one tick."""

    sight: Sight
    profiles: Mapping[str, EngineProfile]
    cold_starts: Callable[[PoolKey], tuple[float, ...]]
    nodes: tuple[NodeInventory, ...] | None
    scrape_interval_s: float
    decide_every_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What the tick before left behind; `Memory()` and no capacity at a first start."""

    memory: Memory
    capacity: tuple[PoolCapacity, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """The record of a tick and the load it was forecast from (kept for the page, not for the journal)."""

    record: TickRecord
    histories: tuple[History, ...]


def tick(
    policies: tuple[ServicePolicy, ...],
    membership: Membership,
    before: Before,
    *,
    ports: Ports,
    interventions: tuple[Intervention, ...],
    receipts: tuple[Receipt, ...],
    now_s: float,
) -> Ticked:
    """Return what was decided at `now_s` and everything it was decided from.

    Blocks on Prometheus within its deadlines; raises nothing for server trouble.
    """
    observation = replace(
        ports.sight.observe(policies, membership, now_s), nodes=ports.nodes, interventions=interventions
    )
    capacity = pool_capacities(
        policies,
        observation.services,
        profiles=ports.profiles,
        cold_starts=ports.cold_starts,
        previous=before.capacity,
        elapsed_s=ports.decide_every_s,
        now_s=now_s,
    )
    horizons = _horizons_s(policies, capacity)
    step_s = history_step_s(max(horizons.values()), ports.scrape_interval_s)
    histories = ports.sight.histories(policies, now_s, step_s * HISTORY_STEPS, step_s)
    forecasts = foresee(histories, horizons_s=horizons, levels=levels_of(policies), now_s=now_s)
    inputs = TickInputs(
        observation=observation,
        forecasts=forecasts,
        capacity=capacity,
        policies=policies,
        memory=before.memory,
        now_s=now_s,
    )
    decision, memory = decide(observation, forecasts, capacity, policies, before.memory, now_s=now_s)
    record = TickRecord(inputs=inputs, decision=decision, memory_after=memory, receipts=receipts)
    return Ticked(record=record, histories=histories)


def history_step_s(horizon_s: float, scrape_interval_s: float) -> float:
    """Return the grid step: a tenth of the horizon, between two scrapes and a minute, in whole scrapes."""
    wanted = min(60.0, max(2.0 * scrape_interval_s, horizon_s / 10.0))
    return max(2.0, round(wanted / scrape_interval_s)) * scrape_interval_s


def _horizons_s(policies: tuple[ServicePolicy, ...], capacity: tuple[PoolCapacity, ...]) -> dict[str, float]:
    """Return per service how long its slowest pool takes to become ready (p95): no shorter look-ahead can help."""
    return {
        policy.name: max(c.cold_start_p95_s for c in capacity if c.key.service == policy.name) for policy in policies
    }
