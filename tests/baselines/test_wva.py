"""WVA V2: its check vectors, what it learns from queues, its optimiser, and missing data."""

from dataclasses import replace

from tests.baselines.rival_scene import pool, replica, service
from tests.policies import pool_policy, service_policy

from tidegate.baselines.law import LawMemory, service_law
from tidegate.baselines.wva import WvaKept, WvaSettings, thresholds, wva_rule
from tidegate.baselines.wva_optimise import Variant, optimised
from tidegate.baselines.wva_supply import (
    GatewayQueue,
    Lengths,
    Limits,
    ReplicaReading,
    Thresholds,
    VariantKept,
    gateway_tokens,
    needs,
    supply_of,
)
from tidegate.terms.fleet import PoolKey, Role
from tidegate.terms.observation import Observation
from tidegate.terms.policy import ServicePolicy

KEY = PoolKey(service="chat", pool="main")
CHAT = Lengths(prompt=1000.0, output=200.0)
KV = 500_000.0


def _readings(*pairs: tuple[float, float]) -> list[ReplicaReading]:
    return [ReplicaReading(kv_used_ratio=kv, queue=queue, kv_tokens=KV) for kv, queue in pairs]


def _sized(
    readings: list[ReplicaReading], lengths: Lengths = CHAT, *, queued: float = 0.0, pending: int = 0
) -> tuple[int, float, float, float]:
    """Return capacity per replica, demand, required and spare tokens."""
    supply = supply_of(readings, lengths, Limits(), VariantKept(), Thresholds(), prefill=False)
    assert supply.per_replica is not None
    demand = supply.demand_tokens + gateway_tokens(GatewayQueue(size=queued, lengths=lengths), prefill=False)
    ready = len(readings) * supply.per_replica
    required, spare = needs(demand, ready, ready + pending * supply.per_replica, Thresholds())
    return supply.per_replica, demand, required, spare


def test_supply_and_demand_match_the_check_vector_without_queues() -> None:
    per_replica, demand, required, _ = _sized(_readings((0.5, 0.0), (0.6, 0.0)))
    assert (per_replica, demand, round(required)) == (281_600, 550_000.0, 83_859)


def test_supply_and_demand_match_the_check_vector_with_queues() -> None:
    per_replica, demand, required, _ = _sized(_readings((0.9, 8.0), (0.9, 8.0)), queued=50.0)
    assert (per_replica, round(demand), round(required)) == (400_000, 979_200, 352_000)


def test_a_pending_replica_covers_what_is_required() -> None:
    assert _sized(_readings((0.9, 8.0), (0.9, 8.0)), queued=50.0, pending=1)[2] == 0.0


def test_spare_supply_matches_the_check_vector() -> None:
    spare = _sized(_readings(*[(0.1, 0.0)] * 4))[3]
    assert round(spare) == 840_686
    assert optimised([_variant(current=4)], {"aggregated": 0.0}, {"aggregated": spare}) == {KEY: 2}


def test_a_queue_at_low_kv_use_is_learned_as_a_tiny_capacity() -> None:
    lengths = Lengths(prompt=4000.0, output=100.0)
    per_replica, _, required, _ = _sized(_readings((0.162, 6.0), (0.162, 6.0)), lengths)
    assert per_replica == 81_000
    assert optimised([_variant(current=2, per_replica=81_000)], {"aggregated": required}, {}) == {KEY: 4}


def test_what_was_held_while_queueing_is_remembered_after_the_queue_is_gone() -> None:
    queued = supply_of(_readings((0.2, 6.0)), CHAT, Limits(), VariantKept(), Thresholds(), prefill=False)
    calm = supply_of(_readings((0.2, 0.0)), CHAT, Limits(), queued.kept, Thresholds(), prefill=False)
    assert calm.per_replica == 100_000


def test_a_replica_without_capacity_is_skipped_until_one_was_stored() -> None:
    blind = [ReplicaReading(kv_used_ratio=0.5, queue=0.0, kv_tokens=None)]
    unknown = supply_of(blind, CHAT, Limits(), VariantKept(), Thresholds(), prefill=False)
    stored = supply_of(blind, CHAT, Limits(), VariantKept(kv_tokens=KV), Thresholds(), prefill=False)
    assert (unknown.read, unknown.demand_tokens) == (0, 0.0)
    assert (stored.read, stored.demand_tokens) == (1, 200_000.0)


