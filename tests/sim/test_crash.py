"""A crash: who is retried, how often, and who is cut."""

import pytest
from tests.sim.worlds import FAR_PS, Engine, kinds, load, pool, setup

from tidegate.sim.fleet import FleetSim
from tidegate.sim.setup import Routing

NOTHING = load()


def test_crash_retries_what_has_no_first_token_and_cuts_the_rest(engine: Engine) -> None:
    # A budget of 10 tokens: 0 has its first token at 327 and decodes; 2 is half through its prompt.
    trace = load((0, 10, 50), (0, 10, 50), (300, 18, 1))
    fleet = FleetSim(trace, setup(pool(engine(token_budget=10), 2)))
    fleet.run_until(400)
    assert fleet.members()[0].live == 2
    fleet.crash(0)
    fleet.run_until(FAR_PS)
    outcomes = fleet.outcomes()
    assert outcomes.first_ps[0] == 327
    assert outcomes.ended_ps[0] == -1
    assert outcomes.ended_ps[1] > 0
    assert outcomes.ended_ps[2] > 450
    assert outcomes.member.tolist() == [0, 1, 1]
    sample = fleet.sample()
    assert (sample.answered, sample.lost, sample.refused, sample.pending_prompt_tokens) == (2, 1, 0, 0)
    assert kinds(fleet)[4:] == [(400, "crashed", 0), (400, "ended", 0)]
    assert fleet.replica_ps(0, 1000) == 1400


@pytest.mark.parametrize(("retries", "answered"), [(0, 0), (1, 0), (2, 1)])
def test_crash_retries_a_request_so_many_times(engine: Engine, retries: int, answered: int) -> None:
    fleet = FleetSim(load((0, 10, 1)), setup(pool(engine(), 3), crash_retries=retries))
    fleet.run_until(100)
    fleet.crash(0)
    fleet.run_until(120)
    fleet.crash(1)
    fleet.run_until(FAR_PS)
    sample = fleet.sample()
    assert (sample.answered, sample.lost, sample.in_flight) == (answered, 1 - answered, 0)
    assert fleet.idle


def test_crash_refuses_a_retry_that_nobody_takes(engine: Engine) -> None:
    fleet = FleetSim(load((0, 10, 1)), setup(pool(engine())))
    fleet.run_until(100)
    fleet.crash(0)
    sample = fleet.sample()
    assert (sample.refused, sample.lost, sample.pending_prompt_tokens, fleet.idle) == (1, 0, 0, True)


def test_crash_of_one_that_starts_or_is_gone(engine: Engine) -> None:
    fleet = FleetSim(NOTHING, setup(pool(engine(), 0)))
    fleet.scale_to(0, 1)
    fleet.crash(0)
    fleet.crash(0)
    fleet.run_until(FAR_PS)
    assert kinds(fleet) == [(0, "ordered", 0), (0, "crashed", 0), (0, "ended", 0)]


def test_round_robin_counts_retries_too(engine: Engine) -> None:
    fleet = FleetSim(load((0, 10, 1), (100, 10, 1)), setup(pool(engine(), 2), routing=Routing.ROUND_ROBIN))
    fleet.run_until(10)
    fleet.crash(0)  # the retry is the second routed: of one candidate, the first
    fleet.scale_to(0, 2)
    fleet.run_until(FAR_PS)
    assert fleet.outcomes().member.tolist() == [1, 1]
