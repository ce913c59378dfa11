"""A small fleet through eight minutes: a tide, a lost replica, blind minutes, a renamed metric, a freeze and a floor.

Everything is arithmetic on the tick's number, so the run is the same every time. Write the golden journal again, after
a change of `core.decide` that is meant, with

    python tests/golden/scripted_run.py

and look at what changed with `tidegate replay` on the old file first.
"""

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tidegate.app.journal import Journal
from tidegate.app.record import TickInputs, TickRecord
from tidegate.core.decide import decide
from tidegate.forecast.select import foresee
from tidegate.terms.capacity import CapacitySource, PoolCapacity
from tidegate.terms.decision import Memory
from tidegate.terms.fleet import EngineKind, PoolKey, Replica, ReplicaState, Role
from tidegate.terms.forecast import Forecast, Quantity
from tidegate.terms.history import History
from tidegate.terms.observation import (
    Intervention,
    InterventionKind,
    Observation,
    PoolObservation,
    ReplicaObservation,
    ServiceObservation,
    SliReading,
)
from tidegate.terms.plan import Receipt, Step, StepKind
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
from tidegate.terms.signal import Signal, UnknownReason, combine, reading, unknown
from tidegate.terms.slo import Indicator, Slo

Seen = Callable[..., Signal]
GOLDEN = Path(__file__).with_name("scripted.journal.jsonl")
KEY = PoolKey(service="chat", pool="main")
START_S = 1_800_000_000.0
TICK_S = 10.0
TICKS = 48
COLD_START_S = 20.0
DRAIN_S = 15.0
CAPACITY_PER_S = 2.5

BLIND = range(22, 26)  # ticks without any metric
RENAMED = range(30, 32)  # ticks in which the engines' gauges are gone
KILLED_AT = 14  # tick at which a replica dies
FROZEN = range(34, 37)
FLOORED = range(42, 45)


def policy() -> ServicePolicy:
    """Return the service's policy."""
    pool = PoolPolicy(
        key=KEY,
        role=Role.AGGREGATED,
        engine=EngineKind.VLLM,
        accelerator="nvidia-a100-80gb",
        gpus_per_replica=1,
        parallelism=Parallelism(),
        profile="a100-llama8b-tp1",
        min_replicas=1,
        max_replicas=6,
        cold_start_prior_s=COLD_START_S,
        cost_usd_per_h=2.5,
        target=ScaleTarget(kind=TargetKind.LOCAL, name="main"),
    )
    return ServicePolicy(
        name=KEY.service,
        model="meta-llama/Llama-3.1-8B-Instruct",
        mode=Mode.ACT,
        priority=100,
        slos=(Slo(name="ttft", indicator=Indicator.TTFT, objective_ratio=0.95, threshold_s=1.0, window_s=2_419_200.0),),
        pools=(pool,),
        scaling=ScalingPolicy(
            max_grow_replicas=4,
            max_shrink_replicas=1,
            shrink_stabilisation_s=None,
            target_utilisation_ratio=0.85,
            forecast_quantile=0.9,
            stale_after_s=30.0,
        ),
        budget=BudgetPolicy(max_cost_usd_per_h=40.0, max_gpus=16),
        gateway=GatewayPolicy(retries=3, idle_timeout_s=300.0, max_body_bytes=8 << 20),
        cache=CachePolicy(),
    )


def load_per_s(tick: int) -> float:
    """Return arrivals/s: a tide from 1 to 9 and back, with a ripple."""
    tide = 5.0 - 4.0 * math.cos(2.0 * math.pi * tick / 40.0)
    return round(tide + 0.4 * math.sin(2.3 * tick), 6)


