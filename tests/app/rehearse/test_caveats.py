"""What is said before any figure, and the budget that binds everyone."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from tidegate.app.config import load_policies
from tidegate.app.rehearse.caveats import caveats, within_budget
from tidegate.app.rehearse.plays import world_of
from tidegate.sim.trace import Trace
from tidegate.terms.policy import BudgetPolicy, ServicePolicy
from tidegate.terms.slo import Indicator

POLICY = load_policies([Path(__file__).parents[3] / "examples" / "policies" / "chat.yaml"])[0]


def load(prompt: int = 1000) -> Trace:
    rows = np.full(10, 1000, dtype=np.int64)
    prompts = rows.copy()
    prompts[0] = prompt
    return Trace(name="t", arrival_ps=np.arange(10) * 10**12, prompt_tokens=prompts, output_tokens=rows // 5)


def said(policy: ServicePolicy, trace: Trace) -> str:
    return " ".join(caveats(world_of(policy, trace, peak_per_s=1.0), trace))


def test_nothing_is_said_of_a_load_that_fits() -> None:
    assert caveats(world_of(POLICY, load(), peak_per_s=1.0), load()) == ()


def test_requests_no_engine_takes_are_counted() -> None:
    assert said(POLICY, load(10_000_000)).startswith("1 of 10 requests are longer than any engine here takes")


def test_a_policy_without_latency_objectives_is_named() -> None:
    answered = replace(POLICY, slos=tuple(s for s in POLICY.slos if s.indicator is Indicator.AVAILABILITY))
    assert "promises no latency" in said(answered, load())


def test_an_objective_no_replica_meets_is_named_with_its_pool() -> None:
    strict = replace(POLICY, slos=tuple(replace(s, threshold_s=s.threshold_s and 0.001) for s in POLICY.slos))
    assert "out of reach by the profile a100-llama8b-tp1" in said(strict, load())


def test_the_budget_caps_the_only_pool_by_gpus_and_by_money() -> None:
    def most(**budget: float) -> int:
        return within_budget(replace(POLICY, budget=BudgetPolicy(**budget))).pools[0].max_replicas  # type: ignore[arg-type]

    assert most() == POLICY.pools[0].max_replicas == 8
    assert most(max_gpus=3) == 3
    assert most(max_cost_usd_per_h=5.0) == 2  # 2.50 each
    assert most(max_gpus=0) == POLICY.pools[0].min_replicas


def test_a_budget_over_several_pools_is_said_to_bind_tidegate_alone() -> None:
    pool = POLICY.pools[0]
    two = replace(POLICY, pools=(pool, replace(pool, key=replace(pool.key, pool="other"))))
    assert within_budget(two) == two
    assert "budget binds Tidegate alone" in said(two, load())
