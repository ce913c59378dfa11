"""Each fault changes what it should and nothing else."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from tests.sim.puppet import Puppet, S, puppet, sight, view
from tests.sim.stage import KEY, LOAD, Script, contender, number, play

from tidegate.sim.arrivals import steady
from tidegate.sim.faults import METRIC_FAULTS, Fault, FaultName, busiest_middle_s, fault, faults_named
from tidegate.sim.metric_faults import MetricFaults
from tidegate.sim.past import Past
from tidegate.sim.policies import Wants
from tidegate.sim.rehearse import RehearsalResult
from tidegate.sim.trace import trace_of
from tidegate.terms.fleet import ReplicaState
from tidegate.terms.forecast import Quantity
from tidegate.terms.history import History
from tidegate.terms.observation import ServiceObservation
from tidegate.terms.signal import Signal, TrueZero, Unknown, UnknownReason
from tidegate.terms.slo import Indicator

READS = Wants(
    period_s=1.0,
    scrape_interval_s=1.0,
    rate_window_s=4.0,
    replicas=True,
    engine_detail=True,
    replica_rates=True,
    latencies=((Indicator.TTFT, 0.9, 4.0),),
    slis=True,
)
BEGINS_S, LASTS_S = 10.0, 10.0


def one(name: FaultName, *, start_s: float = BEGINS_S, duration_s: float = LASTS_S) -> Fault:
    return Fault(name=name, start_s=start_s, duration_s=duration_s)


def busy(fleet: Puppet, second: int) -> None:
    """A load that grows: every gauge is the second, every counter a multiple of it, squared."""
    fleet.counters = {
        "arrived": 10 * second**2, "answered": 9 * second**2, "refused": second**2, "in_flight": 2 * second,
        "prompt_tokens": 1000 * second**2, "output_tokens": 200 * second**2, "pending_prompt_tokens": 50 * second,
        "ttft_counts": [3 * second**2] + [second**2] * len(fleet.setup.ttft_bounds_ps),
        "tpot_counts": [second**2] * (len(fleet.setup.tpot_bounds_ps) + 1),
    }  # fmt: skip
    row = dict.fromkeys(("live", "running", "waiting", "kv_used_blocks", "waiting_prompt_tokens"), second + 1)
    row |= dict.fromkeys(("finished", "prompt_done_tokens", "output_done_tokens", "preemptions"), second**2)
    fleet.rows = {0: row | {"context_tokens": second}, 1: row | {"context_tokens": second}}


def shown(*faults: Fault, until_s: int, wants: Wants = READS) -> tuple[ServiceObservation, History]:
    """What is seen at a second, and the load's past."""
    fleet = puppet()
    fleet.views = [view(0), view(1)]
    blight = MetricFaults(faults=faults)
    past = Past(step_s=1.0, steps=60, window_ps=4 * S, quantities=(Quantity.REQUESTS_PER_S,), faults=blight)
    seen = sight(fleet, wants, faults=blight, past=past)
    for second in range(until_s + 1):
        fleet.now_ps = second * S
        busy(fleet, second)
        seen.scrape()
    histories = seen.histories(float(until_s))
    empty = History(service="chat", quantity=Quantity.REQUESTS_PER_S, step_s=1.0, samples=(), source="")
    return seen.observe(float(until_s), {}).services[0], histories[0] if histories else empty


def signals(term: object, path: str = "") -> dict[str, Signal]:
    """Every signal by its path."""
    if isinstance(term, tuple):
        return {k: v for i, one in enumerate(term) for k, v in signals(one, f"{path}[{i}]").items()}
    if not hasattr(term, "__dataclass_fields__"):
        return {}
    if hasattr(term, "coverage_ratio"):
        return {path: term}  # type: ignore[dict-item]
    return {k: v for f in fields(term) for k, v in signals(getattr(term, f.name), f"{path}.{f.name}").items()}  # type: ignore[arg-type]


def changed(*faults: Fault, until_s: int) -> dict[str, tuple[Signal, Signal]]:
    """The signals that faults change, by path: before and after."""
    plain, hit = signals(shown(until_s=until_s)[0]), signals(shown(*faults, until_s=until_s)[0])
    assert plain.keys() == hit.keys()
    return {path: (plain[path], hit[path]) for path in plain if plain[path] != hit[path]}


