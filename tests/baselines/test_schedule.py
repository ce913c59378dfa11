"""A schedule asks for what it says, when it says it, within the pool's bounds."""

import pytest
from tests.baselines.rival_scene import fleet
from tests.baselines.scene import KEY, bounded
from tests.sim.stage import KEY as STAGE_KEY
from tests.sim.stage import LOAD, play

from tidegate.baselines.law import LawMemory
from tidegate.baselines.schedule import Schedule, schedule_contender, scheduled
from tidegate.perf.profile import PS_PER_S
from tidegate.terms.decision import Reason, Verdict
from tidegate.terms.fleet import PoolKey

PLAN = Schedule(step_s=30.0, counts={KEY: (2, 5, 3)})


@pytest.mark.parametrize(
    ("now_s", "count"),
    [(0.0, 2), (29.9, 2), (30.0, 5), (29.9999999999, 5), (59.0, 5), (60.0, 3), (1e6, 3), (-5.0, 2)],
)
def test_schedule_holds_each_count_for_its_step_and_the_last_for_good(now_s: float, count: int) -> None:
    assert PLAN.at(KEY, now_s) == count


def test_schedule_steps_of_a_third_of_a_second_fall_where_they_should() -> None:
    plan = Schedule(step_s=0.1, counts={KEY: tuple(range(1, 101))})
    assert [plan.at(KEY, k * 0.1) for k in range(100)] == list(range(1, 101))


@pytest.mark.parametrize(("least", "most", "asked"), [(1, 8, (2, 5, 3)), (3, 4, (3, 4, 3))], ids=["free", "bounded"])
def test_scheduled_asks_for_the_plan_within_the_bounds(least: int, most: int, asked: tuple[int, ...]) -> None:
    law = scheduled(PLAN)
    memory: LawMemory[int] = LawMemory()
    seen = []
    for now_s in (0.0, 30.0, 60.0):
        obs = fleet(KEY, ready=1, now_s=now_s)
        decision, memory = law(obs, (), (), (bounded(least, most),), memory, now_s=now_s)
        seen.append(decision.pools[0])
    assert tuple(p.asked_replicas for p in seen) == asked


def test_scheduled_says_what_moved() -> None:
    law = scheduled(PLAN)
    memory: LawMemory[int] = LawMemory()
    decision, memory = law(fleet(KEY, ready=2, now_s=0.0), (), (), (bounded(1, 8),), memory, now_s=0.0)
    assert (decision.pools[0].verdict, decision.pools[0].binding) == (Verdict.HOLD, Reason.STEADY)
    decision, memory = law(fleet(KEY, ready=2, now_s=30.0), (), (), (bounded(1, 8),), memory, now_s=30.0)
    assert (decision.pools[0].verdict, decision.pools[0].binding) == (Verdict.GROW, Reason.DEMAND_NOW)


def test_schedule_contender_starts_with_its_first_count_and_moves_at_its_steps() -> None:
    plan = Schedule(step_s=15.0, counts={STAGE_KEY: (2, 3, 1)})
    played = play(schedule_contender("plan", plan, setting=0.7), LOAD)
    orders = [e.at_ps / PS_PER_S for e in played.events if e.kind == "ordered" and e.at_ps > 0]
    drains = [e.at_ps / PS_PER_S for e in played.events if e.kind == "draining"]
    assert sum(e.kind == "ready" and e.at_ps == 0 for e in played.events) == 2
    assert orders == [15.0]
    assert drains == [30.0, 30.0]
    assert played.asked_changes == 2


def test_schedule_contender_of_several_pools_needs_one_first_count_for_all() -> None:
    other = PoolKey(service="chat", pool="other")
    plan = Schedule(step_s=15.0, counts={KEY: (2, 3), other: (4, 1)})
    assert schedule_contender("plan", plan).initial_replicas == 4
