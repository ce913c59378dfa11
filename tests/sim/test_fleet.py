"""The simulated fleet: requests are conserved, time is accounted for, drains finish what they hold."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.app.config import load_profile
from tidegate.perf.profile import PS_PER_S, EngineProfile
from tidegate.sim.arrivals import Arrival, in_order, steady
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.events import SimRequest
from tidegate.sim.fleet import FleetSim
from tidegate.sim.replica import ReplicaSim
from tidegate.sim.routing import least_request
from tidegate.terms.fleet import ReplicaState

LOAD = steady(requests_per_s=4.0, seconds=10.0, prompt_tokens=200, output_tokens=50)
FAR_PS = 10_000 * PS_PER_S


@pytest.fixture(scope="session")
def profile() -> EngineProfile:
    return load_profile("a100-llama8b-tp1")


def fleet_of(
    profile: EngineProfile, arrivals: Sequence[Arrival] = LOAD, *, initial: int = 1, cold_s: float = 5.0
) -> FleetSim:
    return FleetSim(arrivals=arrivals, profile=profile, cold_start=ColdStart(samples_s=(cold_s,)), initial=initial)


def at(fleet: FleetSim, seconds: float) -> None:
    fleet.run_until(round(seconds * PS_PER_S))


def kinds(fleet: FleetSim) -> list[tuple[float, str, str]]:
    return [(e.at_s, e.kind, e.replica) for e in fleet.events]


def test_fleet_of_one_equals_the_replica_alone(profile: EngineProfile) -> None:
    fleet = fleet_of(profile)
    fleet.run_until(FAR_PS)
    alone = ReplicaSim(profile)
    for index, one in enumerate(LOAD):
        asked = SimRequest(key=index, prompt_tokens=one.prompt_tokens, output_tokens=one.output_tokens)
        alone.submit(asked, round(one.at_s * PS_PER_S))
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step in alone.step_until(FAR_PS):
        for key in step.emitted:
            first.setdefault(key, step.ended_at_ps)
            last[key] = step.ended_at_ps
    for index, outcome in enumerate(fleet.outcomes()):
        arrived_ps = round(LOAD[index].at_s * PS_PER_S)
        assert outcome.ttft_s == (first[index] - arrived_ps) / PS_PER_S
        assert outcome.e2e_s == (last[index] - arrived_ps) / PS_PER_S
        assert outcome.tpot_s == (last[index] - first[index]) / 49 / PS_PER_S


def test_fleet_refuses_what_arrives_while_nobody_is_ready(profile: EngineProfile) -> None:
    fleet = fleet_of(profile, initial=0, cold_s=5.0)
    fleet.scale_to(1)
    fleet.run_until(FAR_PS)
    # The request of second 5 comes just before the replica that is ready in that second.
    answered = [o.arrival.at_s > 5.0 for o in fleet.outcomes()]
    assert [o.answered for o in fleet.outcomes()] == answered
    assert fleet.refused == answered.count(False) == 21
    assert kinds(fleet) == [(0.0, "ordered", "r0"), (5.0, "ready", "r0")]


def test_fleet_notices_readiness_at_the_next_sweep(profile: EngineProfile) -> None:
    fleet = fleet_of(profile, initial=0, cold_s=5.2)
    at(fleet, 1.5)
    fleet.scale_to(1)
    at(fleet, 20.0)
    assert kinds(fleet) == [(1.5, "ordered", "r0"), (7.0, "ready", "r0")]


def test_starting_counts_as_supply_and_never_as_cover(profile: EngineProfile) -> None:
    fleet = fleet_of(profile, initial=1)
    fleet.scale_to(3)
    fleet.scale_to(3)
    assert len(fleet.of(ReplicaState.STARTING)) == 2
    fleet.scale_to(1)  # two still start: the one that serves must stay
    assert [m.name for m in fleet.of(ReplicaState.READY)] == ["r0"]
    at(fleet, 6.0)
    fleet.scale_to(1, drain_first=("r0",))
    assert [m.name for m in fleet.of(ReplicaState.READY)] == ["r1"]


def test_drained_replica_gets_no_request_and_finishes_what_it_has(profile: EngineProfile) -> None:
    fleet = fleet_of(profile, initial=2)
    at(fleet, 5.0)
    held = {m.name: m.engine.live for m in fleet.members}
    assert all(held.values())
    fleet.scale_to(1, drain_first=("r1",))
    assert fleet.of(ReplicaState.DRAINING)[0].name == "r1"
    fleet.run_until(FAR_PS)
    assert all(o.answered for o in fleet.outcomes())
    assert all(o.replica == "r0" for o in fleet.outcomes() if o.arrival.at_s > 5.0)
    drained = next(e for e in fleet.events if e.kind == "ended")
    last = max(o.arrival.at_s + (o.e2e_s or 0.0) for o in fleet.outcomes() if o.replica == "r1")
    assert drained.at_s == pytest.approx(last)


def test_replica_time_runs_from_order_to_the_end_of_the_drain(profile: EngineProfile) -> None:
    fleet = fleet_of(profile, arrivals=(), initial=1)
    at(fleet, 10.0)
    fleet.scale_to(2)
    at(fleet, 30.0)
    fleet.scale_to(1)  # idle: it ends at once
    at(fleet, 50.0)
    assert fleet.replica_ps(50 * PS_PER_S) == (50 + 20) * PS_PER_S
    assert fleet.replica_ps(20 * PS_PER_S) == (20 + 10) * PS_PER_S


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.builds(
            Arrival, at_s=st.floats(0.0, 20.0), prompt_tokens=st.integers(1, 4000), output_tokens=st.integers(1, 60)
        ),
        max_size=25,
    ),
    st.lists(st.tuples(st.floats(0.0, 25.0), st.integers(0, 4)), max_size=6),
)
def test_every_request_is_answered_once_or_refused_whatever_the_scaling(
    profile: EngineProfile, arrivals: list[Arrival], moves: list[tuple[float, int]]
) -> None:
    def run() -> FleetSim:
        fleet = fleet_of(profile, arrivals, cold_s=3.0)
        for at_s, asked in sorted(moves):
            at(fleet, at_s)
            before = len(fleet.of(ReplicaState.READY))
            fleet.scale_to(asked)
            assert len(fleet.of(ReplicaState.READY)) >= min(asked, before)
        fleet.run_until(FAR_PS)
        return fleet

    fleet = run()
    assert fleet.idle
    outcomes = fleet.outcomes()
    assert [o.arrival for o in outcomes] == list(in_order(arrivals))
    assert sum(not o.answered for o in outcomes) == fleet.refused
    answered = [o for o in outcomes if o.answered]
    assert sum(m.finished for m in fleet.members) == len(answered)
    assert sum(m.output_tokens for m in fleet.members) == sum(o.arrival.output_tokens for o in answered)
    assert all(0.0 < (o.ttft_s or 0.0) <= (o.e2e_s or 0.0) for o in answered)
    again = run()
    assert (again.outcomes(), again.events) == (outcomes, fleet.events)


def test_least_request_takes_the_emptiest_and_rotates_among_equals() -> None:
    assert least_request([3, 1, 2], turn=0) == 1
    assert [least_request([0, 0, 0], turn=t) for t in range(4)] == [0, 1, 2, 0]
    assert least_request([0, 1, 0], turn=1) == 2


def test_arrivals_are_sorted_stably_and_checked() -> None:
    late, early, twin = (Arrival(at_s=t, prompt_tokens=p, output_tokens=1) for t, p in ((2.0, 1), (1.0, 2), (2.0, 3)))
    assert in_order([late, early, twin]) == (early, late, twin)
    for bad in ({"at_s": -1.0}, {"at_s": float("nan")}, {"prompt_tokens": 0}, {"output_tokens": 0}):
        fields = {"at_s": 1.0, "prompt_tokens": 1, "output_tokens": 1} | bad
        with pytest.raises(ValueError, match="arrival 0: at_s must be finite and >= 0"):
            in_order([Arrival(**fields)])


def test_cold_starts_are_taken_in_turn() -> None:
    cold = ColdStart(samples_s=(10.0, 20.0))
    assert [cold.of(i) for i in range(3)] == [10.0, 20.0, 10.0]
    for bad in ((), (-1.0,), (float("inf"),)):
        with pytest.raises(ValueError, match="samples_s must hold at least one finite time"):
            ColdStart(samples_s=bad)
