"""NVIDIA's planner: golden decisions, its load loop, rolling replicas, and what missing data does."""

from dataclasses import replace

import pytest
from tests.baselines.rival_scene import pool, replica, service
from tests.policies import pool_policy, service_policy

from tidegate.baselines.dynamo_budget import Band
from tidegate.baselines.dynamo_decide import Engine, Expected, Limits, Shape, for_demand, for_load
from tidegate.baselines.dynamo_engine import EngineLimits, EngineLoad
from tidegate.baselines.dynamo_forecast import Forecasting
from tidegate.baselines.dynamo_planner import Kept, Settings, planner_rule
from tidegate.baselines.law import LawMemory, service_law
from tidegate.terms.decision import Decision
from tidegate.terms.fleet import PoolKey, ReplicaState, Role
from tidegate.terms.observation import Observation, ReplicaObservation
from tidegate.terms.policy import ServicePolicy

P, D, A = (PoolKey(service="chat", pool=name) for name in ("prefill", "decode", "main"))
GOLDEN = EngineLimits(token_budget=8192, max_sequences=256, kv_tokens=500_000)
SLA = Limits(ttft_s=0.5, itl_s=0.03)
SHAPE = Shape(prompt_tokens=3000.0, output_tokens=150.0)


def forward(prefill: int, decoding: int, context: int) -> float:
    return (8.0 + 0.025 * prefill + 0.02 * decoding + 2e-5 * context) / 1000.0


def _engine(role: Role) -> Engine:
    return Engine(role=role, forward=forward, limits=GOLDEN)


PAIR = (_engine(Role.PREFILL), _engine(Role.DECODE))


@pytest.mark.parametrize(
    ("per_s", "expected"), [(5.0, (1, 1)), (20.0, (2, 1)), (50.0, (4, 1)), (100.0, (8, 2)), (200.0, (10, 4))]
)
def test_throughput_gives_the_golden_counts_from_two_and_two(per_s: float, expected: tuple[int, int]) -> None:
    load = Expected(requests_per_s=per_s, prompt_tokens=3000.0, output_tokens=150.0)
    assert for_demand(PAIR, load, SLA, ready=(2, 2), floor=1) == (expected, True)


def test_throughput_is_capped_at_eight_replicas_a_step() -> None:
    load = Expected(requests_per_s=200.0, prompt_tokens=3000.0, output_tokens=150.0)
    assert for_demand(PAIR, load, SLA, ready=(8, 2), floor=1)[0] == (16, 4)


def test_throughput_holds_both_roles_when_a_length_is_unknown() -> None:
    load = Expected(requests_per_s=50.0, prompt_tokens=0.0, output_tokens=150.0)
    assert for_demand(PAIR, load, SLA, ready=(2, 3), floor=1) == ((2, 3), False)


def test_load_grows_prefill_only_when_every_engine_is_over_its_limit() -> None:
    over, under = EngineLoad(queued_prompt_tokens=30_000.0), EngineLoad()
    assert for_load(_engine(Role.PREFILL), [over, over], SHAPE, SLA, floor=1) == 3
    assert for_load(_engine(Role.PREFILL), [over, under], SHAPE, SLA, floor=1) is None


def test_load_shrinks_prefill_when_survivors_stay_under_their_part_of_the_room() -> None:
    # Own prefill 83 ms leaves 417 ms, 0.8 of it is 333.6 ms: at 2 -> 1 a queue of 6000 doubles to 12000 tokens, 308 ms.
    fits, too_much = EngineLoad(queued_prompt_tokens=6_000.0), EngineLoad(queued_prompt_tokens=6_700.0)
    assert for_load(_engine(Role.PREFILL), [fits, fits], SHAPE, SLA, floor=1) == 1
    assert for_load(_engine(Role.PREFILL), [fits, too_much], SHAPE, SLA, floor=1) is None
    assert for_load(_engine(Role.PREFILL), [fits, fits], SHAPE, SLA, floor=2) == 2
    assert for_load(_engine(Role.PREFILL), [fits], SHAPE, SLA, floor=1) is None


def test_load_keeps_decode_when_the_survivors_kv_would_not_fit() -> None:
    half = EngineLoad(decoding=50.0, context_tokens=250_000.0)
    less = EngineLoad(decoding=50.0, context_tokens=240_000.0)
    loose = Limits(ttft_s=0.5, itl_s=0.1)
    assert for_load(_engine(Role.DECODE), [half, half], SHAPE, loose, floor=1) is None
    assert for_load(_engine(Role.DECODE), [less, less], SHAPE, loose, floor=1) == 1


def test_load_grows_decode_when_a_next_request_would_miss_the_limit() -> None:
    full = EngineLoad(decoding=250.0, context_tokens=860_000.0)
    assert for_load(_engine(Role.DECODE), [full, full], SHAPE, SLA, floor=1) == 3


