"""What all rival laws share: facts, bounds, memory and the record of a decision."""

from dataclasses import replace

import pytest
from tests.baselines.scene import ABSENT, KEY, POLICY, UNREACHABLE, Number, bounded, play, replicas, seen, signal, world
from tests.policies import pool_policy, service_policy

from tidegate.baselines import aibrix, crane, hpa, keda, kpa, last_value, static_mean, static_peak, window_max
from tidegate.baselines.law import (
    LawMemory,
    PoolFacts,
    Proposal,
    ceil_div,
    facts_of,
    failed,
    held,
    number_of,
    pool_law,
    service_law,
    share_of,
    staged,
)
from tidegate.sim.policies import Rival
from tidegate.terms.decision import Reason, Verdict
from tidegate.terms.fleet import PoolKey, Role
from tidegate.terms.observation import Observation
from tidegate.terms.policy import Mode
from tidegate.terms.signal import UnknownReason

MODULES = (static_peak, static_mean, hpa, kpa, keda, aibrix, crane, window_max, last_value)
ALL: list[Rival] = [rival for module in MODULES for rival in module.RIVALS]
BLIND = Observation(observed_at_s=0.0, services=())


def counting(facts: PoolFacts, kept: int | None) -> tuple[Proposal, int]:
    """A rule that asks for one more than it asked for, and counts its calls."""
    return Proposal(asked=facts.asked + 1, wanted=facts.asked + 1, notes=()), (kept or 0) + 1


def test_facts_count_states_and_start_from_what_exists() -> None:
    fleet = seen(replicas(3, 2, 1), running=4.0, waiting=1.0)
    facts = facts_of(fleet, POLICY, (), {}, now_s=7.0)[0]
    assert (facts.ready, facts.starting, facts.draining, facts.existing, facts.asked) == (3, 2, 1, 5, 5)
    assert (facts.in_engines, facts.now_s, facts.capacity) == (5.0, 7.0, None)
    assert facts_of(fleet, POLICY, (), {KEY: 9}, now_s=7.0)[0].asked == 9


def test_facts_of_what_nobody_saw_are_none_and_zero() -> None:
    facts = facts_of(BLIND, POLICY, (), {}, now_s=0.0)[0]
    assert (facts.seen, facts.served, facts.in_engines) == (None, None, None)
    assert (facts.ready, facts.asked) == (0, 0)


def test_law_remembers_what_it_asked_for_and_what_its_rule_keeps() -> None:
    law = pool_law(counting)
    decision, after = law(seen(replicas(2)), (), (), (POLICY,), LawMemory(), now_s=0.0)
    assert (decision.sequence, after.asked, after.kept) == (1, ((KEY, 3),), ((KEY, 1),))
    decision, after = law(seen(replicas(2)), (), (), (POLICY,), after, now_s=1.0)
    assert (decision.pools[0].asked_before_replicas, decision.pools[0].asked_replicas) == (3, 4)
    assert (decision.sequence, after.kept) == (2, ((KEY, 2),))


def test_law_applies_the_bounds_last_and_remembers_the_bounded_count() -> None:
    law = pool_law(counting)
    decision, after = law(seen(replicas(8)), (), (), (POLICY,), LawMemory(), now_s=0.0)
    made = decision.pools[0]
    assert (made.asked_replicas, made.binding, made.verdict) == (8, Reason.AT_MAXIMUM, Verdict.HOLD)
    assert (made.wanted_replicas, after.asked) == (9, ((KEY, 8),))
    decision, _ = law(BLIND, (), (), (bounded(3, 8),), LawMemory(), now_s=0.0)
    assert (decision.pools[0].asked_replicas, decision.pools[0].binding) == (3, Reason.AT_MINIMUM)


def test_law_writes_only_in_act_mode() -> None:
    law = pool_law(counting)
    for mode, writes in ((Mode.ACT, True), (Mode.ADVISE, False)):
        policy = replace(POLICY, mode=mode)
        decision, _ = law(seen(replicas(2)), (), (), (policy,), LawMemory(), now_s=0.0)
        assert decision.pools[0].writes is writes


def test_service_law_decides_pools_together_and_keeps_one_memory_per_service() -> None:
    def rule(pools: tuple[PoolFacts, ...], kept: int | None) -> tuple[tuple[Proposal, ...], int]:
        total = sum(p.asked for p in pools)
        return tuple(Proposal(asked=total + i, wanted=total, notes=()) for i, _ in enumerate(pools)), (kept or 0) + 1

    two = service_policy(pools=("one", "two"))
    law = service_law(rule)
    decision, after = law(BLIND, (), (), (two,), LawMemory(asked=((two.pools[0].key, 3),)), now_s=0.0)
    assert [p.asked_replicas for p in decision.pools] == [3, 4]
    decision, after = law(BLIND, (), (), (two,), after, now_s=0.0)
    assert [p.asked_replicas for p in decision.pools] == [7, 8]
    assert after.kept == (("chat", 2),)