@pytest.mark.parametrize("name", sorted(METRIC_FAULTS - {FaultName.COUNTER_RESET}))
def test_a_metric_fault_changes_nothing_before_it_begins(name: FaultName) -> None:
    assert changed(one(name), until_s=9) == {}
    assert shown(one(name), until_s=9)[1] == shown(until_s=9)[1]


@pytest.mark.parametrize("name", sorted(METRIC_FAULTS - {FaultName.COUNTER_RESET}))
def test_a_metric_fault_changes_nothing_when_it_is_over_and_the_window_is_full_again(name: FaultName) -> None:
    assert changed(one(name), until_s=25) == {}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (FaultName.METRIC_ABSENT, UnknownReason.ABSENT),
        (FaultName.METRIC_NAN, UnknownReason.NOT_A_NUMBER),
        (FaultName.PROMETHEUS_UNREADABLE, UnknownReason.UNREACHABLE),
    ],
)
def test_a_source_that_says_nothing_leaves_every_signal_unknown(name: FaultName, reason: UnknownReason) -> None:
    service, _ = shown(one(name), until_s=15)
    found = signals(service)
    for place in range(3):
        found.pop(f".slis[{place}].quantile_s")  # not asked for
    assert {s.reason for s in found.values() if isinstance(s, Unknown)} == {reason}
    assert all(isinstance(s, Unknown) for s in found.values())
    assert [r.replica.state for r in service.pools[0].replicas] == [ReplicaState.READY] * 2  # known from elsewhere


@pytest.mark.parametrize("name", [FaultName.METRIC_ABSENT, FaultName.METRIC_NAN])
def test_missing_samples_are_a_gap_in_the_past(name: FaultName) -> None:
    # Neither end of the window of four seconds may lie in the gap.
    plain = [t for t, _ in shown(until_s=30)[1].samples]
    assert [t for t, _ in shown(one(name), until_s=30)[1].samples] == [t for t in plain if t < 10.0 or t >= 24.0]


def test_an_unreadable_prometheus_has_no_gap_when_it_is_back() -> None:
    assert shown(one(FaultName.PROMETHEUS_UNREADABLE), until_s=15)[1].samples == ()
    assert shown(one(FaultName.PROMETHEUS_UNREADABLE), until_s=20)[1] == shown(until_s=20)[1]


def test_renamed_families_are_lost_for_good_at_the_engines_only() -> None:
    renamed = fault("metric-renamed", LOAD, start_s=10.0)
    assert math.isinf(renamed.duration_s)
    hit = changed(renamed, until_s=50)
    assert all(".pools" in path and "gateway" not in path for path in hit)
    assert {after.reason for _, after in hit.values() if isinstance(after, Unknown)} == {
        UnknownReason.CONTRACT_VIOLATION
    }
    service, history = shown(renamed, until_s=50)
    assert service.pools[0].violations == ("engine metrics renamed",)
    assert history == shown(until_s=50)[1]


def test_frozen_gauges_stay_and_look_fresh_while_counters_go_on() -> None:
    hit = changed(one(FaultName.GAUGE_FROZEN), until_s=15)
    gauges = {"running_requests", "waiting_requests", "kv_used_ratio", "gateway_in_flight_requests"}
    gauges |= {"pending_prompt_tokens", "waiting_prompt_tokens", "context_tokens"}
    assert {path.rpartition(".")[2] for path in hit} == gauges
    before, after = hit[".pools[0].running_requests"]
    assert (number(before), number(after)) == (2 * 16.0, 2 * 11.0)
    assert after.sampled_at_s == 15.0


