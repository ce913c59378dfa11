"""The observer on a real Prometheus that scrapes expositions of ours."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
from tests.observe.engines import Engine, Envoy, advancing, key_of, members, policy, ready
from tests.observe.exposition import Exposition

from tidegate.app import servers
from tidegate.app.servers import ScrapeJob
from tidegate.observe.observer import Observer, ObserveSettings
from tidegate.observe.prometheus import PrometheusConfig, PrometheusReader
from tidegate.observe.result import Answer, Failure
from tidegate.observe.selftest import ContractReport, Verdict, contract_report
from tidegate.terms.forecast import Quantity
from tidegate.terms.observation import Observation, PoolObservation, ServiceObservation, SliReading
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.signal import Known, Signal, TrueZero, Unknown, UnknownReason, Value

pytestmark = pytest.mark.timeout(180)  # the first test waits for windows to fill

SETTINGS = ObserveSettings(rate_window_s=4.0, scrape_interval_s=0.5, stale_after_s=2.0)
V054 = "neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8"
V033 = "meta-llama/Llama-3.1-8B-Instruct"
RAY = "neuralmagic/Meta-Llama-3.1-70B-Instruct-FP8"
QWEN = "Qwen/Qwen3-32B"
Seen = TypeVar("Seen")


@dataclass
class Fleet:
    """One Prometheus and everything it scrapes; engines by replica name."""

    prometheus_url: str = ""
    engines: dict[str, Engine] = field(default_factory=dict)
    envoy: Envoy = field(default_factory=lambda: Envoy(key_of("both")))
    stoppable: Exposition = field(default_factory=Exposition)
    policies: dict[str, ServicePolicy] = field(default_factory=dict)
    address: str = ""

    def observer(self) -> Observer:
        return Observer(PrometheusReader(PrometheusConfig(url=self.prometheus_url)), settings=SETTINGS)

    def look(self, service: str, *names: str, age_s: float = 1000.0) -> ServiceObservation:
        now_s = time.time()
        joined = members(*ready(service, *names, now_s=now_s, age_s=age_s), now_s=now_s)
        seen: Observation = self.observer().observe([self.policies[service]], joined, now_s)
        return seen.services[0]

    def pool(self, service: str, *names: str) -> PoolObservation:
        return self.look(service, *names).pools[0]

    def report(self, *services: str) -> ContractReport:
        reader = PrometheusReader(PrometheusConfig(url=self.prometheus_url))
        chosen = [self.policies[s] for s in services]
        return contract_report(reader, chosen, None, time.time(), settings=SETTINGS)


def until(look: Callable[[], Seen], good: Callable[[Seen], bool]) -> Seen:
    """Return the first look that is good, or the last of those taken in 20 s."""
    deadline_s = time.monotonic() + 20
    while True:
        seen = look()
        if good(seen) or time.monotonic() > deadline_s:
            return seen
        time.sleep(0.2)


def known(signal: Signal) -> float:
    assert isinstance(signal, Known), signal
    return signal.number


def why(signal: Signal) -> UnknownReason:
    assert isinstance(signal, Unknown), signal
    return signal.reason


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    one = Fleet()
    placed = {
        "both": ("both-1", "both-2"),
        "switch": ("switch-1",),
        "vanish": ("vanish-1",),
        "percent": ("percent-1",),
        "idle": ("idle-1",),
        "wrong": ("wrong-1",),
    }
    one.engines = {name: Engine() for names in placed.values() for name in names}
    one.engines["both-2"] = Engine(prefix="vllm_", total="")
    one.engines["percent-1"].kv = 35.0
    one.engines["idle-1"].requests_per_s = 0.0
    one.engines["idle-1"].running = 0.0
    one.engines["wrong-1"].model = "acme/other"
    dumps = {
        "dump054": (advancing("vllm_0.5.4.txt"), V054, "vllm"),
        "dump033": (advancing("synth_vllm_0.33.0.txt"), V033, "vllm"),
        "dump033u": (advancing("synth_vllm_0.33.0.txt", underscore="vllm"), V033, "vllm"),
        "dumpray": (advancing("vllm_0.6_ray_serve.txt"), RAY, "vllm"),
        "dump043": (advancing("sglang_0.4.3.txt"), V033, "sglang"),
        "dump0523": (advancing("synth_sglang_0.5.23_scheduler.txt"), QWEN, "sglang"),
    }
    one.policies = {service: policy(service) for service in (*placed, "gone", "bare", "nowhere")}
    one.policies |= {service: policy(service, model, engine) for service, (_, model, engine) in dumps.items()}
    with contextlib.ExitStack() as running:
        pages = running.enter_context(Exposition())
        running.enter_context(one.stoppable)
        one.address = pages.address
        jobs = [_job(pages, service, name) for service, names in placed.items() for name in names]
        jobs += [_job(pages, service, f"{service}-1") for service in dumps]
        jobs.append(_job(one.stoppable, "gone", "gone-1"))
        jobs.append(ScrapeJob(name="bare", targets=(pages.address,), metrics_path="/bare"))
        jobs.append(
            ScrapeJob(name="twin", targets=(pages.address,), metrics_path="/both-1", labels=_labels("both", "both-1"))
        )
        jobs.append(ScrapeJob(name="envoy", targets=(pages.address,), metrics_path="/envoy"))
        pages.pages = {f"/{name}": engine.page for name, engine in one.engines.items()}
        pages.pages |= {f"/{service}-1": page for service, (page, _, _) in dumps.items()}
        pages.pages |= {"/envoy": one.envoy.page, "/bare": Engine().page}
        one.stoppable.pages = {"/gone-1": Engine().page}
        port = servers.free_port()
        folder: Path = tmp_path_factory.mktemp("prometheus")
        server = servers.start_prometheus(folder, port=port, scrape_interval_s=0.5, jobs=jobs)
        running.enter_context(server)
        one.prometheus_url = f"http://127.0.0.1:{port}"
        scraped = [(s, n) for s, names in placed.items() if s != "wrong" for n in names] + [("gone", "gone-1")]
        scraped += [(service, f"{service}-1") for service in dumps if service not in {"dumpray", "dump0523"}]
        for service, name in scraped:
            until(lambda s=service, n=name: one.pool(s, n).finished_per_s, lambda f: isinstance(f, Known))  # type: ignore[misc]
        until(lambda: one.look("both", "both-1"), lambda s: isinstance(s.arrivals_per_s, Value))
        yield one


def _labels(service: str, replica: str) -> dict[str, str]:
    return {"service": service, "pool": "main", "replica": replica}


def _job(pages: Exposition, service: str, replica: str) -> ScrapeJob:
    return ScrapeJob(
        name=replica, targets=(pages.address,), metrics_path=f"/{replica}", labels=_labels(service, replica)
    )


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
    assert "0.9500..1.0000" in reading.source
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
