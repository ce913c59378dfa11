"""The static size is the smallest that keeps the objectives on the same arrivals, or follows from a capacity."""

from dataclasses import dataclass, replace

import pytest
from tests.baselines.scene import KEY, ask, bounded, play, replicas, seen, world
from tests.policies import pool_policy, service_policy

from tidegate.baselines import static_mean
from tidegate.baselines.static_peak import RIVALS, keeps, static, static_peak
from tidegate.sim.policies import KnobScale
from tidegate.terms.decision import Reason, Verdict
from tidegate.terms.fleet import PoolKey, Role

OBJECTIVES = (("ttft", 0.95), ("tpot", 0.9))
PEAK, MEAN = RIVALS[0], static_mean.RIVALS[0]


@dataclass(frozen=True)
class Result:
    size: int
    attained_ratio: tuple[tuple[str, float], ...]
    failed: int = 0


def result(size: int, needed: int) -> Result:
    ratio = 0.99 if size >= needed else 0.9
    return Result(size=size, attained_ratio=(("ttft", ratio), ("tpot", 1.0)))


@pytest.mark.parametrize("needed", range(1, 12))
@pytest.mark.parametrize("most", [1, 2, 7, 11])
def test_static_peak_finds_the_smallest_size(needed: int, most: int) -> None:
    tried: list[int] = []

    def run(size: int) -> Result:
        tried.append(size)
        return result(size, needed)

    found = static_peak(run, objectives=OBJECTIVES, max_replicas=most)
    assert (found.replicas, found.kept) == ((needed, True) if needed <= most else (most, False))
    assert found.result.size == found.replicas
    assert len(set(tried)) == len(tried) <= 8


def test_an_objective_is_kept_at_its_ratio_and_not_with_a_failed_request() -> None:
    good = replace(result(1, 1), attained_ratio=(("ttft", 0.95), ("tpot", 0.9)))
    assert keeps(good, OBJECTIVES)
    assert not keeps(replace(good, attained_ratio=(("ttft", 0.9499), ("tpot", 1.0))), OBJECTIVES)
    assert not keeps(replace(good, failed=1), OBJECTIVES)


def test_static_law_asks_for_the_same_whatever_it_sees() -> None:
    made, memory = ask(static(5), seen(replicas(2)))
    assert (made.verdict, made.asked_before_replicas, made.asked_replicas) == (Verdict.GROW, 2, 5)
    made, memory = ask(static(5), seen(replicas(1, 1, 1)), memory, now_s=15.0)
    assert (made.verdict, made.asked_before_replicas, made.asked_replicas) == (Verdict.HOLD, 5, 5)
    assert (made.ready_replicas, made.starting_replicas, made.draining_replicas) == (1, 1, 1)
    assert (made.binding, memory.sequence) == (Reason.STEADY, 2)


def test_static_law_stays_within_the_pool_and_says_so() -> None:
    made, _ = ask(static(5), seen(), policy=bounded(1, 3))
    assert (made.wanted_replicas, made.asked_replicas, made.binding) == (5, 3, Reason.AT_MAXIMUM)
    made, _ = ask(static(0), seen(), policy=bounded(2, 3))
    assert (made.asked_replicas, made.binding) == (2, Reason.AT_MINIMUM)


def test_static_peak_and_mean_divide_the_load_by_the_capacity() -> None:
    peak, mean = PEAK.make(world(), None), MEAN.make(world(), None)
    assert (peak.setting, peak.initial_replicas) == (8.0, 8)  # ceil(15 / 2)
    assert (mean.setting, mean.initial_replicas) == (4.0, 4)  # 8 / 2, exactly
    for contender, count in ((peak, 8), (mean, 4)):
        assert play(contender, [seen(replicas(3))], bounded(1, 40))[0].asked_replicas == count
    assert MEAN.make(world(mean_per_s=0.0), None).setting == 1.0
    assert PEAK.make(world(bounded(1, 5)), None).setting == 5.0


def test_static_knob_is_the_count_of_replicas() -> None:
    for rival, default in ((PEAK, 8.0), (MEAN, 4.0)):
        knob = rival.knob(world())
        assert knob is not None
        assert (knob.scale, knob.safe, knob.thrifty, knob.default) == (KnobScale.INTEGER, 40.0, 1.0, default)
        assert rival.make(world(), 11.0).initial_replicas == 11


def test_static_deals_replicas_to_pools_by_their_need_and_never_takes_one_back() -> None:
    names = {"prefill": Role.PREFILL, "decode": Role.DECODE}
    keys = {name: PoolKey(service="chat", pool=name) for name in names}
    pools = tuple(pool_policy(keys[name], role=role, max_replicas=40) for name, role in names.items())
    disaggregated = replace(service_policy(pools=("x",)), pools=pools)
    here = world(disaggregated, capacity_per_s={keys["prefill"]: 8.0, keys["decode"]: 2.0})
    before = dict.fromkeys(keys.values(), 0)
    for total in range(2, 40):
        decision, _ = PEAK.make(here, float(total)).law(
            seen(), (), (), (disaggregated,), PEAK.make(here, None).start, now_s=0.0
        )
        counts = {p.key: p.asked_replicas for p in decision.pools}
        assert sum(counts.values()) == total
        assert all(counts[key] >= before[key] for key in counts)
        before = counts
    default, _ = PEAK.make(here, None).law(seen(), (), (), (disaggregated,), PEAK.make(here, None).start, now_s=0.0)
    assert [p.asked_replicas for p in default.pools] == [2, 8]


def test_static_needs_half_as_many_of_each_of_two_equal_pools() -> None:
    two = service_policy(pools=("one", "two"))
    decision, _ = PEAK.make(world(two), None).law(seen(), (), (), (two,), PEAK.make(world(two), None).start, now_s=0.0)
    assert [p.asked_replicas for p in decision.pools] == [4, 4]
    assert KEY not in {p.key for p in decision.pools}