def test_load_of_an_aggregated_engine_goes_up_for_either_limit_and_down_for_both() -> None:
    calm = EngineLoad(decoding=1.0, context_tokens=3_100.0)
    queued = EngineLoad(decoding=1.0, context_tokens=3_100.0, queued_prompt_tokens=60_000.0)
    crowded = EngineLoad(decoding=60.0, context_tokens=186_000.0)
    engine = _engine(Role.AGGREGATED)
    assert for_load(engine, [queued, queued], SHAPE, SLA, floor=1) == 3
    assert for_load(engine, [crowded, crowded], SHAPE, SLA, floor=1) == 3
    assert for_load(engine, [calm, calm], SHAPE, SLA, floor=1) == 1
    assert for_load(engine, [calm, queued], SHAPE, SLA, floor=1) is None


def _settings(*, throughput: bool, load: bool, floor: int = 1) -> Settings:
    return Settings(
        throughput=throughput,
        load=load,
        forecasting=Forecasting.CONSTANT,
        limits=SLA,
        band=Band(most=64),
        floor=floor,
    )


def _policy() -> ServicePolicy:
    pools = (pool_policy(P, role=Role.PREFILL, max_replicas=20), pool_policy(D, role=Role.DECODE, max_replicas=20))
    return replace(service_policy(), pools=pools)


def _members(key: PoolKey, states: str, *, now_s: float, queued: float | None = 0.0) -> list[ReplicaObservation]:
    """Return replicas by letter: r ready, s starting, d draining."""
    kinds = {"r": ReplicaState.READY, "s": ReplicaState.STARTING, "d": ReplicaState.DRAINING}
    engine = (500_000.0, queued, 0.0)
    return [replica(key, n, now_s=now_s, state=kinds[state], engine=engine) for n, state in enumerate(states)]


def _observed(
    prefill: str, decode: str, *, now_s: float, per_s: float | None = 0.0, queued: float | None = 0.0
) -> Observation:
    pools = (
        pool(P, _members(P, prefill, now_s=now_s, queued=queued), now_s=now_s),
        pool(D, _members(D, decode, now_s=now_s), now_s=now_s),
    )
    return service("chat", pools, now_s=now_s, arrivals_per_s=per_s, prompt=3000.0, output=150.0)


def _asked(decision: Decision) -> tuple[int, ...]:
    return tuple(p.asked_replicas for p in decision.pools)


class _Planner:
    """A planner called with observations, one after the other."""

    def __init__(self, settings: Settings) -> None:
        self._law = service_law(planner_rule(settings, {P: PAIR[0], D: PAIR[1]}))
        self._memory: LawMemory[Kept] = LawMemory()

    def asked(self, observed: Observation) -> tuple[int, ...]:
        now_s = observed.observed_at_s
        decision, self._memory = self._law(observed, (), (), (_policy(),), self._memory, now_s=now_s)
        return _asked(decision)


def test_throughput_planner_acts_on_the_first_whole_window() -> None:
    planner = _Planner(_settings(throughput=True, load=False))
    assert planner.asked(_observed("rr", "rr", now_s=180.0, per_s=50.0)) == (4, 1)


def test_throughput_planner_holds_when_the_request_count_is_unknown() -> None:
    planner = _Planner(_settings(throughput=True, load=False))
    assert planner.asked(_observed("rr", "rr", now_s=180.0, per_s=None)) == (2, 2)


def test_throughput_planner_does_not_see_a_backlog() -> None:
    planner = _Planner(_settings(throughput=True, load=False))
    assert planner.asked(_observed("rrr", "r", now_s=180.0, per_s=5.0, queued=1e6)) == (1, 1)


def test_planner_holds_while_replicas_start() -> None:
    planner = _Planner(_settings(throughput=True, load=False))
    assert planner.asked(_observed("rrs", "rr", now_s=180.0, per_s=100.0)) == (3, 2)


def test_planner_cancels_starting_replicas_once_the_wish_has_lasted() -> None:
    planner = _Planner(_settings(throughput=True, load=False))
    assert planner.asked(_observed("rrss", "r", now_s=180.0, per_s=20.0)) == (4, 1)
    assert planner.asked(_observed("rrss", "r", now_s=360.0, per_s=20.0)) == (2, 1)


def test_hybrid_planner_is_lifted_to_the_forecasts_floor() -> None:
    planner = _Planner(_settings(throughput=True, load=True))
    assert planner.asked(_observed("rr", "rr", now_s=5.0, per_s=50.0)) == (1, 1)
    assert planner.asked(_observed("rr", "rr", now_s=185.0, per_s=50.0)) == (4, 1)


def test_load_planner_holds_when_an_engine_does_not_report() -> None:
    planner = _Planner(_settings(throughput=False, load=True))
    assert planner.asked(_observed("rr", "rr", now_s=5.0, queued=None)) == (2, 2)


def test_floor_is_met_at_once() -> None:
    planner = _Planner(_settings(throughput=False, load=True, floor=4))
    assert planner.asked(_observed("rr", "rr", now_s=5.0)) == (4, 4)