@dataclass(kw_only=True)
class World:
    """The fleet between two decisions: what was ordered becomes ready, what drains ends."""

    replicas: list[Replica] = field(default_factory=list)
    named: int = 0

    def advance(self, now_s: float) -> None:
        """Let starts and drains that are due come to their end."""
        kept = []
        for one in self.replicas:
            if one.state is ReplicaState.STARTING and now_s >= one.ordered_at_s + COLD_START_S:
                kept.append(replace(one, state=ReplicaState.READY, ready_at_s=now_s))
            elif one.draining_since_s is None or now_s < one.draining_since_s + DRAIN_S:
                kept.append(one)
        self.replicas = kept

    def apply(self, asked: int, drain_first: tuple[str, ...], now_s: float) -> tuple[Receipt, ...]:
        """Order what is missing, drain what is too much, clear what failed."""
        receipts = []
        for one in [r for r in self.replicas if r.state is ReplicaState.FAILED]:
            self.replicas.remove(one)
            receipts.append(self._receipt(StepKind.CLEAR, one.name))
        live = [r for r in self.replicas if r.state in {ReplicaState.READY, ReplicaState.STARTING}]
        for _ in range(asked - len(live)):
            name = f"chat.main.{self.named}"
            self.named += 1
            self.replicas.append(Replica(name=name, pool=KEY, state=ReplicaState.STARTING, ordered_at_s=now_s))
            receipts.append(self._receipt(StepKind.WARM, name))
        for name in drain_first[: max(0, len(live) - asked)]:
            at = next(i for i, r in enumerate(self.replicas) if r.name == name)
            self.replicas[at] = replace(self.replicas[at], state=ReplicaState.DRAINING, draining_since_s=now_s)
            receipts.append(self._receipt(StepKind.SHIFT, name))
        return tuple(receipts)

    @staticmethod
    def _receipt(kind: StepKind, name: str) -> Receipt:
        return Receipt(step=Step(kind=kind, pool=KEY, replica=name), accepted=True)


def observe(world: World, tick: int, now_s: float) -> Observation:
    """Return the fleet as metrics would show it."""
    ready = [r for r in world.replicas if r.state is ReplicaState.READY]
    blind, renamed = tick in BLIND, tick in RENAMED
    load = load_per_s(tick)
    carried = min(load, CAPACITY_PER_S * len(ready))
    queued = round(max(0.0, (load - CAPACITY_PER_S * len(ready)) * TICK_S), 6)

    def seen(number: float, *, engine: bool = False) -> Signal:
        if blind:
            return unknown(UnknownReason.UNREACHABLE, "connection refused", now_s=now_s, source="prometheus")
        if engine and renamed:
            return unknown(UnknownReason.CONTRACT_VIOLATION, "no series", now_s=now_s, source="vllm")
        return reading(number, sampled_at_s=now_s - 2.0, coverage_ratio=1.0, source="vllm" if engine else "gateway")

    share = 1.0 / max(1, len(ready))
    members = tuple(
        _member(r, carried * share * 4.0, queued * share, seen=seen, ready=r in ready) for r in world.replicas
    )
    ready_members = [m for m in members if m.replica in ready]

    def summed(name: str) -> Signal:
        parts = [getattr(m, name) for m in ready_members]
        return combine(parts, expected=len(parts), source="vllm", now_s=now_s)

    pool = PoolObservation(
        key=KEY,
        replicas=members,
        running_requests=summed("running_requests"),
        waiting_requests=summed("waiting_requests"),
        finished_per_s=summed("finished_per_s"),
        output_tokens_per_s=summed("output_tokens_per_s"),
        gateway_in_flight_requests=seen(carried * 4.0 + queued),
        gateway_pending_requests=seen(0.0 if ready else queued),
        violations=("vllm:num_requests_waiting: no series matched",) if renamed else (),
    )
    attained = 1.0 if queued == 0.0 else 0.8
    service = ServiceObservation(
        service=KEY.service,
        arrivals_per_s=seen(load),
        prompt_tokens_mean=seen(900.0),
        output_tokens_mean=seen(180.0),
        failed_per_s=seen(0.0),
        slis=(
            SliReading(
                slo="ttft", attained_ratio=seen(attained), quantile_s=seen(0.31), source="gateway", threshold_s=1.0
            ),
        ),
        pools=(pool,),
    )
    return Observation(observed_at_s=now_s, services=(service,), interventions=_interventions(tick, now_s))