def _variant(key: PoolKey = KEY, **changes: object) -> Variant:
    plain = Variant(key=key, role=Role.AGGREGATED, per_replica=281_600, cost=2.5, current=1, least=1, most=20)
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_the_optimiser_grows_the_cheapest_capacity_and_shrinks_the_dearest() -> None:
    cheap, dear = PoolKey(service="chat", pool="cheap"), PoolKey(service="chat", pool="dear")
    variants = [_variant(cheap, cost=2.0, most=2), _variant(dear, cost=4.0, current=3)]
    assert optimised(variants, {"aggregated": 500_000.0}, {}) == {cheap: 2, dear: 4}
    assert optimised(variants, {"aggregated": 0.0}, {"aggregated": 900_000.0}) == {cheap: 1, dear: 1}


def test_a_prefill_pool_at_its_maximum_freezes_decode() -> None:
    prefill, decode = PoolKey(service="chat", pool="prefill"), PoolKey(service="chat", pool="decode")
    full = _variant(prefill, role=Role.PREFILL, current=4, most=4)
    short = _variant(decode, role=Role.DECODE, current=2)
    assert optimised([full, short], {"prefill": 0.0, "decode": 900_000.0}, {}) == {prefill: 4, decode: 2}
    roomy = replace(full, most=5)
    assert optimised([roomy, short], {"prefill": 0.0, "decode": 900_000.0}, {}) == {prefill: 4, decode: 6}


def test_roles_grow_by_the_part_that_the_tightest_can_meet() -> None:
    prefill, decode = PoolKey(service="chat", pool="prefill"), PoolKey(service="chat", pool="decode")
    tight = _variant(prefill, role=Role.PREFILL, per_replica=100, current=1, most=2)
    loose = _variant(decode, role=Role.DECODE, per_replica=100, current=1)
    # Prefill gets 1 of the 4 it needs, so decode gets a quarter of its 8.
    assert optimised([tight, loose], {"prefill": 400.0, "decode": 800.0}, {}) == {prefill: 2, decode: 3}


def _policy() -> ServicePolicy:
    return replace(service_policy(), pools=(pool_policy(KEY, max_replicas=20),))


def _observed(*pairs: tuple[float | None, float], now_s: float) -> Observation:
    members = [
        replica(KEY, n, now_s=now_s, kv=kv, queue=queue, engine=(KV, 0.0, 0.0)) for n, (kv, queue) in enumerate(pairs)
    ]
    return service("chat", (pool(KEY, members, now_s=now_s),), now_s=now_s, prompt=1000.0, output=200.0)


def test_wva_grows_at_once_and_shrinks_after_its_hpa_window() -> None:
    law = service_law(wva_rule(WvaSettings(thresholds=thresholds(), limits={"a100-llama8b-tp1": Limits()})))
    memory: LawMemory[WvaKept] = LawMemory()
    decision, memory = law(_observed((0.6, 0.0), (0.6, 0.0), now_s=0.0), (), (), (_policy(),), memory, now_s=0.0)
    assert decision.pools[0].asked_replicas == 3
    asked = []
    for step in range(1, 25):
        now_s = 15.0 * step
        calm = _observed((0.05, 0.0), (0.05, 0.0), (0.05, 0.0), now_s=now_s)
        decision, memory = law(calm, (), (), (_policy(),), memory, now_s=now_s)
        asked.append(decision.pools[0].asked_replicas)
    assert asked[15] == 3  # 240 s
    assert asked[-1] == 1


def test_wva_holds_when_no_replica_was_ever_read() -> None:
    law = service_law(wva_rule(WvaSettings(thresholds=thresholds(), limits={"a100-llama8b-tp1": Limits()})))
    observed = _observed((None, 0.0), (None, 0.0), now_s=0.0)
    decision, _ = law(observed, (), (), (_policy(),), LawMemory(), now_s=0.0)
    assert decision.pools[0].asked_replicas == 2
    assert decision.pools[0].wanted_replicas is None
