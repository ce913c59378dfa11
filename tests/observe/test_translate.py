"""Whatever comes in, what is missing never goes out as a number."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.observe.engines import MODEL, key_of, members, policy, ready

from tidegate.observe.gateway_signals import GatewaySeries, Watch, arrange
from tidegate.observe.join import NO_SERIES, ReplicaKey, ReplicaSeries, join
from tidegate.observe.result import Answer, Failure, Series
from tidegate.observe.settings import ObserveSettings
from tidegate.observe.translate import Sighting, translate
from tidegate.terms.errors import BadInputError
from tidegate.terms.fleet import Replica, ReplicaState
from tidegate.terms.observation import Observation, ServiceObservation
from tidegate.terms.signal import Known, Signal, TrueZero, Unknown, UnknownReason

NOW_S = 10_000.0
SETTINGS = ObserveSettings(rate_window_s=20.0, scrape_interval_s=5.0, stale_after_s=15.0)
WATCH = Watch(settings=SETTINGS, now_s=NOW_S)
POLICY = policy("chat")
LABELS = {"service": "chat", "pool": "main", "replica": "r-1", "model_name": MODEL, "job": "engines", "instance": "a:1"}
GAUGES = {
    "running_requests": "vllm:num_requests_running",
    "waiting_requests": "vllm:num_requests_waiting",
    "kv_used_ratio": "vllm:kv_cache_usage_perc",
}
COUNTERS = {
    "finished_per_s": "vllm:request_success_total",
    "prompt_tokens_per_s": "vllm:prompt_tokens_total",
    "output_tokens_per_s": "vllm:generation_tokens_total",
    "preemptions_per_s": "vllm:num_preemptions_total",
}


def series(name: str, *numbers: float, newest_at_s: float = NOW_S - 1.0, **labels: str) -> Series:
    times = [newest_at_s - 5.0 * i for i in range(len(numbers))][::-1]
    return Series(labels={"__name__": name, **LABELS, **labels}, samples=tuple(zip(times, numbers, strict=True)))


def observed(*found: Series, replicas: tuple[Replica, ...] | None = None, partial: bool = False) -> ServiceObservation:
    members_ = ready("chat", "r-1", now_s=NOW_S) if replicas is None else replicas
    joined = members(*members_, now_s=NOW_S)
    return _translated(join(found, joined, SETTINGS), GatewaySeries(), members_, partial=partial).services[0]


def _translated(
    engines: dict[ReplicaKey, ReplicaSeries] | Failure,
    gateway: GatewaySeries | Failure,
    replicas: tuple[Replica, ...],
    *,
    partial: bool = False,
) -> Observation:
    seen = Sighting(engines=engines, engines_partial=partial, gateway=gateway)
    return translate(seen, [POLICY], members(*replicas, now_s=NOW_S), settings=SETTINGS, now_s=NOW_S)


def signals(service: ServiceObservation) -> dict[str, Signal]:
    """Return every signal of an observation, by where it is."""
    found: dict[str, Signal] = {}
    for name in ("arrivals_per_s", "prompt_tokens_mean", "output_tokens_mean", "failed_per_s"):
        found[name] = getattr(service, name)
    for pool in service.pools:
        for name in ("running_requests", "waiting_requests", "finished_per_s", "output_tokens_per_s"):
            found[f"pool.{name}"] = getattr(pool, name)
        for name in ("gateway_in_flight_requests", "gateway_pending_requests"):
            found[f"pool.{name}"] = getattr(pool, name)
        for replica in pool.replicas:
            for name in (*GAUGES, *COUNTERS):
                found[f"{replica.replica.name}.{name}"] = getattr(replica, name)
    for sli in service.slis:
        found[f"{sli.slo}.attained"] = sli.attained_ratio
        found[f"{sli.slo}.quantile"] = sli.quantile_s
    return found


def test_nothing_at_all_is_unknown_everywhere() -> None:
    assert {type(s) for s in signals(observed()).values()} == {Unknown}


@settings(deadline=None)
@given(reason=st.sampled_from(list(UnknownReason)), detail=st.text(max_size=20))
def test_failure_of_prometheus_is_its_reason_everywhere(reason: UnknownReason, detail: str) -> None:
    failure = Failure(reason=reason, detail=detail)
    service = _translated(failure, failure, ready("chat", "r-1", now_s=NOW_S)).services[0]
    found = signals(service)
    assert {type(s) for s in found.values()} == {Unknown}
    sized_on = {name: s for name, s in found.items() if not name.endswith(".quantile")}
    assert {s.reason for s in sized_on.values() if isinstance(s, Unknown)} == {reason}
    assert service.pools[0].violations == ()


@settings(deadline=None)
@given(present=st.sets(st.sampled_from(sorted({*GAUGES, *COUNTERS}))), number=st.floats(0.0, 1.0))
def test_quantity_is_known_exactly_when_its_series_is_there(present: set[str], number: float) -> None:
    names = {**GAUGES, **COUNTERS}
    found = [series(names[q], *[number] * 5) for q in sorted(present)]
    (replica,) = observed(*found).pools[0].replicas
    for quantity in names:
        signal = getattr(replica, quantity)
        assert isinstance(signal, Known) == (quantity in present)


@settings(deadline=None)
@given(
    numbers=st.lists(st.floats(allow_subnormal=False, allow_nan=True, allow_infinity=True), min_size=1, max_size=6),
    age_s=st.floats(0, 60),
)
def test_whatever_is_sampled_is_a_finite_number_or_a_reason(numbers: list[float], age_s: float) -> None:
    found = [series(name, *numbers, newest_at_s=NOW_S - age_s) for name in (*GAUGES.values(), *COUNTERS.values())]
    for name, signal in signals(observed(*found)).items():
        if isinstance(signal, Known):
            assert math.isfinite(signal.number), name
            assert signal.number >= 0, name
            assert signal.age_s(NOW_S) <= SETTINGS.fresh_within_s, name
            if isinstance(signal, TrueZero):
                # A rate looks at its window only: [0, 1, 1, 1] stood still when the 0 is older than that.
                inside = numbers[-1 - max(0, int((SETTINGS.rate_window_s - age_s) / SETTINGS.scrape_interval_s)) :]
                assert all(n == inside[0] for n in inside) or numbers[-1] == 0.0, name


@settings(deadline=None)
@given(reporting=st.integers(0, 5), silent=st.integers(0, 5))
def test_coverage_is_the_share_of_ready_replicas_that_reported(reporting: int, silent: int) -> None:
    names = [f"r-{i}" for i in range(reporting + silent)]
    found = [series(GAUGES["running_requests"], 2.0, replica=name) for name in names[:reporting]]
    pool = observed(*found, replicas=ready("chat", *names, now_s=NOW_S)).pools[0]
    if reporting == 0:
        assert isinstance(pool.running_requests, Unknown)
    else:
        assert isinstance(pool.running_requests, Known)
        assert pool.running_requests.number == 2.0 * reporting
        assert pool.running_requests.coverage_ratio == pytest.approx(reporting / (reporting + silent))


def test_replicas_that_are_not_ready_do_not_count_towards_the_pool() -> None:
    (one,) = ready("chat", "r-1", now_s=NOW_S)
    starting = Replica(name="r-2", pool=one.pool, state=ReplicaState.STARTING, ordered_at_s=NOW_S - 5)
    found = [series(GAUGES["running_requests"], 2.0, replica=name) for name in ("r-1", "r-2")]
    pool = observed(*found, replicas=(one, starting)).pools[0]
    assert isinstance(pool.running_requests, Known)
    assert (pool.running_requests.number, pool.running_requests.coverage_ratio) == (2.0, 1.0)
    assert len(pool.replicas) == 2


def test_series_of_another_service_with_the_same_replica_name_is_not_taken() -> None:
    found = series(GAUGES["running_requests"], 2.0, service="other")
    assert isinstance(observed(found).pools[0].running_requests, Unknown)


def test_missing_series_in_a_partial_answer_is_partial() -> None:
    service = observed(series(GAUGES["running_requests"], 2.0), partial=True)
    (replica,) = service.pools[0].replicas
    assert isinstance(replica.running_requests, Known)
    assert isinstance(replica.waiting_requests, Unknown)
    assert replica.waiting_requests.reason is UnknownReason.PARTIAL
    assert service.pools[0].violations == ()


def test_sentinel_is_not_a_reading() -> None:
    (replica,) = observed(series(GAUGES["kv_used_ratio"], -1.0)).pools[0].replicas
    assert isinstance(replica.kv_used_ratio, Unknown)
    assert replica.kv_used_ratio.reason is UnknownReason.NOT_OFFERED


def test_engines_of_one_replica_add_up_and_the_fullest_cache_counts() -> None:
    found = [
        series(GAUGES["running_requests"], 2.0, engine="0"),
        series(GAUGES["running_requests"], 3.0, engine="1"),
        series(GAUGES["kv_used_ratio"], 0.2, engine="0"),
        series(GAUGES["kv_used_ratio"], 0.8, engine="1"),
    ]
    (replica,) = observed(*found).pools[0].replicas
    assert isinstance(replica.running_requests, Known)
    assert replica.running_requests.number == 5.0
    assert isinstance(replica.kv_used_ratio, Known)
    assert replica.kv_used_ratio.number == 0.8


def test_both_spellings_at_once_are_counted_once_in_the_order_of_the_catalogue() -> None:
    found = [series("vllm_num_requests_running", 2.0), series("vllm:num_requests_running", 2.0)]
    (replica,) = observed(*found).pools[0].replicas
    assert isinstance(replica.running_requests, Known)
    assert (replica.running_requests.number, replica.running_requests.source) == (2.0, "vllm:num_requests_running")


def test_fresher_spelling_wins_over_the_preferred_one() -> None:
    found = [
        series("vllm:num_requests_running", 9.0, newest_at_s=NOW_S - 12.0),
        series("vllm_num_requests_running", 2.0),
    ]
    (replica,) = observed(*found).pools[0].replicas
    assert isinstance(replica.running_requests, Known)
    assert (replica.running_requests.number, replica.running_requests.source) == (2.0, "vllm_num_requests_running")


def gateway(*found: Series) -> ServiceObservation:
    seen = arrange(found, partial=False, watch=WATCH)
    return _translated({}, seen, ready("chat", "r-1", now_s=NOW_S)).services[0]


def envoy(name: str, *numbers: float, **labels: str) -> Series:
    times = [NOW_S - 1.0 - 5.0 * i for i in range(len(numbers))][::-1]
    base = {"__name__": f"envoy_{name}", "job": "envoy", "instance": "gw:1"}
    return Series(labels={**base, **labels}, samples=tuple(zip(times, numbers, strict=True)))


CLUSTER = {"envoy_cluster_name": str(key_of("chat"))}
TAGS = {"service": "chat", "pool": "main", "model": MODEL}


def number(signal: Signal) -> float:
    assert isinstance(signal, Known), signal
    return signal.number


def test_arrivals_are_attempts_less_retries_however_the_attempts_ended() -> None:
    # In 15 s: 30 attached, 15 whose connection failed and that were tried again, 15 turned away without an endpoint.
    service = gateway(
        envoy("cluster_upstream_rq_total", 0, 10, 20, 30, **CLUSTER),
        envoy("cluster_upstream_rq_pending_failure_eject", 0, 5, 10, 15, **CLUSTER),
        envoy("cluster_upstream_cx_none_healthy", 0, 5, 10, 15, **CLUSTER),
        envoy("cluster_upstream_rq_retry", 0, 5, 10, 15, **CLUSTER),
    )
    assert number(service.arrivals_per_s) == pytest.approx((30 + 15 + 15 - 15) / 15)


@pytest.mark.parametrize(
    ("ups", "words"),
    [
        ((), "no target of job envoy"),
        ((0,), "every target of job envoy fails its scrape"),
        ((1, 0), "1 of 2 targets of job envoy are scraped"),
        ((1,), "job envoy is scraped"),
    ],
)
def test_absent_gateway_series_say_how_its_scrapes_fare(ups: tuple[int, ...], words: str) -> None:
    found = [
        Series(labels={"__name__": "up", "job": "envoy", "instance": f"gw:{i}"}, samples=((NOW_S - 1.0, up),))
        for i, up in enumerate(ups)
    ]
    lost = gateway(*found).arrivals_per_s
    assert isinstance(lost, Unknown)
    assert lost.detail.endswith(f"no series ({words})")


def test_arrivals_of_a_flat_counter_are_a_true_zero() -> None:
    assert isinstance(gateway(envoy("cluster_upstream_rq_total", 7, 7, 7, 7, **CLUSTER)).arrivals_per_s, TrueZero)


def test_arrivals_of_two_gateways_add_up_and_a_silent_one_lowers_coverage() -> None:
    two = [envoy("cluster_upstream_rq_total", 0, 10, 20, 30, **CLUSTER, instance=f"gw:{i}") for i in (1, 2)]
    ups = [
        Series(labels={"__name__": "up", "job": "envoy", "instance": f"gw:{i}"}, samples=((NOW_S - 1, 1.0),))
        for i in (1, 2, 3)
    ]
    arrivals = gateway(*two, *ups).arrivals_per_s
    assert number(arrivals) == pytest.approx(4.0)
    assert arrivals.coverage_ratio == pytest.approx(2 / 3)


def test_arrivals_with_too_short_a_past_are_too_young() -> None:
    arrivals = gateway(envoy("cluster_upstream_rq_total", 0, 10, **CLUSTER)).arrivals_per_s
    assert isinstance(arrivals, Unknown)
    assert arrivals.reason is UnknownReason.TOO_YOUNG


def test_failures_are_a_true_zero_only_where_requests_are_counted() -> None:
    attempts = envoy("cluster_upstream_rq_total", 0, 10, 20, 30, **CLUSTER)
    assert isinstance(gateway(attempts).failed_per_s, Unknown)
    counted = envoy("tg_requests", 0, 10, 20, 30, **TAGS, code_class="2xx")
    assert isinstance(gateway(attempts, counted).failed_per_s, TrueZero)


def test_first_server_error_and_first_cut_stream_are_counted_from_zero() -> None:
    service = gateway(
        envoy("tg_requests", 0, 10, 20, 30, **TAGS, code_class="2xx"),
        envoy("tg_requests", 3, **TAGS, code_class="5xx"),
        envoy("tg_streams_cut", 3, **TAGS),
    )
    assert number(service.failed_per_s) == pytest.approx(6 / 15)


def test_clients_that_left_before_an_answer_are_not_failures() -> None:
    service = gateway(
        envoy("tg_requests", 0, 10, 20, 30, **TAGS, code_class="2xx"),
        envoy("tg_requests", 0, 10, 20, 30, **TAGS, code_class="0"),
    )
    available = next(s for s in service.slis if s.slo == "available")
    assert number(available.attained_ratio) == 1.0


def test_replica_without_series_reads_as_no_series() -> None:
    assert NO_SERIES.up is None
    assert NO_SERIES.of("up") == ()


@pytest.mark.parametrize(
    ("window_s", "scrape_s", "stale_s"), [(3.9, 1.0, 5.0), (10.0, 0.0, 5.0), (10.0, 1.0, 0.0), (10.0, -1.0, 5.0)]
)
def test_settings_refuse_windows_that_cannot_hold_a_rate(window_s: float, scrape_s: float, stale_s: float) -> None:
    with pytest.raises(BadInputError, match="observe"):
        ObserveSettings(rate_window_s=window_s, scrape_interval_s=scrape_s, stale_after_s=stale_s)


def test_freshness_limit_is_never_below_three_scrapes() -> None:
    slow = ObserveSettings(rate_window_s=240.0, scrape_interval_s=60.0, stale_after_s=30.0)
    assert slow.fresh_within_s == 180.0


def test_answer_without_series_is_an_answer() -> None:
    assert Answer(series=()).newest_at_s is None
