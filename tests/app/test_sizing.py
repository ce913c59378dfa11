from dataclasses import replace

import pytest

from tidegate.app.config import parse_policies
from tidegate.app.config_profile import load_profile
from tidegate.app.sizing import (
    LENGTHS_WEIGHT,
    PRIOR_OUTPUT_TOKENS,
    PRIOR_PROMPT_TOKENS,
    PRIOR_WEIGHT,
    SETTLED_S,
    pool_capacities,
)  # fmt: skip
from tidegate.perf.calibrate import STEP_RATIO
from tidegate.perf.capacity import replica_capacity
from tidegate.terms.capacity import CapacitySource, PoolCapacity
from tidegate.terms.fleet import PoolKey, Replica, ReplicaState
from tidegate.terms.observation import PoolObservation, ReplicaObservation, ServiceObservation, SliReading
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.signal import Signal, UnknownReason, reading, unknown
from tidegate.terms.slo import Indicator, Slo

KEY = PoolKey(service="chat", pool="main")
PROFILE = load_profile("a100-llama8b-tp1")
POLICY = """
apiVersion: tidegate.io/v1alpha1
kind: ServicePolicy
metadata: {name: chat}
spec:
  model: meta-llama/Llama-3.1-8B-Instruct
  slos: [{name: tpot, indicator: tpot, percentile: 95, threshold: 50ms, window: 1h}]
  pools:
    - {name: main, role: aggregated, engine: vllm, accelerator: nvidia-a100-80gb, gpusPerReplica: 1,
       parallelism: {tensor: 1, pipeline: 1}, engineProfile: a100-llama8b-tp1, minReplicas: 1, maxReplicas: 8,
       coldStart: 20s, costPerHour: 2.5, scaleTarget: {kind: Local, name: main}}
"""


def _known(number: float) -> Signal:
    return reading(number, sampled_at_s=100.0, coverage_ratio=1.0, source="test")


UNKNOWN = unknown(UnknownReason.ABSENT, "", now_s=100.0, source="test")


def _service(
    *,
    arrivals: Signal = UNKNOWN,
    prompt: Signal = UNKNOWN,
    output: Signal = UNKNOWN,
    finished: Signal = UNKNOWN,
    waiting: Signal = UNKNOWN,
    attained: Signal = UNKNOWN,
) -> ServiceObservation:
    ready = Replica(name="r", pool=KEY, state=ReplicaState.READY, ordered_at_s=0.0, ready_at_s=10.0)
    member = ReplicaObservation(
        replica=ready, running_requests=UNKNOWN, waiting_requests=waiting, kv_used_ratio=UNKNOWN,
        finished_per_s=finished, prompt_tokens_per_s=UNKNOWN, output_tokens_per_s=UNKNOWN, preemptions_per_s=UNKNOWN,
    )  # fmt: skip
    pool = PoolObservation(
        key=KEY, replicas=(member, member), running_requests=UNKNOWN, waiting_requests=waiting,
        finished_per_s=finished, output_tokens_per_s=UNKNOWN, gateway_in_flight_requests=UNKNOWN,
        gateway_pending_requests=UNKNOWN,
    )  # fmt: skip
    sli = SliReading(slo="tpot", attained_ratio=attained, quantile_s=UNKNOWN, source="engine", threshold_s=0.05)
    return ServiceObservation(
        service="chat", arrivals_per_s=arrivals, prompt_tokens_mean=prompt, output_tokens_mean=output,
        failed_per_s=UNKNOWN, slis=(sli,), pools=(pool,),
    )  # fmt: skip


def _capacity(
    service: ServiceObservation | None = None,
    *,
    starts: tuple[float, ...] = (),
    before: PoolCapacity | None = None,
    policies: tuple[ServicePolicy, ...] | None = None,
    now_s: float | None = None,
) -> PoolCapacity:
    (found,) = pool_capacities(
        policies or parse_policies(POLICY),
        (service,) if service else (),
        profiles={"a100-llama8b-tp1": PROFILE},
        cold_starts=lambda _key: starts,
        previous=(before,) if before else (),
        elapsed_s=10.0,
        now_s=100.0 if now_s is None else now_s,
    )
    return found


def _modelled(prompt: float, output: float) -> float:
    return replica_capacity(
        PROFILE, ttft_s=None, tpot_s=0.05, prompt_tokens=prompt, output_tokens=output
    ).requests_per_s


def _after(*, requests: float, prompt: float, output: float, before: PoolCapacity | None = None) -> PoolCapacity:
    return _capacity(
        _service(arrivals=_known(requests / 10.0), prompt=_known(prompt), output=_known(output)), before=before
    )