def test_a_second_exporter_doubles_sums_and_no_ratio() -> None:
    hit = changed(one(FaultName.EXPORTER_DOUBLED), until_s=15)
    assert all(number(after) == 2.0 * number(before) for before, after in hit.values())
    untouched = {"prompt_tokens_mean", "output_tokens_mean", "kv_used_ratio", "kv_capacity_tokens", "attained_ratio"}
    assert not {path.rpartition(".")[2] for path in hit} & (untouched | {"quantile_s", "seconds"})
    assert {".arrivals_per_s", ".pools[0].running_requests", ".pools[0].replicas[1].finished_per_s"} <= hit.keys()
    past = dict(shown(one(FaultName.EXPORTER_DOUBLED), until_s=15)[1].samples)
    assert (past[15.0], past[9.0]) == (2 * 10 * (15**2 - 11**2) / 4, 10 * (9**2 - 5**2) / 4)


def test_copies_are_folded_by_a_law_that_folds_them_at_its_engines() -> None:
    folding = replace(READS, folds_copies=True)
    hit = signals(shown(one(FaultName.EXPORTER_DOUBLED), until_s=15, wants=folding)[0])
    plain = signals(shown(until_s=15)[0])
    assert hit[".pools[0].running_requests"] == plain[".pools[0].running_requests"]
    assert number(hit[".arrivals_per_s"]) == 2 * number(plain[".arrivals_per_s"])


def test_a_counter_reset_loses_what_was_counted_since_the_last_scrape() -> None:
    reset = one(FaultName.COUNTER_RESET, start_s=9.5, duration_s=0.0)
    assert changed(reset, until_s=9) == {}
    hit = changed(reset, until_s=12)
    before, after = hit[".arrivals_per_s"]
    assert number(before) - number(after) == 10 * (10**2 - 9**2) / 4.0
    before, after = hit[".pools[0].replicas[0].finished_per_s"]
    assert number(before) - number(after) == (10**2 - 9**2) / 4.0
    assert not {p for p in hit if "running" in p or "in_flight" in p}
    assert changed(reset, until_s=14) == {}  # the window has left it behind


def test_a_late_scrape_shows_the_fleet_as_it_was() -> None:
    late = one(FaultName.SCRAPE_LATE, start_s=40.0)
    hit, plain = signals(shown(late, until_s=45)[0]), signals(shown(until_s=15)[0])
    known = {path: s for path, s in plain.items() if not isinstance(s, Unknown)}
    assert {path: hit[path] for path in known} == known
    assert [t for t, _ in shown(late, until_s=45)[1].samples][-1] == 15.0


def test_one_unscraped_replica_lowers_the_coverage_of_its_pool() -> None:
    hit = changed(one(FaultName.REPLICA_UNSCRAPED), until_s=15)
    assert all(".replicas[0]" in path for path in hit if ".replicas" in path)
    before, after = hit[".pools[0].running_requests"]
    assert number(after) == number(before) / 2
    assert after.coverage_ratio == 0.5
    assert not {p for p in hit if not p.startswith(".pools")}
    assert ".pools[0].gateway_in_flight_requests" not in hit


# Faults of the world, on the real simulator.

LONG = trace_of(steady(requests_per_s=2.0, seconds=120.0, prompt_tokens=300, output_tokens=60))


def moves(result: RehearsalResult) -> list[tuple[float, str, int]]:
    return [(e.at_ps / S, e.kind, e.member) for e in result.events if e.at_ps]


def test_a_restarted_controller_is_silent_and_has_forgotten() -> None:
    restart = one(FaultName.CONTROLLER_RESTART, start_s=28.0, duration_s=14.0)
    script = Script(1)
    play(script, LONG, faults=(restart,))
    assert [o.observed_at_s for o in script.seen][4:7] == [25.0, 45.0, 50.0]
    assert script.remembered[:8] == [0, 1, 2, 3, 4, 0, 1, 2]
    keeper = Script(1)
    play(contender(keeper, keeps_memory=True), LONG, faults=(restart,))
    assert keeper.remembered[:8] == list(range(8))


def test_pending_pods_are_ordered_when_there_are_nodes_again_and_cost_nothing_till_then() -> None:
    script = Script(1, 3, 3, 3, 2)
    result = play(script, LONG, faults=(one(FaultName.PODS_PENDING, start_s=8.0, duration_s=20.0),))
    assert moves(result)[:2] == [(28.0, "ordered", 1), (38.0, "ready", 1)]
    pending = [
        [r.replica.ordered_at_s for r in script.pool(call).replicas if r.replica.name.startswith("pending")]
        for call in range(6)
    ]
    # Two ordered at 10; at 25 one of them is taken back; at 28 the other has its node.
    assert pending == [[], [], [10.0, 10.0], [10.0, 10.0], [10.0, 10.0], []]
    assert [r.replica.state for r in script.pool(5).replicas] == [ReplicaState.READY, ReplicaState.STARTING]
    assert result.replica_seconds[KEY] == pytest.approx(result.ended_s + result.ended_s - 28.0)


