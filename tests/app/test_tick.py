"""One tick: what goes in is in the record, and the record decides the same again."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tidegate.app.config import load_policies
from tidegate.app.config_profile import load_profile
from tidegate.app.tick import HISTORY_STEPS, LEVELS, Before, Ports, Ticked, history_step_s, levels_of, tick
from tidegate.core.decide import decide
from tidegate.terms.decision import Memory
from tidegate.terms.fleet import Membership, Replica, ReplicaState
from tidegate.terms.forecast import Quantity
from tidegate.terms.history import History
from tidegate.terms.observation import Intervention, InterventionKind, NodeInventory, Observation
from tidegate.terms.plan import Receipt, Step, StepKind
from tidegate.terms.policy import ServicePolicy

POLICIES = load_policies([Path(__file__).parents[2] / "examples" / "policies" / "chat.yaml"])
POOL = POLICIES[0].pools[0]
NOW_S = 1_790_000_000.0
MEMBERSHIP = Membership(
    taken_at_s=NOW_S,
    replicas=(Replica(name="chat.main.0.0", pool=POOL.key, state=ReplicaState.STARTING, ordered_at_s=NOW_S - 5.0),),
)
NODES = (NodeInventory(name="node-0", accelerator=POOL.accelerator, gpus=8, topology_domain=""),)
FREEZE = Intervention(
    kind=InterventionKind.FREEZE, pool=POOL.key, replicas=None, expires_at_s=NOW_S + 600.0, origin="alertmanager:Test"
)
RECEIPT = Receipt(step=Step(kind=StepKind.WARM, pool=POOL.key, replica="chat.main.0.0"), accepted=True)


@dataclass
class Sight:
    """Knows nothing of the fleet now, and a load of two requests/s in the past."""

    asked: list[tuple[float, float]] = field(default_factory=list)

    def observe(self, policies: Sequence[ServicePolicy], membership: Membership, now_s: float) -> Observation:
        assert policies == POLICIES
        assert membership is MEMBERSHIP
        return Observation(observed_at_s=now_s, services=())

    def histories(
        self, policies: Sequence[ServicePolicy], now_s: float, span_s: float, step_s: float
    ) -> tuple[History, ...]:
        self.asked.append((span_s, step_s))
        steps = round(span_s / step_s)
        samples = tuple((now_s - step_s * (steps - i), 2.0) for i in range(steps + 1))
        return (
            History(
                service=policies[0].name,
                quantity=Quantity.REQUESTS_PER_S,
                step_s=step_s,
                samples=samples,
                source="test",
            ),
        )


def run(sight: Sight, *, cold_starts: tuple[float, ...] = (), interventions: tuple[Intervention, ...] = ()) -> Ticked:
    return tick(
        POLICIES,
        MEMBERSHIP,
        Before(memory=Memory(sequence=6), capacity=()),
        ports=Ports(
            sight=sight,
            profiles={POOL.profile: load_profile(POOL.profile)},
            cold_starts=lambda _: cold_starts,
            nodes=NODES,
            scrape_interval_s=5.0,
            decide_every_s=15.0,
        ),
        interventions=interventions,
        receipts=(RECEIPT,),
        now_s=NOW_S,
    )


def test_record_holds_all_that_was_decided_from_and_decides_the_same_again() -> None:
    record = run(Sight(), interventions=(FREEZE,)).record
    inputs = record.inputs
    assert inputs.observation.interventions == (FREEZE,)
    assert inputs.observation.nodes == NODES
    assert inputs.policies == POLICIES
    assert inputs.memory == Memory(sequence=6)
    assert record.receipts == (RECEIPT,)
    assert record.decision.sequence == 7
    again = decide(
        inputs.observation, inputs.forecasts, inputs.capacity, inputs.policies, inputs.memory, now_s=inputs.now_s
    )
    assert again == (record.decision, record.memory_after)


def test_forecast_looks_one_measured_cold_start_ahead() -> None:
    prior = run(Sight()).record.inputs.forecasts[0]
    measured = run(Sight(), cold_starts=(120.0, 120.0, 120.0)).record.inputs.forecasts[0]
    assert prior.horizon_s == pytest.approx(POOL.cold_start_prior_s)
    assert measured.horizon_s == pytest.approx(120.0)
    assert measured.levels == LEVELS
    assert measured.peak(0.9) >= 2.0


def test_forecast_holds_the_quantile_that_each_policy_asks_for() -> None:
    asked = [replace(p, scaling=replace(p.scaling, forecast_quantile=0.8)) for p in POLICIES]
    assert levels_of(asked) == (0.5, 0.8, 0.9, 0.95, 0.99)
    assert levels_of(POLICIES) == LEVELS


def test_history_spans_what_the_forecast_needs_in_whole_scrapes() -> None:
    sight = Sight()
    ticked = run(sight)
    ((span_s, step_s),) = sight.asked
    assert span_s == step_s * HISTORY_STEPS
    assert step_s % 5.0 == 0.0
    assert ticked.histories[0].step_s == step_s


@pytest.mark.parametrize(
    ("horizon_s", "scrape_interval_s", "step_s"),
    [
        (60.0, 15.0, 30.0),  # never below two scrapes
        (20.0, 1.0, 2.0),
        (200.0, 5.0, 20.0),  # a tenth of the horizon
        (1800.0, 7.0, 63.0),  # near a minute, in whole scrapes
        (36_000.0, 60.0, 120.0),
    ],
)
def test_history_step_is_between_two_scrapes_and_a_minute(
    horizon_s: float, scrape_interval_s: float, step_s: float
) -> None:
    assert history_step_s(horizon_s, scrape_interval_s) == pytest.approx(step_s)
