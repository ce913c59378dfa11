"""Prefill and decode apart: KV goes over a link, first tokens come from the decode replica."""

from typing import Any

import pytest
from tests.sim.worlds import FAR_PS, LINK, Engine, hashed, kinds, load, pool, setup, states

from tidegate.perf.profile import EngineProfile
from tidegate.sim.fleet import FleetSim
from tidegate.sim.setup import CacheSetup, FleetSetup
from tidegate.terms.fleet import ReplicaState, Role


def split(
    prefill: EngineProfile,
    decode: EngineProfile,
    counts: tuple[int, int] = (1, 1),
    **changes: Any,  # noqa: ANN401  (any field of the setup)
) -> FleetSetup:
    return setup(
        pool(prefill, counts[0], role=Role.PREFILL),
        pool(decode, counts[1], role=Role.DECODE),
        **({"link": LINK} | changes),
    )


# Prompt of 10: computed at 1050 + 277. Its KV is there 100 + 3 * 10 later, and after a front end of 50 the last prompt
# token is computed again over nine others: 110 + 1 + 3 * 19 // 2 + 7 = 146. Then decodes over 11 and 12 tokens.
PREFILLED_PS = 1050 + 277
ARRIVED_PS = PREFILLED_PS + 100 + 30
FIRST_PS = ARRIVED_PS + 50 + 146


def test_request_moves_over_the_link_and_answers_from_the_decode_replica(engine: Engine) -> None:
    fleet = FleetSim(load((1000, 10, 3)), split(engine(), engine()))
    fleet.run_until(PREFILLED_PS)
    assert [m.live for m in fleet.members()] == [0, 1]  # on the link
    moving = fleet.sample()
    assert (moving.pending_prompt_tokens, moving.in_flight) == (10, 1)
    assert (moving.running.tolist(), moving.waiting.tolist()) == ([0, 0], [0, 0])
    fleet.run_until(FAR_PS)
    outcomes = fleet.outcomes()
    assert outcomes.first_ps.tolist() == [FIRST_PS]
    assert outcomes.ended_ps.tolist() == [FIRST_PS + 140 + 142]
    assert outcomes.member.tolist() == [1]
    sample = fleet.sample()
    assert (sample.finished.tolist(), sample.output_done_tokens.tolist()) == ([1, 1], [1, 3])
    assert sample.prompt_done_tokens.tolist() == [0, 10]
    assert (sample.answered, sample.pending_prompt_tokens) == (1, 0)


def test_answer_of_one_token_comes_from_the_prefill_replica(engine: Engine) -> None:
    fleet = FleetSim(load((1000, 10, 1)), split(engine(), engine()))
    fleet.run_until(FAR_PS)
    outcomes = fleet.outcomes()
    assert (outcomes.first_ps[0], outcomes.ended_ps[0], outcomes.member[0]) == (PREFILLED_PS, PREFILLED_PS, 0)
    assert fleet.sample().prompt_done_tokens.tolist() == [10, 0]


def test_faster_link_brings_the_first_token_sooner_by_just_its_time(engine: Engine) -> None:
    first = []
    for base_ps, per_token_ps in ((0, 0), (0, 1), (500, 0)):
        link = type(LINK)(name="x", base_ps=base_ps, ps_per_token=per_token_ps)
        fleet = FleetSim(load((1000, 10, 3)), split(engine(), engine(), link=link))
        fleet.run_until(FAR_PS)
        first.append(int(fleet.outcomes().first_ps[0]))
    assert [f - first[0] for f in first] == [0, 10, 500]


def test_hand_off_without_any_delay_begins_at_the_same_instant(engine: Engine) -> None:
    link = type(LINK)(name="x", base_ps=0, ps_per_token=0)
    fleet = FleetSim(load((1000, 10, 3)), split(engine(), engine(front_end_ps=0), link=link))
    fleet.run_until(FAR_PS)
    assert fleet.outcomes().first_ps.tolist() == [PREFILLED_PS + 146]


