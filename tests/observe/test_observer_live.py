"""The observer on a real Prometheus that scrapes expositions of ours."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.observe.engines import members, policy, ready
from tests.observe.live_fleet import SETTINGS, Fleet, known, until, why

from tidegate.app import servers
from tidegate.observe.observer import Observer, ObserveSettings
from tidegate.observe.prometheus import PrometheusConfig, PrometheusReader
from tidegate.observe.result import Answer, Failure
from tidegate.observe.selftest import Verdict, contract_report
from tidegate.terms.forecast import Quantity
from tidegate.terms.observation import PoolObservation, ServiceObservation, SliReading
from tidegate.terms.signal import Known, Signal, TrueZero, Unknown, UnknownReason

pytestmark = pytest.mark.timeout(180)  # the first test waits for windows to fill


def test_pool_sums_replicas_of_both_spellings_and_counts_a_twin_scrape_once(fleet: Fleet) -> None:
    pool = fleet.pool("both", "both-1", "both-2")
    assert known(pool.running_requests) == 8.0
    assert isinstance(pool.waiting_requests, TrueZero)
    assert known(pool.finished_per_s) == pytest.approx(4.0, rel=0.15)
    assert known(pool.output_tokens_per_s) == pytest.approx(400.0, rel=0.15)
    assert pool.running_requests.coverage_ratio == 1.0
    assert pool.violations == ()
    one, two = pool.replicas
    assert (one.finished_per_s.source, two.finished_per_s.source) == (
        "vllm:request_success_total",
        "vllm_request_success",
    )
    assert isinstance(one.preemptions_per_s, TrueZero)


def test_series_of_replicas_that_are_no_members_are_left_out(fleet: Fleet) -> None:
    pool = fleet.pool("both", "both-2")
    assert known(pool.running_requests) == 4.0
    assert [r.replica.name for r in pool.replicas] == ["both-2"]


def test_member_without_series_is_absent_and_lowers_coverage(fleet: Fleet) -> None:
    pool = fleet.pool("both", "both-1", "both-2", "both-3")
    assert why(pool.replicas[2].running_requests) is UnknownReason.ABSENT
    assert known(pool.running_requests) == 8.0
    assert pool.running_requests.coverage_ratio == pytest.approx(2 / 3)
    assert pool.violations == ("contract: pool both/main: scrape target: Prometheus has no target for replica both-3",)


def test_member_that_has_just_become_ready_is_too_young_for_rates_only(fleet: Fleet) -> None:
    (replica,) = fleet.look("both", "both-1", age_s=1.0).pools[0].replicas
    assert known(replica.running_requests) == 4.0
    assert why(replica.finished_per_s) is UnknownReason.TOO_YOUNG


def test_member_that_has_just_become_ready_and_is_not_scraped_yet_violates_nothing(fleet: Fleet) -> None:
    pool = fleet.look("both", "both-9", age_s=1.0).pools[0]
    assert why(pool.replicas[0].running_requests) is UnknownReason.TOO_YOUNG
    assert pool.violations == ()


def test_service_reads_arrivals_less_retries_failures_and_lengths(fleet: Fleet) -> None:
    service = fleet.look("both", "both-1", "both-2")
    assert known(service.arrivals_per_s) == pytest.approx(4.0, rel=0.15)
    assert known(service.failed_per_s) == pytest.approx(1.0, rel=0.15)
    assert known(service.prompt_tokens_mean) == pytest.approx(500.0, rel=0.01)
    assert known(service.output_tokens_mean) == pytest.approx(100.0, rel=0.01)
    assert known(service.pools[0].gateway_in_flight_requests) == 8.0
    assert isinstance(service.pools[0].gateway_pending_requests, TrueZero)


def sli(service: ServiceObservation, name: str) -> SliReading:
    return next(s for s in service.slis if s.slo == name)


def test_sli_of_ttft_comes_from_the_gateway_at_its_own_bound(fleet: Fleet) -> None:
    reading = sli(fleet.look("both", "both-1", "both-2"), "ttft")
    assert known(reading.attained_ratio) == pytest.approx(0.95, abs=0.001)
    assert known(reading.quantile_s) == pytest.approx(1.0, rel=0.01)
    assert reading.threshold_s == pytest.approx(1.0)
    assert reading.source == "gateway: envoy_tg_ttft; 1 s is a bucket bound"


def test_sli_of_tpot_comes_from_the_engines_of_both_spellings_snapped_to_the_stricter_bound(fleet: Fleet) -> None:
    reading = sli(fleet.look("both", "both-1", "both-2"), "tpot")
    assert known(reading.attained_ratio) == pytest.approx(0.95, abs=0.001)
    assert reading.threshold_s == 0.1
    assert reading.source.startswith(
        "engine: vllm:request_time_per_output_token_seconds, vllm_request_time_per_output_token_seconds; "
        "envoy_tg_tpot has no series of both; 0.15 s is no bucket bound, counted at 0.1 s"
    )
    assert "the true share is 95.00 to 100.00 %" in reading.source
    assert reading.attained_ratio.coverage_ratio == 1.0


def test_sli_of_ttft_falls_back_to_the_engines_and_says_why(fleet: Fleet) -> None:
    reading = sli(fleet.look("percent", "percent-1"), "ttft")
    assert reading.source.startswith("engine: vllm:time_to_first_token_seconds; envoy_tg_ttft has no series of percent")
    # The last finite bound is 0.2 s: 1 s lies beyond it.
    assert reading.threshold_s == 0.2


def test_sli_of_availability_counts_server_errors(fleet: Fleet) -> None:
    reading = sli(fleet.look("both", "both-1", "both-2"), "available")
    assert known(reading.attained_ratio) == pytest.approx(0.75, abs=0.02)


def test_idle_engine_is_a_true_zero_and_its_means_are_unknown(fleet: Fleet) -> None:
    service = fleet.look("idle", "idle-1")
    pool = service.pools[0]
    assert isinstance(pool.running_requests, TrueZero)
    assert isinstance(pool.finished_per_s, TrueZero)
    assert why(service.prompt_tokens_mean) is UnknownReason.NOT_A_NUMBER
    assert why(service.output_tokens_mean) is UnknownReason.NOT_A_NUMBER
    reading = sli(service, "tpot")
    assert isinstance(reading.attained_ratio, Unknown)
    assert reading.attained_ratio.reason is UnknownReason.NOT_A_NUMBER
    assert reading.attained_ratio.detail == "no request finished"


def test_gateway_without_the_cluster_is_absent_not_zero(fleet: Fleet) -> None:
    service = fleet.look("idle", "idle-1")
    assert why(service.arrivals_per_s) is UnknownReason.ABSENT
    assert why(service.failed_per_s) is UnknownReason.ABSENT
    assert why(service.pools[0].gateway_in_flight_requests) is UnknownReason.ABSENT


def test_kv_ratio_that_is_a_percent_is_out_of_range(fleet: Fleet) -> None:
    (replica,) = fleet.pool("percent", "percent-1").replicas
    assert isinstance(replica.kv_used_ratio, Unknown)
    assert replica.kv_used_ratio.reason is UnknownReason.OUT_OF_RANGE
    assert "a percent?" in replica.kv_used_ratio.detail


def test_series_of_another_model_are_named_and_not_used(fleet: Fleet) -> None:
    pool = fleet.pool("wrong", "wrong-1")
    assert why(pool.running_requests) is UnknownReason.CONTRACT_VIOLATION
    assert "model_name is acme/other on replica wrong-1, the policy says acme/chat-8b" in pool.violations[0]


def test_target_without_our_labels_is_joined_by_its_address(fleet: Fleet) -> None:
    now_s = time.time()
    joined = members(*ready("bare", "bare-1", now_s=now_s, address=fleet.address), now_s=now_s)
    (service,) = fleet.observer().observe([fleet.policies["bare"]], joined, now_s).services
    assert known(service.pools[0].running_requests) == 4.0


def test_spelling_that_changes_in_mid_window_neither_hides_nor_doubles_the_load(fleet: Fleet) -> None:
    before = fleet.pool("switch", "switch-1")
    assert known(before.finished_per_s) == pytest.approx(2.0, rel=0.15)
    fleet.engines["switch-1"].prefix = "vllm_"
    fleet.engines["switch-1"].total = ""
    seen = []

    def look() -> PoolObservation:
        seen.append(fleet.pool("switch", "switch-1"))
        return seen[-1]

    last = until(look, lambda p: p.finished_per_s.source == "vllm_request_success" and len(seen) > 25)
    assert last.finished_per_s.source == "vllm_request_success"
    for pool in seen:
        assert known(pool.finished_per_s) == pytest.approx(2.0, rel=0.2)
        assert known(pool.running_requests) == 4.0
        assert pool.violations == ()


def test_family_that_vanishes_while_the_target_is_up_is_a_named_violation(fleet: Fleet) -> None:
    assert known(fleet.pool("vanish", "vanish-1").replicas[0].kv_used_ratio) == 0.25
    fleet.engines["vanish-1"].kv_name = "cache_fill"
    pool = until(lambda: fleet.pool("vanish", "vanish-1"), lambda p: bool(p.violations))
    assert why(pool.replicas[0].kv_used_ratio) in {UnknownReason.STALE, UnknownReason.ABSENT}
    (violation,) = pool.violations
    assert violation == (
        "contract: pool vanish/main: kv_used_ratio: none of vllm:kv_cache_usage_perc, vllm_kv_cache_usage_perc, "
        "vllm:gpu_cache_usage_perc, vllm_gpu_cache_usage_perc matches a live series of replica vanish-1 (target is up)"
    )
    assert known(pool.running_requests) == 4.0


def test_target_that_stops_turns_stale_and_then_absent_and_never_zero(fleet: Fleet) -> None:
    assert known(until(lambda: fleet.pool("gone", "gone-1"), lambda _: True).running_requests) == 4.0
    fleet.stoppable.stop()
    seen: list[Signal] = []

    def look() -> Signal:
        seen.append(fleet.pool("gone", "gone-1").running_requests)
        return seen[-1]

    last = until(look, lambda s: isinstance(s, Unknown) and s.reason is UnknownReason.ABSENT)
    assert why(last) is UnknownReason.ABSENT
    assert UnknownReason.STALE in {s.reason for s in seen if isinstance(s, Unknown)}
    assert {s.number for s in seen if isinstance(s, Known)} <= {4.0}
    assert "target of replica gone-1 is down" in fleet.pool("gone", "gone-1").violations[0]


@pytest.mark.parametrize(
    ("service", "running", "waiting", "kv_alias"),
    [
        ("dump054", 3.0, 2.0, "vllm:gpu_cache_usage_perc"),
        ("dump033", 20.0, 9.0, "vllm:kv_cache_usage_perc"),
        ("dump033u", 20.0, 9.0, "vllm_kv_cache_usage_perc"),
        ("dumpray", 0.0, 0.0, "ray_vllm:gpu_cache_usage_perc"),
        # 12 queued and 36 waiting for a grammar; priority="" is the total of 2 running.
        ("dump0523", 2.0, 48.0, "sglang:token_usage"),
    ],
)
def test_recorded_dump_is_understood(fleet: Fleet, service: str, running: float, waiting: float, kv_alias: str) -> None:
    pool = fleet.pool(service, f"{service}-1")
    assert known(pool.running_requests) == running
    assert known(pool.waiting_requests) == waiting
    assert pool.replicas[0].kv_used_ratio.source == kv_alias


@pytest.mark.parametrize("service", ["dump054", "dump033", "dump033u"])
def test_recorded_vllm_dump_breaks_no_contract(fleet: Fleet, service: str) -> None:
    pool = fleet.pool(service, f"{service}-1")
    assert pool.violations == ()
    assert known(pool.finished_per_s) > 0
    assert known(fleet.look(service, f"{service}-1").prompt_tokens_mean) > 0


def test_recorded_sglang_dump_counts_requests_by_its_latency_histogram(fleet: Fleet) -> None:
    (replica,) = fleet.pool("dump043", "dump043-1").replicas
    assert replica.finished_per_s.source == "sglang:e2e_request_latency_seconds_count"
    assert known(replica.finished_per_s) > 0
    assert why(replica.preemptions_per_s) is UnknownReason.NOT_OFFERED


def test_histories_hold_arrivals_and_tokens_on_the_grid_without_a_ramp(fleet: Fleet) -> None:
    both = [fleet.policies["both"]]
    read = until(
        lambda: fleet.observer().histories(both, time.time(), 30.0, 1.0),
        lambda hs: min((len(h.samples) for h in hs), default=0) >= 3,
    )
    found = {h.quantity: h for h in read}
    assert set(found) == {Quantity.REQUESTS_PER_S, Quantity.PROMPT_TOKENS_PER_S, Quantity.OUTPUT_TOKENS_PER_S}
    for history in found.values():
        assert history.samples
        assert all(at_s % 1.0 == 0.0 for at_s, _ in history.samples)
    for _, number in found[Quantity.REQUESTS_PER_S].samples:
        assert number == pytest.approx(4.0, rel=0.12)


def test_report_is_clean_for_a_sound_fleet(fleet: Fleet) -> None:
    report = fleet.report("both")
    assert report.ok
    by_name = {c.quantity: c for c in report.checks}
    assert by_name["kv_used_ratio"].aliases == ("vllm:kv_cache_usage_perc", "vllm_kv_cache_usage_perc")
    assert (by_name["kv_used_ratio"].covered, by_name["kv_used_ratio"].expected) == (2, 2)
    assert by_name["tpot"].verdict is Verdict.OK
    assert "itl" not in by_name  # no objective names it
    assert by_name["arrivals (gateway)"].verdict is Verdict.OK
    assert any("scraped more than once: both-1" in note for note in report.notes)


def test_report_names_missing_targets_and_says_what_is_there(fleet: Fleet) -> None:
    report = fleet.report("nowhere")
    assert not report.ok
    (targets, arrivals) = report.violations
    assert 'no scrape target is labelled service="nowhere", pool="main"' in targets
    assert "vllm series exist with" in targets
    assert "no envoy_cluster_upstream_rq_total of cluster nowhere/main (clusters there: both/main)" in arrivals


def test_report_names_the_replicas_when_scrapes_are_slower_than_believed(fleet: Fleet) -> None:
    reader = PrometheusReader(PrometheusConfig(url=fleet.prometheus_url))
    fast = ObserveSettings(rate_window_s=4.0, scrape_interval_s=0.1, stale_after_s=2.0)
    report = contract_report(reader, [fleet.policies["both"]], None, time.time(), settings=fast)
    assert "replica both-1, both-2 is scraped every 0.5 s, not every 0.1 s as set" in report.violations[0]


def test_prometheus_that_stops_is_unreachable_then_left_alone_and_found_again(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    port = free_port()
    clock_s = [0.0]
    reader = PrometheusReader(
        PrometheusConfig(url=f"http://127.0.0.1:{port}", max_attempts=1), monotonic_s=lambda: clock_s[0]
    )
    observer = Observer(reader, settings=SETTINGS)
    now_s = time.time()
    joined = members(*ready("both", "both-1", now_s=now_s), now_s=now_s)

    def look() -> ServiceObservation:
        return observer.observe([policy("both")], joined, time.time()).services[0]

    def start() -> servers.Server:
        return servers.start_prometheus(tmp_path, port=port, scrape_interval_s=0.5, jobs=())

    with start():
        assert why(look().arrivals_per_s) is UnknownReason.ABSENT
    # A look gives up after its first failure, so three looks are three failures.
    for _ in range(3):
        service = look()
        assert why(service.arrivals_per_s) is UnknownReason.UNREACHABLE
        assert why(service.pools[0].running_requests) is UnknownReason.UNREACHABLE
        assert service.pools[0].violations == ()
    assert why(look().pools[0].waiting_requests) is UnknownReason.BREAKER_OPEN
    assert observer.histories([policy("both")], time.time(), 30.0, 1.0) == ()
    with start():
        clock_s[0] += 60.0
        assert why(look().arrivals_per_s) is UnknownReason.ABSENT


def test_range_of_more_points_than_prometheus_allows_comes_whole_and_without_doubles(fleet: Fleet) -> None:
    reader = PrometheusReader(PrometheusConfig(url=fleet.prometheus_url))
    end_s = float(int(time.time()))
    result = reader.range_("vector(1)", end_s - 6_000.0, end_s, 0.5)
    assert isinstance(result, Answer)
    (series,) = result.series
    assert [at_s for at_s, _ in series.samples] == [end_s - 6_000.0 + 0.5 * i for i in range(12_001)]


def test_range_that_fails_in_part_fails_whole(fleet: Fleet) -> None:
    reader = PrometheusReader(PrometheusConfig(url=fleet.prometheus_url))
    result = reader.range_("up[", time.time() - 6_000.0, time.time(), 0.5)
    assert isinstance(result, Failure)
    assert result.reason is UnknownReason.REJECTED