def _member(one: Replica, running: float, waiting: float, *, seen: Seen, ready: bool) -> ReplicaObservation:
    factor = 1.0 if ready else 0.0
    return ReplicaObservation(
        replica=one,
        running_requests=seen(round(running * factor, 6), engine=True),
        waiting_requests=seen(round(waiting * factor, 6), engine=True),
        kv_used_ratio=seen(round(min(1.0, running * factor / 40.0), 6), engine=True),
        finished_per_s=seen(round(running * factor / 4.0, 6), engine=True),
        prompt_tokens_per_s=seen(round(running * factor * 225.0, 6), engine=True),
        output_tokens_per_s=seen(round(running * factor * 45.0, 6), engine=True),
        preemptions_per_s=seen(0.0, engine=True),
    )


def _interventions(tick: int, now_s: float) -> tuple[Intervention, ...]:
    until_s = now_s + TICK_S
    found = []
    if tick in FROZEN:
        found.append(
            Intervention(
                kind=InterventionKind.FREEZE,
                pool=KEY,
                replicas=None,
                expires_at_s=until_s,
                origin="alertmanager:Rollout",
            )
        )
    if tick in FLOORED:
        found.append(
            Intervention(
                kind=InterventionKind.FLOOR, pool=KEY, replicas=3, expires_at_s=until_s, origin="alertmanager:HighTtft"
            )
        )
    return tuple(found)


def records(ticks: int = TICKS) -> Iterator[TickRecord]:
    """Yield the run's ticks, each decided on the fleet that the decisions before made."""
    world, memory = World(), Memory()
    receipts: tuple[Receipt, ...] = ()
    capacity = PoolCapacity(
        key=KEY,
        requests_per_s=CAPACITY_PER_S,
        source=CapacitySource.PROFILE,
        prompt_tokens=900.0,
        output_tokens=180.0,
        binding="tpot",
        cold_start_p50_s=17.0,
        cold_start_p95_s=COLD_START_S,
        cold_starts_seen=0,
    )
    for tick in range(ticks):
        now_s = START_S + TICK_S * tick
        world.advance(now_s)
        if tick == KILLED_AT:
            at = next(i for i, r in enumerate(world.replicas) if r.state is ReplicaState.READY)
            world.replicas[at] = replace(world.replicas[at], state=ReplicaState.FAILED)
        inputs = TickInputs(
            observation=observe(world, tick, now_s),
            forecasts=_forecasts(tick, now_s),
            capacity=(capacity,),
            policies=(policy(),),
            memory=memory,
            now_s=now_s,
        )
        decision, memory = decide(
            inputs.observation, inputs.forecasts, inputs.capacity, inputs.policies, inputs.memory, now_s=now_s
        )
        yield TickRecord(inputs=inputs, decision=decision, memory_after=memory, receipts=receipts)
        pool = decision.pools[0]
        receipts = world.apply(pool.asked_replicas, pool.drain_first, now_s)


def _forecasts(tick: int, now_s: float) -> tuple[Forecast, ...]:
    if tick in BLIND:
        return ()
    past = [t for t in range(-30, tick + 1) if t not in BLIND]
    history = History(
        service=KEY.service,
        quantity=Quantity.REQUESTS_PER_S,
        step_s=TICK_S,
        samples=tuple((START_S + TICK_S * t, load_per_s(max(t, 0))) for t in past),
        source="gateway",
    )
    return foresee((history,), horizons_s={KEY.service: COLD_START_S}, now_s=now_s, levels=(0.5, 0.9))


def main() -> int:
    """Write the golden journal again."""
    GOLDEN.unlink(missing_ok=True)
    with Journal(GOLDEN) as journal:
        for record in records():
            journal.append(record)
    GOLDEN.with_name(f"{GOLDEN.name}.lock").unlink()
    print(f"{GOLDEN}: {TICKS} ticks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