def test_capacity_follows_the_observed_lengths() -> None:
    found = _after(requests=1e9, prompt=500.0, output=100.0)
    assert (found.prompt_tokens, found.output_tokens) == pytest.approx((500.0, 100.0), rel=1e-6)
    assert found.requests_per_s == pytest.approx(_modelled(500.0, 100.0), rel=1e-6)
    assert found.source is CapacitySource.PROFILE
    assert found.lengths_weight == LENGTHS_WEIGHT


def test_capacity_weighs_every_request_alike() -> None:
    found = _after(requests=PRIOR_WEIGHT, prompt=PRIOR_PROMPT_TOKENS + 100.0, output=PRIOR_OUTPUT_TOKENS)
    assert found.prompt_tokens == pytest.approx(PRIOR_PROMPT_TOKENS + 50.0)
    more = _after(requests=2 * PRIOR_WEIGHT, prompt=0.5, output=0.5, before=found)
    assert more.prompt_tokens == pytest.approx((found.prompt_tokens + 0.5) / 2)


def test_capacity_keeps_the_last_lengths_when_they_are_unknown() -> None:
    before = _after(requests=50.0, prompt=500.0, output=100.0)
    found = _capacity(_service(prompt=_known(1.0), output=UNKNOWN, arrivals=_known(9.0)), before=before)
    assert (found.prompt_tokens, found.output_tokens) == (before.prompt_tokens, before.output_tokens)
    assert found.lengths_weight == before.lengths_weight


def test_capacity_assumes_prior_lengths_before_the_first_request() -> None:
    found = _capacity()
    assert (found.prompt_tokens, found.output_tokens) == (PRIOR_PROMPT_TOKENS, PRIOR_OUTPUT_TOKENS)


def _carrying(before: PoolCapacity, factor: float, **more: Signal) -> ServiceObservation:
    """Two ready replicas that finish and are offered `factor` times what is believed."""
    per_s = _known(2 * before.requests_per_s * factor)
    known = {"arrivals": per_s, "finished": per_s, "waiting": _known(0.0), "attained": _known(0.99)}
    return _service(**{**known, **more})


def test_capacity_is_raised_by_what_was_carried_inside_the_objectives() -> None:
    before = _capacity()
    found = _capacity(_carrying(before, 1.2), before=before)
    assert found.correction_ratio == pytest.approx(1.0 + STEP_RATIO * 0.2)
    assert found.source is CapacitySource.MEASURED


def test_capacity_is_lowered_by_a_queue_and_a_miss_at_less_than_was_believed() -> None:
    before = _capacity()
    seen = _carrying(before, 0.8, waiting=_known(8.0), attained=_known(0.5))
    assert _capacity(seen, before=before).correction_ratio == pytest.approx(1.0 - STEP_RATIO * 0.2)


def test_capacity_is_not_lowered_by_a_miss_that_overload_explains() -> None:
    # Found live: one replica under the load of five taught the fleet that its engines were half as fast.
    before = _capacity()
    flood = _known(2 * before.requests_per_s * 5.0)
    seen = _carrying(before, 0.8, arrivals=flood, waiting=_known(90.0), attained=_known(0.1))
    assert _capacity(seen, before=before).correction_ratio == 1.0


def test_capacity_learns_nothing_from_a_pool_that_has_just_changed() -> None:
    before = _capacity()
    fresh = 10.0 + SETTLED_S - 1.0
    assert _capacity(_carrying(before, 1.2), before=before, now_s=fresh).correction_ratio == 1.0
    assert _capacity(_carrying(before, 1.2), before=before, now_s=fresh + 1.0).correction_ratio > 1.0


@pytest.mark.parametrize("missing", ["arrivals", "finished", "waiting", "attained"])
def test_capacity_learns_nothing_when_a_signal_is_unknown(missing: str) -> None:
    before = _capacity()
    assert _capacity(_carrying(before, 3.0, **{missing: UNKNOWN}), before=before).correction_ratio == 1.0


def test_capacity_names_an_objective_that_no_replica_count_can_meet() -> None:
    (policy,) = parse_policies(POLICY)
    hopeless = Slo(name="ttft", indicator=Indicator.TTFT, objective_ratio=0.95, threshold_s=0.001, window_s=60.0)
    found = _capacity(policies=(replace(policy, slos=(hopeless,)),))
    assert found.requests_per_s > 0.0
    assert found.binding == "ttft out of reach"


def test_cold_start_is_the_prior_until_three_starts_were_seen_and_never_below_what_was_seen() -> None:
    assert _capacity().cold_start_p95_s == 20.0
    assert _capacity(starts=(35.0,)).cold_start_p95_s == 35.0
    assert _capacity(starts=(5.0, 5.0)).cold_start_p95_s == 20.0
    assert _capacity(starts=(5.0, 6.0, 7.0)).cold_start_p95_s == pytest.approx(6.9)
    assert _capacity(starts=(5.0, 6.0, 7.0)).cold_start_p50_s == 6.0