def test_held_leaves_the_count_and_staged_notes_what_moved_it() -> None:
    facts = facts_of(seen(replicas(3)), POLICY, (), {}, now_s=0.0)[0]
    proposal = held(facts, text="nothing known")
    assert (proposal.asked, proposal.wanted, proposal.notes[0].reason) == (3, None, Reason.STALE_METRICS)
    notes = staged((Reason.DEMAND_NOW, 5), (Reason.STABILISATION, 5), (Reason.RATE_LIMIT, 4))
    assert [(n.reason, n.before_replicas, n.after_replicas) for n in notes] == [
        (Reason.DEMAND_NOW, 5, 5),
        (Reason.RATE_LIMIT, 5, 4),
    ]


@pytest.mark.parametrize(
    ("reason", "is_failed"),
    [
        (UnknownReason.UNREACHABLE, True),
        (UnknownReason.REJECTED, True),
        (UnknownReason.BREAKER_OPEN, True),
        (UnknownReason.PARTIAL, True),
        (UnknownReason.ABSENT, False),
        (UnknownReason.NOT_A_NUMBER, False),
        (UnknownReason.STALE, False),
    ],
)
def test_a_failed_question_is_not_an_empty_answer(reason: UnknownReason, is_failed: bool) -> None:  # noqa: FBT001
    assert failed(signal(reason)) is is_failed
    assert number_of(signal(reason)) is None
    assert not failed(signal(0.0))
    assert failed(None)


def test_ceil_div_forgives_a_rounding_error_and_refuses_nonsense() -> None:
    assert [ceil_div(0.3, 0.1), ceil_div(3.0000001, 1.0), ceil_div(0.0, 2.0)] == [3, 4, 0]
    for load, size in ((float("nan"), 1.0), (1.0, 0.0), (1.0, -1.0)):
        with pytest.raises(ValueError, match="finite load"):
            ceil_div(load, size)


def test_share_is_one_over_the_pools_of_the_same_role() -> None:
    names = {"p": Role.PREFILL, "d1": Role.DECODE, "d2": Role.DECODE}
    pools = tuple(pool_policy(PoolKey(service="chat", pool=n), role=role) for n, role in names.items())
    here = world(replace(POLICY, pools=pools))
    assert [share_of(here, p.key) for p in pools] == [1.0, 0.5, 0.5]


def test_rivals_are_named_apart_and_say_whose_they_are() -> None:
    assert len({r.name for r in ALL}) == len(ALL) == 12
    assert all(r.summary and r.source for r in ALL)


@pytest.mark.parametrize("rival", ALL, ids=lambda r: r.name)
def test_rival_makes_a_contender_from_its_knob(rival: Rival) -> None:
    knob = rival.knob(world())
    assert knob is not None
    assert min(knob.safe, knob.thrifty) <= knob.default <= max(knob.safe, knob.thrifty)
    assert rival.make(world(), None).setting == knob.default
    for setting in (knob.safe, knob.thrifty):
        contender = rival.make(world(), setting)
        assert (contender.name, contender.setting) == (rival.name, setting)
        assert contender.wants.rate_window_s > contender.wants.scrape_interval_s


@pytest.mark.parametrize("rival", ALL, ids=lambda r: r.name)
@pytest.mark.parametrize("number", [0.0, 1.0, 1e6, ABSENT, UNREACHABLE])
def test_rival_never_leaves_the_bounds(rival: Rival, number: Number) -> None:
    policy = bounded(2, 5)
    obs = [seen(replicas(n % 7), running=number, waiting=number, in_flight=number, arrivals=number) for n in range(30)]
    made = play(rival.make(world(policy), None), [*obs, BLIND], policy)
    assert all(2 <= d.asked_replicas <= 5 for d in made)


@pytest.mark.parametrize("rival", ALL, ids=lambda r: r.name)
def test_rival_decides_the_same_twice(rival: Rival) -> None:
    obs = [seen(replicas(2), running=float(n), waiting=0.0, in_flight=float(n), arrivals=float(n)) for n in range(40)]
    assert play(rival.make(world(), None), obs) == play(rival.make(world(), None), obs)