def test_a_crashed_replica_is_replaced_at_once_whatever_the_law_does() -> None:
    busy_two = contender(Script(2), initial_replicas=2)
    result = play(busy_two, LONG, faults=(one(FaultName.REPLICA_CRASH, start_s=31.0, duration_s=0.0),))
    crashed = [e for e in result.events if e.kind == "crashed"]
    assert [e.at_ps for e in crashed] == [31 * S]
    assert (31.0, "ordered", 2) in moves(result)
    assert (41.0, "ready", 2) in moves(result)
    counts = result.replicas_over_time
    assert (counts.ready[30], counts.ready[31], counts.starting[31], counts.ready[41]) == (2, 1, 1, 2)


def test_spot_loss_drains_a_quarter_at_its_notice_and_ends_what_is_left_after_it() -> None:
    endless = trace_of([*steady(requests_per_s=0.5, seconds=60.0, prompt_tokens=300, output_tokens=4_000)])
    result = play(
        contender(Script(8), initial_replicas=8),
        endless,
        faults=(one(FaultName.SPOT_LOSS, start_s=31.0, duration_s=20.0),),
        window_s=70.0,
    )
    assert [(at, kind) for at, kind, _ in moves(result) if kind in {"draining", "crashed"}] == [
        (31.0, "draining"), (31.0, "draining"), (51.0, "crashed"), (51.0, "crashed"),
    ]  # fmt: skip
    assert [at for at, kind, _ in moves(result) if kind == "ordered"] == [31.0, 31.0]


@pytest.mark.parametrize("name", ["controller-restart", "pods-pending", "replica-crash", "spot-loss", "counter-reset"])
def test_a_fault_repeats_exactly(name: str) -> None:
    faults = (fault(name, LONG),)
    first, again = (play(contender(Script(1, 3, 2), initial_replicas=2), LONG, faults=faults) for _ in range(2))
    assert first.decisions == again.decisions
    assert first.events == again.events
    assert np.array_equal(first.outcomes.ended_ps, again.outcomes.ended_ps)


def test_faults_lie_around_the_busiest_ten_minutes() -> None:
    calm = steady(requests_per_s=0.1, seconds=7200.0, prompt_tokens=1, output_tokens=1)
    rush = [
        replace(a, at_s=a.at_s + 5000.0)
        for a in steady(requests_per_s=3.0, seconds=600.0, prompt_tokens=1, output_tokens=1)
    ]
    trace = trace_of((*calm, *rush))
    assert busiest_middle_s(trace) == pytest.approx(5300.0, abs=2.0)
    assert fault("metric-absent", trace).start_s == pytest.approx(4700.0, abs=2.0)
    unreadable = fault("prometheus-unreadable", trace)
    assert unreadable.covers(5300.0)
    assert unreadable.duration_s == 300.0
    assert fault("metric-nan", LOAD).start_s == 0.0  # a trace of a minute
    assert {f.name for f in faults_named("all", trace)} == set(FaultName)


def test_fault_refuses_a_name_it_does_not_know_and_a_time_that_is_none() -> None:
    with pytest.raises(ValueError, match=r"metric-absent, .* got 'metric-gone'"):
        fault("metric-gone", LOAD)
    with pytest.raises(ValueError, match="start_s must be finite"):
        fault("metric-absent", LOAD, start_s=math.nan)


def test_every_wanted_signal_is_seen_without_faults() -> None:
    found = signals(shown(until_s=15)[0])
    assert {path for path, s in found.items() if isinstance(s, Unknown)} == {
        f".slis[{place}].quantile_s" for place in range(3)
    }
    assert not [s for s in found.values() if isinstance(s, TrueZero) and s.sampled_at_s != 15.0]
