"""Each guard: acts, does not act, acts at the border, loses to the guard before it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tidegate.core import guards
from tidegate.core.guards import Bound, Context
from tidegate.core.supply import Supply
from tidegate.core.trust import Doubt
from tidegate.core.window import Window
from tidegate.terms.decision import Reason, Verdict
from tidegate.terms.observation import Intervention, InterventionKind
from tidegate.terms.policy import BudgetPolicy

if TYPE_CHECKING:
    from tests.core.conftest import Fleet

    from tidegate.terms.fleet import PoolKey

Make = Callable[..., Context]
DOUBT = Doubt(signal="chat/main waiting_requests", reason=Reason.STALE_METRICS, detail="unreachable")


@pytest.fixture
def context(fleet: "type[Fleet]") -> Make:
    """Return a maker of contexts: 4 asked, 4 ready, bounds 1..8, watched window whose highest is 1."""
    key: PoolKey = fleet.MAIN

    def make(
        *,
        before: int = 4,
        ready: int = 4,
        starting: int = 0,
        draining: int = 0,
        wanted: int | None = 1,
        least: int = 1,
        most: int = 8,
        grow: int = 4,
        shrink: int = 1,
        highest: int | None = 1,
        covered: bool = True,
        doubts: tuple[Doubt, ...] = (),
        ever_observed: bool = True,
        bounds: tuple[Bound, ...] = (),
    ) -> Context:
        return Context(
            supply=Supply(
                key=key,
                ready_replicas=ready,
                starting_replicas=starting,
                draining_replicas=draining,
                failed_replicas=0,
                asked_before_replicas=before,
            ),
            wanted_replicas=wanted,
            bounds=(
                Bound(reason=Reason.AT_MINIMUM, least_replicas=least, most_replicas=10**6),
                Bound(reason=Reason.AT_MAXIMUM, least_replicas=0, most_replicas=most),
                *bounds,
            ),
            max_grow_replicas=grow,
            max_shrink_replicas=shrink,
            window=Window(length_s=60.0, highest_replicas=highest, covered=covered, covered_at_s=0.0),
            doubts=doubts,
            ever_observed=ever_observed,
        )

    return make


def reason_of(result: guards.Guarded) -> Reason | None:
    return result[1].reason if result[1] is not None else None


def test_bounds_act_above_the_maximum_and_below_the_minimum(context: Make) -> None:
    assert guards.bounds(9, context()) == (8, guards.bounds(9, context())[1])
    assert reason_of(guards.bounds(9, context())) is Reason.AT_MAXIMUM
    assert guards.bounds(0, context())[0] == 1
    assert reason_of(guards.bounds(0, context())) is Reason.AT_MINIMUM


@pytest.mark.parametrize("proposal", [1, 5, 8])
def test_bounds_do_not_act_inside_and_at_the_border(context: Make, proposal: int) -> None:
    assert guards.bounds(proposal, context()) == (proposal, None)


def test_bounds_name_the_strongest_bound_that_moved_the_number(context: Make) -> None:
    frozen = Bound(reason=Reason.FROZEN, least_replicas=4, most_replicas=4)
    assert reason_of(guards.bounds(12, context(bounds=(frozen,)))) is Reason.FROZEN
    assert guards.bounds(12, context(bounds=(frozen,)))[0] == 4


def test_rate_acts_on_both_directions(context: Make) -> None:
    assert guards.rate(8, context(grow=3)) == (7, guards.rate(8, context(grow=3))[1])
    assert reason_of(guards.rate(8, context(grow=3))) is Reason.RATE_LIMIT
    assert guards.rate(1, context(shrink=2))[0] == 2


@pytest.mark.parametrize("proposal", [3, 4, 6, 8])
def test_rate_does_not_act_within_and_at_the_limit(context: Make, proposal: int) -> None:
    assert guards.rate(proposal, context(grow=4, shrink=1)) == (proposal, None)


def test_rate_loses_to_bounds_when_the_maximum_was_lowered(context: Make) -> None:
    lowered = context(before=8, ready=8, most=3)
    proposal, note = guards.bounds(8, lowered)
    assert (proposal, note.reason if note else None) == (3, Reason.AT_MAXIMUM)
    assert guards.rate(proposal, lowered) == (3, None)


def test_stabilisation_acts_when_more_was_wanted_in_the_window(context: Make) -> None:
    assert guards.stabilisation(2, context(highest=3))[0] == 3
    assert reason_of(guards.stabilisation(2, context(highest=3))) is Reason.STABILISATION
    assert guards.stabilisation(2, context(highest=9))[0] == 4


@pytest.mark.parametrize(("proposal", "highest"), [(3, 3), (3, 1), (5, 1), (4, None)])
def test_stabilisation_does_not_act_at_the_border_nor_on_growth(
    context: Make, proposal: int, highest: int | None
) -> None:
    assert guards.stabilisation(proposal, context(highest=highest)) == (proposal, None)


def test_stabilisation_acts_until_the_window_was_watched_once(context: Make) -> None:
    assert guards.stabilisation(3, context(covered=False))[0] == 4


def test_stabilisation_loses_to_bounds(context: Make) -> None:
    assert guards.stabilisation(3, context(before=8, most=3, highest=8)) == (3, None)


def test_pending_acts_when_a_shrink_would_take_a_serving_replica_for_one_that_starts(context: Make) -> None:
    held = guards.pending(3, context(ready=2, starting=2, wanted=3, highest=3))
    assert held[0] == 4
    assert reason_of(held) is Reason.PENDING_SUPPLY


def test_pending_does_not_act_when_ready_replicas_alone_meet_the_target(context: Make) -> None:
    # 5 ready and one stuck in its start: the stuck one must not block the shrink for ever.
    assert guards.pending(5, context(before=6, ready=5, starting=1, wanted=3, highest=3)) == (5, None)


def test_pending_acts_at_the_border_of_ready_replicas(context: Make) -> None:
    assert guards.pending(5, context(before=6, ready=5, starting=1, wanted=4, highest=4)) == (5, None)
    assert guards.pending(5, context(before=6, ready=5, starting=1, wanted=5, highest=5))[0] == 6


def test_pending_acts_while_a_drain_is_under_way(context: Make) -> None:
    held = guards.pending(3, context(draining=1))
    assert held[0] == 4
    assert reason_of(held) is Reason.DRAINING
    assert guards.pending(3, context(draining=1, shrink=2)) == (3, None)


def test_pending_counts_a_drain_that_was_asked_and_has_not_begun(context: Make) -> None:
    assert guards.pending(3, context(before=4, ready=5))[0] == 4


def test_pending_does_not_act_on_growth(context: Make) -> None:
    assert guards.pending(6, context(starting=2, draining=3)) == (6, None)


def test_stale_acts_on_a_shrink_in_doubt(context: Make) -> None:
    held = guards.stale(3, context(doubts=(DOUBT,)))
    assert held[0] == 4
    assert reason_of(held) is Reason.STALE_METRICS
    assert held[1] is not None
    assert "waiting_requests" in held[1].text


@pytest.mark.parametrize("proposal", [4, 5])
def test_stale_does_not_act_on_growth_nor_at_the_number_asked_before(context: Make, proposal: int) -> None:
    assert guards.stale(proposal, context(doubts=(DOUBT,))) == (proposal, None)


def test_stale_does_not_act_without_doubts(context: Make) -> None:
    assert guards.stale(3, context()) == (3, None)


def test_stale_loses_to_bounds(context: Make) -> None:
    assert guards.stale(3, context(before=8, most=3, doubts=(DOUBT,)))[0] == 3


def test_hold_acts_before_the_first_valid_observation(context: Make) -> None:
    assert guards.hold(6, context(ever_observed=False))[0] == 4
    assert reason_of(guards.hold(6, context(ever_observed=False))) is Reason.NO_OBSERVATION_YET


def test_hold_does_not_act_afterwards(context: Make) -> None:
    assert guards.hold(6, context()) == (6, None)


def test_hold_loses_to_bounds(context: Make) -> None:
    assert guards.hold(6, context(ever_observed=False, before=0, least=2))[0] == 2


def test_guards_run_in_the_documented_order() -> None:
    names = [guard.__name__ for guard in guards.ORDER]
    documented = [line.split("`")[1] for line in (guards.__doc__ or "").splitlines() if line[:2].rstrip(".").isdigit()]
    assert names == documented == ["bounds", "rate", "stabilisation", "pending", "stale", "hold"]


def test_floor_acts_as_a_lower_bound_and_expires(fleet: "type[Fleet]") -> None:
    floor = Intervention(
        kind=InterventionKind.FLOOR, pool=fleet.MAIN, replicas=5, expires_at_s=fleet.NOW_S + 1.0, origin="alert"
    )
    decided = fleet.Case(interventions=(floor,)).pool()
    assert (decided.asked_replicas, decided.binding) == (5, Reason.FLOOR)
    late = fleet.Case(interventions=(floor,), now_s=fleet.NOW_S + 1.0).pool()
    assert late.asked_replicas == 2


def test_floor_loses_to_the_maximum(fleet: "type[Fleet]") -> None:
    floor = Intervention(
        kind=InterventionKind.FLOOR, pool=fleet.MAIN, replicas=50, expires_at_s=fleet.NOW_S + 1.0, origin="alert"
    )
    assert fleet.Case(interventions=(floor,)).pool().asked_replicas == 8


def test_freeze_holds_growth_and_shrink_and_wins_over_a_floor(fleet: "type[Fleet]") -> None:
    until_s = fleet.NOW_S + 60.0
    freeze = Intervention(
        kind=InterventionKind.FREEZE, pool=fleet.MAIN, replicas=None, expires_at_s=until_s, origin="operator"
    )
    floor = Intervention(kind=InterventionKind.FLOOR, pool=fleet.MAIN, replicas=6, expires_at_s=until_s, origin="alert")
    for forecast in (0.5, 15.0):
        case = fleet.Case(forecast=forecast, arrivals=0.5, interventions=(floor, freeze))
        assert (case.pool().verdict, case.pool().binding) == (Verdict.HOLD, Reason.FROZEN)


def test_budget_acts_on_growth_the_cheapest_pool_first(fleet: "type[Fleet]") -> None:
    pools = [
        fleet.pool_policy("cheap", cost_usd_per_h=1.0, max_replicas=3),
        fleet.pool_policy("dear", cost_usd_per_h=4.0),
    ]
    keys = [p.key for p in pools]
    case = fleet.Case(
        arrivals=14.0,
        forecast=14.0,
        pools=pools,
        seen=[fleet.pool_seen(k, ready=1) for k in keys],
        capacity={"cheap": 2.0, "dear": 2.0},
        asked={"cheap": 1, "dear": 1},
        budget=BudgetPolicy(max_gpus=5),
    )
    cheap, dear = case.decide()[0]
    assert (cheap.asked_replicas, dear.asked_replicas) == (3, 2)
    assert dear.binding is Reason.BUDGET


def test_budget_does_not_act_at_the_border(fleet: "type[Fleet]") -> None:
    case = fleet.Case(forecast=10.0, arrivals=10.0, budget=BudgetPolicy(max_cost_usd_per_h=10.0))
    assert (case.pool().asked_replicas, case.pool().binding) == (5, Reason.DEMAND_FORECAST)
    tighter = fleet.Case(forecast=10.0, arrivals=10.0, budget=BudgetPolicy(max_cost_usd_per_h=9.99))
    assert (tighter.pool().asked_replicas, tighter.pool().binding) == (4, Reason.BUDGET)


def test_budget_holds_though_a_later_guard_keeps_another_pool_large(fleet: "type[Fleet]") -> None:
    pools = [fleet.pool_policy("a", cost_usd_per_h=1.0, max_replicas=4), fleet.pool_policy("b", cost_usd_per_h=3.0)]
    case = fleet.Case(
        arrivals=fleet.lost(),
        forecast=16.0,
        pools=pools,
        seen=[fleet.pool_seen(p.key, ready=r) for p, r in zip(pools, (1, 5), strict=True)],
        capacity={"a": 2.0, "b": 2.0},
        asked={"a": 1, "b": 5},
        budget=BudgetPolicy(max_gpus=6),
    )
    # 2 of b are more than demand needs, but b is blind and holds them: a may not have their budget.
    assert [p.asked_replicas for p in case.decide()[0]] == [1, 5]
