"""What a law is shown: only samples, only what it asks for, and unknown where nothing can be known."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from tests.policies import pool_policy
from tests.sim.puppet import Puppet, S, puppet, sight, view
from tests.sim.stage import KEY, POLICY, PROFILE, WANTS, number, pool_setup

from tidegate.sim.policies import Wants
from tidegate.sim.sight import Sight
from tidegate.terms.fleet import PoolKey, ReplicaState, Role
from tidegate.terms.observation import Observation, ServiceObservation
from tidegate.terms.signal import Signal, TrueZero, Unknown, UnknownReason, Value
from tidegate.terms.slo import Indicator, Slo

PLAIN = Wants(period_s=5.0, scrape_interval_s=1.0, rate_window_s=4.0)


def scraped(fleet: Puppet, seen: Sight, seconds: int, step: Callable[[int], None] = lambda _: None) -> None:
    """Scrape every second up to and at `seconds`; `step` sets the puppet before each."""
    for second in range(seconds + 1):
        fleet.now_ps = second * S
        step(second)
        seen.scrape()


def service(seen: Sight, now_s: float) -> ServiceObservation:
    return seen.observe(now_s, {}).services[0]


def reason(signal: Signal) -> UnknownReason:
    assert isinstance(signal, Unknown), signal
    return signal.reason


def every_signal(obs: Observation) -> list[Signal]:
    found: list[Signal] = []

    def walk(term: object) -> None:
        if isinstance(term, Value | TrueZero | Unknown):
            found.append(term)
        elif isinstance(term, tuple):
            for one in term:
                walk(one)
        elif hasattr(term, "__dataclass_fields__"):
            for name in term.__dataclass_fields__:
                walk(getattr(term, name))

    walk(obs)
    return found


def test_before_the_first_scrape_every_signal_is_unknown() -> None:
    signals = every_signal(sight(puppet(), replace(WANTS, replica_rates=True, engine_detail=True)).observe(0.0, {}))
    assert len(signals) > 20
    assert {type(s) for s in signals} == {Unknown}


def test_rates_are_over_the_window_and_unknown_before_it_was_scraped() -> None:
    fleet = puppet()
    seen = sight(fleet, PLAIN)

    def step(second: int) -> None:
        fleet.counters = {"arrived": second**2, "refused": second, "prompt_tokens": 100 * second**2}
        fleet.rows = {0: {"finished": 3 * second}}

    scraped(fleet, seen, 3, step)
    early = service(seen, 3.0)
    assert reason(early.arrivals_per_s) is UnknownReason.TOO_YOUNG
    assert reason(early.pools[0].finished_per_s) is UnknownReason.TOO_YOUNG
    assert reason(early.prompt_tokens_mean) is UnknownReason.NOT_A_NUMBER
    for second in range(4, 11):
        fleet.now_ps = second * S
        step(second)
        seen.scrape()
    late = service(seen, 10.5)
    assert number(late.arrivals_per_s) == (10**2 - 6**2) / 4.0
    assert late.arrivals_per_s.sampled_at_s == 10.0
    assert number(late.failed_per_s) == 1.0
    assert number(late.prompt_tokens_mean) == 100.0
    assert number(late.pools[0].finished_per_s) == 3.0


def test_what_is_not_asked_for_is_not_worked_out() -> None:
    fleet = puppet()
    seen = sight(fleet, PLAIN)
    scraped(fleet, seen, 5)
    shown = service(seen, 5.0)
    assert not shown.slis
    assert not shown.latencies
    one = shown.pools[0].replicas[0]
    assert (one.replica.name, one.replica.state, one.engine) == ("r0", ReplicaState.READY, None)
    assert isinstance(one.running_requests, Unknown)
    assert (one.running_requests.reason, one.running_requests.detail) == (UnknownReason.NOT_OFFERED, "not asked for")
    assert service(seen, 6.0).pools[0].replicas[0] is one  # built once
    assert isinstance(shown.pools[0].running_requests, TrueZero)  # sums are for everybody


def test_a_law_that_reads_no_rates_is_shown_none() -> None:
    fleet = puppet()
    fleet.rows = {0: {"running": 3}}
    seen = sight(fleet, replace(PLAIN, rates=False))
    scraped(fleet, seen, 9)
    shown = service(seen, 9.0)
    rates = (shown.arrivals_per_s, shown.prompt_tokens_mean, shown.failed_per_s, shown.pools[0].finished_per_s)
    assert {reason(s) for s in rates} == {UnknownReason.NOT_OFFERED}
    assert number(shown.pools[0].running_requests) == 3.0


def test_replica_signals_follow_each_engine() -> None:
    fleet = puppet()
    fleet.views = [view(0), view(1, state=ReplicaState.DRAINING), view(2, state=ReplicaState.STARTING)]
    seen = sight(fleet, replace(PLAIN, replica_rates=True, engine_detail=True))
    blocks = PROFILE.kv_blocks

    def step(second: int) -> None:
        busy = {"running": 3, "waiting": 2, "kv_used_blocks": blocks // 2, "output_done_tokens": 40 * second}
        detail = {"waiting_prompt_tokens": 70, "context_tokens": 900}
        fleet.rows = {0: busy | detail, 1: {"running": 1, "preemptions": second}}

    scraped(fleet, seen, 6, step)
    pool = service(seen, 6.0).pools[0]
    first, draining, starting = pool.replicas
    assert [number(s) for s in (first.running_requests, first.waiting_requests)] == [3.0, 2.0]
    assert number(first.kv_used_ratio) == blocks // 2 / blocks
    assert number(first.output_tokens_per_s) == 40.0
    assert first.engine is not None
    assert number(first.engine.kv_capacity_tokens) == blocks * PROFILE.block_tokens
    assert number(first.engine.waiting_prompt_tokens) == 70.0
    assert number(first.engine.context_tokens) == 900.0
    assert number(draining.preemptions_per_s) == 1.0
    assert reason(starting.running_requests) is UnknownReason.ABSENT
    assert number(pool.running_requests) == 3.0  # of ready replicas only
    assert pool.running_requests.coverage_ratio == 1.0


def test_a_replica_too_young_for_a_rate_lowers_the_coverage_of_rates_only() -> None:
    fleet = puppet()
    fleet.views = [view(0), view(1)]
    seen = sight(fleet, replace(PLAIN, replica_rates=True))

    def step(second: int) -> None:
        fleet.rows = {0: {"finished": second}} | ({1: {"running": 2, "finished": second}} if second > 4 else {})

    scraped(fleet, seen, 6, step)
    pool = service(seen, 6.0).pools[0]
    assert reason(pool.replicas[1].finished_per_s) is UnknownReason.TOO_YOUNG
    assert (number(pool.finished_per_s), pool.finished_per_s.coverage_ratio) == (1.0, 0.5)
    assert (number(pool.running_requests), pool.running_requests.coverage_ratio) == (2.0, 1.0)


def test_a_pool_without_a_ready_replica_reports_nothing() -> None:
    fleet = puppet()
    fleet.views, fleet.rows = [view(0, state=ReplicaState.STARTING)], {}
    seen = sight(fleet, PLAIN)
    scraped(fleet, seen, 5)
    pool = service(seen, 5.0).pools[0]
    assert reason(pool.running_requests) is reason(pool.finished_per_s) is UnknownReason.ABSENT
    assert isinstance(pool.gateway_in_flight_requests, TrueZero)


def test_slis_are_the_shares_of_the_window_at_the_threshold() -> None:
    fleet = puppet()
    seen = sight(fleet, replace(PLAIN, slis=True))
    at = fleet.setup.ttft_bounds_ps.index(round(0.9 * S))
    assert fleet.setup.tpot_bounds_ps.count(80 * 10**9) == 1

    def step(second: int) -> None:
        counts = [0] * (len(fleet.setup.ttft_bounds_ps) + 1)
        counts[at], counts[at + 1] = 3 * second, second if second <= 4 else 4 + 2 * (second - 4)
        fleet.counters = {"ttft_counts": counts, "answered": 9 * second, "refused": second}

    scraped(fleet, seen, 10, step)
    ttft, tpot, available = service(seen, 10.0).slis
    # From 6 to 10: 12 within 0.9 s and 8 in the bucket up to 1.0 s.
    assert (number(ttft.attained_ratio), ttft.threshold_s) == (0.6, 0.9)
    assert reason(ttft.quantile_s) is UnknownReason.NOT_OFFERED
    assert reason(tpot.attained_ratio) is UnknownReason.NOT_A_NUMBER
    assert number(available.attained_ratio) == 0.9


def test_latencies_have_each_their_own_window_and_take_what_there_is_of_it() -> None:
    wanted = ((Indicator.E2E, 0.5, 2.0), (Indicator.E2E, 0.5, 60.0), (Indicator.ITL, 0.5, 60.0))
    fleet = puppet()
    seen = sight(fleet, replace(PLAIN, latencies=wanted))
    bounds = fleet.setup.e2e_bounds_ps

    def step(second: int) -> None:
        counts = np.zeros(len(bounds) + 1, dtype=np.int64)
        counts[0] += 2 * min(second, 8)
        counts[-1] += 100 * max(0, second - 8)
        fleet.counters = {"e2e_counts": counts}

    scraped(fleet, seen, 10, step)
    short, long, itl = service(seen, 10.0).latencies
    assert isinstance(short.seconds, Value)
    assert (short.seconds.value, short.seconds.at_least, short.window_s) == (bounds[-1] / S, True, 2.0)
    assert number(long.seconds) == bounds[-1] / S
    assert reason(itl.seconds) is UnknownReason.NOT_A_NUMBER
    scraped_again = sight(fleet, replace(PLAIN, latencies=wanted))
    scraped(fleet, scraped_again, 8, step)
    assert number(service(scraped_again, 8.0).latencies[0].seconds) == bounds[0] / S / 2.0


def test_scrape_delay_makes_the_newest_sample_older() -> None:
    fleet = puppet()
    seen = sight(fleet, PLAIN, scrape_delay_s=3.0)

    def step(second: int) -> None:
        fleet.rows = {0: {"running": second}}

    scraped(fleet, seen, 2, step)
    assert reason(service(seen, 2.0).pools[0].running_requests) is UnknownReason.ABSENT
    scraped_late = sight(fleet, PLAIN, scrape_delay_s=3.0)
    scraped(fleet, scraped_late, 10, step)
    running = service(scraped_late, 10.0).pools[0].running_requests
    assert (number(running), running.sampled_at_s) == (7.0, 7.0)


def test_prefill_and_decode_pools_are_seen_apart_in_one_service() -> None:
    prefill, decode = KEY, PoolKey(service="chat", pool="decode")
    policy = replace(POLICY, pools=(pool_policy(prefill, role=Role.PREFILL), pool_policy(decode, role=Role.DECODE)))
    pools = (pool_setup(prefill, role=Role.PREFILL), pool_setup(decode, role=Role.DECODE))
    fleet = puppet(*pools, policy=policy)
    fleet.views = [view(0), view(1, pool=1), view(2, pool=1)]
    fleet.rows = {0: {"live": 4, "waiting": 4}, 1: {"live": 2, "running": 2}, 2: {"live": 3, "running": 3}}
    fleet.counters = {"pending_prompt_tokens": 1234}
    seen = sight(fleet, PLAIN, policy=policy)
    scraped(fleet, seen, 5)
    shown = service(seen, 5.0)
    assert shown.pending_prompt_tokens is not None
    assert number(shown.pending_prompt_tokens) == 1234.0
    first, second = shown.pools
    assert [len(p.replicas) for p in shown.pools] == [1, 2]
    assert [number(p.gateway_in_flight_requests) for p in shown.pools] == [4.0, 5.0]
    assert (number(first.waiting_requests), number(second.running_requests)) == (4.0, 5.0)


def test_replicas_without_a_node_are_shown_as_starting() -> None:
    seen = sight(puppet(), replace(PLAIN, replicas=True))
    obs = seen.observe(9.0, {KEY: (7.0, 8.0)})
    pending = [r.replica for r in obs.services[0].pools[0].replicas if r.replica.state is ReplicaState.STARTING]
    assert [(r.name, r.ordered_at_s) for r in pending] == [("pending0", 7.0), ("pending1", 8.0)]


def test_cold_starts_are_those_of_replicas_that_were_ordered_later() -> None:
    fleet = puppet()
    fleet.views = [view(0), replace(view(1), ordered_ps=5 * S, ready_ps=17 * S)]
    seen = sight(fleet, PLAIN)
    seen.observe(20.0, {})
    fleet.views = [view(0)]  # what is gone still was a start
    seen.observe(25.0, {})
    assert seen.membership.cold_starts(KEY) == (12.0,)


def test_thresholds_of_every_objective_are_bounds_of_their_histogram() -> None:
    slos = (
        Slo(name="e2e", indicator=Indicator.E2E, objective_ratio=0.9, threshold_s=7.7, window_s=60.0),
        Slo(name="itl", indicator=Indicator.ITL, objective_ratio=0.9, threshold_s=0.033, window_s=60.0),
    )
    setup = puppet(policy=replace(POLICY, slos=slos)).setup
    assert round(7.7 * S) in setup.e2e_bounds_ps
    assert 33 * 10**9 in setup.tpot_bounds_ps
    assert round(7.7 * S) not in setup.ttft_bounds_ps
