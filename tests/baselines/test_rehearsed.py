"""Each law on a small rehearsal: it follows the load, and its knob trades replicas for attainment."""

import math
from dataclasses import replace
from functools import cache

import pytest
from tests.baselines.scene import KEY, bounded
from tests.baselines.test_law import ALL

from tidegate.app.config_profile import load_profile
from tidegate.baselines.figures import kv_at_capacity
from tidegate.sim.arrivals import Arrival
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.faults import Fault, FaultName
from tidegate.sim.fleet import FleetSim
from tidegate.sim.outcome import joint_ratio, outcomes_of
from tidegate.sim.policies import Rival, World
from tidegate.sim.rehearse import Conditions, RehearsalResult, rehearse
from tidegate.sim.setup import FleetSetup, PoolSetup
from tidegate.sim.trace import Trace, trace_of
from tidegate.terms.fleet import Role
from tidegate.terms.slo import Indicator, Slo

SLOS = (
    Slo(name="ttft", indicator=Indicator.TTFT, objective_ratio=0.95, threshold_s=10.0, window_s=3600.0),
    Slo(name="tpot", indicator=Indicator.TPOT, objective_ratio=0.95, threshold_s=3.0, window_s=3600.0),
)
POLICY = replace(bounded(1, 12, cold_start_prior_s=20.0), slos=SLOS)
# So slow that few steps make an hour, and so small that load shows in its KV: 20 answers of 10 tokens in 13 s.
PROFILE = replace(
    load_profile("a100-llama8b-tp1"), step_base_ps=1_200_000_000_000, max_sequences=20, kv_capacity_tokens=2048
)
SECONDS = 1800.0
PER_REPLICA = 1.0  # requests/s with about 14 of 20 places taken


@cache
def hill() -> Trace:
    """Return half an hour from 1 to 5 requests/s and back."""
    arrivals, done = [], 0.0
    for tick in range(int(10 * SECONDS)):
        done += 0.1 * (3.0 - 2.0 * math.cos(2.0 * math.pi * tick / (10.0 * SECONDS)))
        if done >= 1.0:
            done -= 1.0
            arrivals.append(Arrival(at_s=tick / 10.0, prompt_tokens=60, output_tokens=10))
    return trace_of(arrivals)


WORLD = World(
    policy=POLICY,
    profiles={POLICY.pools[0].profile: PROFILE},
    capacity_per_s={KEY: PER_REPLICA},
    concurrency={KEY: 14.0},
    prompt_tokens=60.0,
    output_tokens=10.0,
    cold_start_s=20.0,
    mean_per_s=3.0,
    peak_per_s=5.0,
)


@cache
def played(name: str, setting: float | None, fault: FaultName | None = None) -> RehearsalResult:
    """Return the rehearsal of a law, with a fault in its second third or none."""
    rival = next(r for r in ALL if r.name == name)
    setup = PoolSetup(
        key=KEY, role=Role.AGGREGATED, profile=PROFILE, cold_start=ColdStart(samples_s=(20.0,)), initial=2
    )
    faults = () if fault is None else (Fault(name=fault, start_s=SECONDS / 3.0, duration_s=SECONDS / 3.0),)
    conditions = Conditions(policy=POLICY, setup=FleetSetup(pools=(setup,)), window_s=SECONDS, faults=faults)
    return rehearse(hill(), rival.make(WORLD, setting), conditions=conditions, make_fleet=FleetSim)


def asked(result: RehearsalResult) -> list[int]:
    return [d.pools[0].asked_replicas for d in result.decisions]


def attained(result: RehearsalResult) -> float:
    return joint_ratio(outcomes_of(result.outcomes), SLOS)


@pytest.mark.parametrize("rival", ALL, ids=lambda r: r.name)
def test_safe_end_of_the_knob_costs_more_and_serves_no_fewer_than_the_thrifty_end(rival: Rival) -> None:
    knob = rival.knob(WORLD)
    assert knob is not None
    safe, thrifty = played(rival.name, knob.safe), played(rival.name, knob.thrifty)
    assert safe.gpu_seconds > 1.5 * thrifty.gpu_seconds
    assert attained(safe) > 0.99
    assert attained(safe) > attained(thrifty)


def _carrying(rival: Rival) -> float:
    """Return the setting at which a replica is given four fifths of what it carries."""
    knob = rival.knob(WORLD)
    assert knob is not None
    settings = {
        "static-peak": 6.0,
        "static-mean": 6.0,
        "kpa": 0.8 * 14.0 / 0.7,
        "hpa-kv": 0.8 * kv_at_capacity(WORLD)[KEY],
        "aibrix-apa-intended": 0.8 * kv_at_capacity(WORLD)[KEY],
        "aibrix-apa-found": 0.8 * kv_at_capacity(WORLD)[KEY],
    }
    return settings.get(rival.name, knob.default)


@pytest.mark.parametrize("rival", [r for r in ALL if not r.name.startswith("static")], ids=lambda r: r.name)
def test_law_follows_the_load_up_and_down(rival: Rival) -> None:
    result = played(rival.name, _carrying(rival))
    counts = asked(result)
    parts = [counts[k * len(counts) // 6 : (k + 1) * len(counts) // 6] for k in range(6)]
    means = [sum(p) / len(p) for p in parts]
    assert means[0] < 3.0
    assert max(means[2:4]) > 5.0
    # The window's highest stays for half an hour, which is the whole load.
    assert rival.name == "window-max" or means[5] < max(means) - 1.0


@pytest.mark.parametrize("name", ["static-peak", "static-mean"])
def test_static_sizes_never_move(name: str) -> None:
    result = played(name, None)
    assert (result.asked_changes, len(set(asked(result)))) == (0, 1)
    assert result.gpu_seconds == SECONDS * asked(result)[0]


@pytest.mark.parametrize("name", ["hpa-queue", "kpa", "keda-queue-fallback", "crane-dsp", "last-value"])
def test_lost_metrics_leave_a_law_that_holds_where_it_was(name: str) -> None:
    rival = next(r for r in ALL if r.name == name)
    result = played(name, _carrying(rival), FaultName.METRIC_ABSENT)
    counts = asked(result)
    blind = counts[4 * len(counts) // 9 : 5 * len(counts) // 9]
    assert len(set(blind)) == 1
    assert blind[0] >= 4
    assert attained(result) > 0.99


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("keda-queue", FaultName.METRIC_ABSENT),
        ("aibrix-apa-found", FaultName.METRIC_ABSENT),
        ("aibrix-apa-found", FaultName.PROMETHEUS_UNREADABLE),
    ],
)
def test_lost_metrics_empty_a_law_that_reads_nothing_as_zero(name: str, fault: FaultName) -> None:
    rival = next(r for r in ALL if r.name == name)
    result = played(name, _carrying(rival), fault)
    assert min(asked(result)[len(asked(result)) // 3 :]) == 1
    assert attained(result) < 0.8
