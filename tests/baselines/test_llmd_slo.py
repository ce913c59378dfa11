"""llm-d's SLO-aware law: its check vectors, its handling of missing data, its HPA."""

from dataclasses import replace

import pytest
from tests.baselines.rival_scene import fleet, latency, unread
from tests.policies import pool_policy, service_policy

from tidegate.baselines.law import LawMemory, pool_law
from tidegate.baselines.llmd_slo import RIVALS, SloKept, desired, slo_rule
from tidegate.terms.fleet import PoolKey
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.slo import Indicator, Slo

KEY = PoolKey(service="chat", pool="main")


def _policy(low: int = 3, high: int = 8) -> ServicePolicy:
    slos = (
        Slo(name="ttft", indicator=Indicator.TTFT, objective_ratio=0.9, threshold_s=3.0, window_s=3600.0),
        Slo(name="tpot", indicator=Indicator.TPOT, objective_ratio=0.9, threshold_s=0.1, window_s=3600.0),
    )
    return replace(service_policy(slos=slos), pools=(pool_policy(KEY, min_replicas=low, max_replicas=high),))


@pytest.mark.parametrize(
    ("ratio", "provisioned", "ready", "expected"),
    [(0.3, 4, 4, 3), (0.5, 4, 4, 4), (0.6, 4, 4, 5), (1.0, 4, 4, 8), (1.0, 6, 4, 8), (2.0, 3, 3, 11), (0.1, 8, 8, 2)],
)
def test_slo_rule_gives_the_published_counts(ratio: float, provisioned: int, ready: int, expected: int) -> None:
    assert desired(ratio, provisioned, ready) == expected


@pytest.mark.parametrize(("ratio", "provisioned", "ready", "expected"), [(0.7, 8, 4, 6), (0.6, 8, 4, 5)])
def test_slo_rule_asks_for_fewer_while_over_the_limit_when_many_are_starting(
    ratio: float, provisioned: int, ready: int, expected: int
) -> None:
    assert desired(ratio, provisioned, ready) == expected


def _asked(ttft_s: float | None, *, ready: int, steps: int = 1, policy: ServicePolicy | None = None) -> list[int]:
    """Return what is asked for at each of `steps` ticks, the fleet standing still."""
    law = pool_law(slo_rule())
    memory: LawMemory[SloKept] = LawMemory()
    asked = []
    for step in range(steps):
        now_s = 600.0 + 15.0 * step
        ttft = latency(Indicator.TTFT, ttft_s, now_s=now_s)
        tpot = latency(Indicator.TPOT, None if ttft_s is None else 0.03, now_s=now_s)
        observed = fleet(KEY, ready=ready, now_s=now_s, latencies=(ttft, tpot))
        decision, memory = law(observed, (), (), (policy or _policy(),), memory, now_s=now_s)
        asked.append(decision.pools[0].asked_replicas)
    return asked


def test_slo_law_grows_after_its_window_when_ttft_is_at_its_limit() -> None:
    # The up window of 30 s takes the lowest recommendation, and it starts with the present count.
    assert _asked(3.0, ready=4, steps=3)[-1] == 8


def test_slo_law_drains_to_the_floor_one_by_one_when_no_latency_is_known() -> None:
    assert _asked(None, ready=6, steps=14)[-1] == 5


def test_slo_law_never_leaves_its_bounds() -> None:
    assert max(_asked(30.0, ready=8, steps=6)) == 8
    assert min(_asked(None, ready=3, steps=20)) == 3


def test_slo_law_takes_unreachable_metrics_for_an_idle_service() -> None:
    law = pool_law(slo_rule())
    memory: LawMemory[SloKept] = LawMemory()
    now_s = 600.0
    observed = fleet(KEY, ready=8, now_s=now_s, latencies=(unread(Indicator.TTFT, now_s=now_s),))
    decision, _ = law(observed, (), (), (_policy(),), memory, now_s=now_s)
    assert decision.pools[0].wanted_replicas == 0


def test_slo_rival_names_its_target_as_knob() -> None:
    (rival,) = RIVALS
    assert rival.name == "llmd-slo"