def test_hand_off_takes_the_emptiest_ready_decode_replica(engine: Engine) -> None:
    trace = load((0, 10, 40), (1, 10, 2), (2, 10, 2))
    fleet = FleetSim(trace, split(engine(token_budget=10, max_sequences=1), engine(), (1, 2)))
    fleet.run_until(FAR_PS)
    # One prompt after the other: 0 to the first, 1 and 2 (by their turn) to whoever has fewest.
    assert fleet.outcomes().member[0] == 1
    assert fleet.outcomes().member[1] == 2


def test_hand_off_is_refused_when_no_decode_replica_is_ready(engine: Engine) -> None:
    fleet = FleetSim(load((0, 10, 2), (0, 10, 1)), split(engine(), engine(), (1, 0)))
    fleet.run_until(FAR_PS)
    sample = fleet.sample()
    assert (sample.refused, sample.answered, sample.pending_prompt_tokens) == (1, 1, 0)
    assert fleet.outcomes().member.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("prompt", "output", "member", "refused"), [(95, 2, -1, 1), (90, 80, 1, 0), (90, 90, 0, 1), (96, 1, -1, 1)]
)
def test_request_must_fit_each_engine_on_its_way(
    engine: Engine, prompt: int, output: int, member: int, refused: int
) -> None:
    small, large = engine(max_context_tokens=95), engine(max_context_tokens=170)
    fleet = FleetSim(load((0, prompt, output)), split(small, large))
    fleet.run_until(FAR_PS)
    assert (fleet.outcomes().member[0], fleet.sample().refused) == (member, refused)


def test_request_handed_to_a_replica_that_drains_stays(engine: Engine) -> None:
    fleet = FleetSim(load((1000, 10, 3)), split(engine(), engine()))
    fleet.run_until(PREFILLED_PS + 10)
    fleet.drain(1)
    fleet.drain(0)  # has handed it on: idle
    assert states(fleet) == {1: ReplicaState.DRAINING}
    fleet.run_until(FAR_PS)
    assert fleet.outcomes().ended_ps.tolist() == [FIRST_PS + 282]
    assert kinds(fleet)[-1] == (FIRST_PS + 282, "ended", 1)


def test_crash_of_the_prefill_replica_after_the_hand_off_changes_nothing(engine: Engine) -> None:
    fleet = FleetSim(load((1000, 10, 3)), split(engine(), engine()))
    fleet.run_until(PREFILLED_PS)
    fleet.crash(0)
    fleet.run_until(FAR_PS)
    assert fleet.outcomes().ended_ps.tolist() == [FIRST_PS + 282]


def test_crash_of_the_decode_replica_before_the_first_token_starts_from_the_prompt(engine: Engine) -> None:
    fleet = FleetSim(load((1000, 10, 3)), split(engine(), engine(), (1, 2)))
    fleet.run_until(PREFILLED_PS + 10)
    fleet.crash(1)
    fleet.run_until(FAR_PS)
    # Routed again at once, 10 after the prompt was computed; all of it a second time.
    assert fleet.outcomes().first_ps.tolist() == [FIRST_PS + (PREFILLED_PS + 10 - 1000)]
    assert fleet.outcomes().member.tolist() == [2]


def test_crash_of_the_decode_replica_after_the_first_token_cuts_the_answer(engine: Engine) -> None:
    fleet = FleetSim(load((1000, 10, 3)), split(engine(), engine(), (1, 2)))
    fleet.run_until(FIRST_PS)
    fleet.crash(1)
    fleet.run_until(FAR_PS)
    assert (fleet.outcomes().first_ps[0], fleet.outcomes().ended_ps[0], fleet.sample().lost) == (FIRST_PS, -1, 1)


def test_prefill_replicas_use_their_cache_and_decode_replicas_the_link(engine: Engine) -> None:
    profile = engine(token_budget=128)
    prefill = pool(profile, role=Role.PREFILL, cache=CacheSetup(hash_block_tokens=32))
    fleet = FleetSim(
        hashed(load((0, 70, 2), (50_000, 70, 2)), 32, (1, 2), (1, 2)),
        setup(prefill, pool(profile, role=Role.DECODE), link=LINK),
    )
    fleet.run_until(FAR_PS)
    first, second = fleet.outcomes().first_ps.tolist()
    assert first - (second - 50_000) == 7537 - (110 + 6 + 1206 + 7)
    assert fleet.sample().hit_tokens.tolist() == [64, 0]
