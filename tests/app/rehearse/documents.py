"""A document of a rehearsal that never was, for tests of what is printed."""

import math
from typing import Any

from tidegate.app.rehearse.document import (
    CapacityCheck,
    ConditionsFacts,
    Document,
    FaultFigures,
    Figures,
    Forecastable,
    ForecastPair,
    FrontierPoint,
    KnobFacts,
    Lengths,
    LoadOverTime,
    Matched,
    Objective,
    PolicyResult,
    PoolFacts,
    ReplicasOverTime,
    SeedFigures,
    TraceFacts,
)

HOUR_S = 3600.0


def tide(i: int) -> float:
    return 1.0 + 0.7 * math.sin(i / 144 * 2 * math.pi)


def figures(attained: float, gpu_hours: float) -> dict[str, Any]:
    return {
        "attainment_ratio": attained,
        "gpu_hours": gpu_hours,
        "cost_usd": 2.5 * gpu_hours,
        "goodput_per_s": 4.0 * attained,
        "ttft_p50_s": 0.12,
        "ttft_p95_s": 0.61,
        "ttft_p99_s": 1.4,
        "tpot_p50_s": 0.031,
        "tpot_p95_s": 0.052,
        "tpot_p99_s": 0.07,
        "scale_events": 41,
        "failed": 3,
        "replicas_peak": 9,
    }


def result(name: str, attained: float, gpu_hours: float, matched: float | None, **more: Any) -> PolicyResult:  # noqa: ANN401
    knob = KnobFacts(name="target", unit="requests", default=8.0)
    steps = tuple(range(0, 24 * 3600, 600))
    size = gpu_hours / 24
    values: dict[str, Any] = {
        **figures(attained, gpu_hours),
        "name": name,
        "kind": "policy",
        "summary": f"the law of {name}",
        "source": "a paper <2024>",
        "period_s": 15.0,
        "attained": {"ttft": attained, "tpot": min(1.0, attained + 0.005)},
        "knob": knob,
        "gap_closed_ratio": None if matched is None else (210 - matched) / 90,
        "gap_closed_ratio_reason": "out of reach" if matched is None else None,
        "matched_gpu_hours": matched,
        "matched_gpu_hours_reason": None if matched else "98.10 % is the most its target reaches",
        "matched": None if matched is None else Matched(**figures(0.99, matched), setting=6.4),
        "rank": None if matched is None else 1,
        "seeds": tuple(SeedFigures(**figures(attained - k / 1000, gpu_hours + k), seed=k) for k in range(3)),
        "frontier": tuple(
            FrontierPoint(setting=2.0 * k, attainment_ratio=1 - 0.0007 * k**2.2, gpu_hours=gpu_hours * 1.8 / k**0.35)
            for k in range(1, 9)
        ),
        "capacity_check": tuple(
            CapacityCheck(
                capacity_ratio=r,
                attainment_ratio=attained,
                gpu_hours=gpu_hours,
                matched_gpu_hours=None if matched is None else matched / r,
                matched_gpu_hours_reason=None,
                rank=1,
                flips_with=("kpa",) if name == "tidegate" and r < 1 else (),
            )
            for r in (0.9, 1.1)
        ),
        "faults": (
            FaultFigures(**figures(attained - 0.01, gpu_hours), fault="absent", start_s=600.0, duration_s=300.0),
        ),
        "replicas": ReplicasOverTime(
            at_s=steps,
            ready=tuple(round(size * tide(i)) for i in range(len(steps))),
            existing=tuple(round(size * tide(i) + 0.8) for i in range(len(steps))),
        ),
        "notes": (),
    }
    return PolicyResult(**(values | more))


def document(**more: Any) -> Document:  # noqa: ANN401
    load = tuple(round(240 * 10 * tide(i)) for i in range(144))
    trace = TraceFacts(
        name="day",
        files=("day.csv.gz",),
        format="tidegate-csv",
        requests=sum(load),
        seconds=24 * HOUR_S - 1.0,
        requests_per_s=4.0,
        peak_requests_per_s=6.8,
        prompt_tokens=Lengths(mean=1155.0, p50=930.0, p99=4000.0),
        output_tokens=Lengths(mean=211.0, p50=129.0, p99=900.0),
        hash_block_tokens=0,
        scale=20.0,
        seed=0,
        forecastable=Forecastable(member="ets", wape_ratio=0.112, horizon_s=120.0, forecastable=True),
        load=LoadOverTime(step_s=600.0, requests=load),
    )
    conditions = ConditionsFacts(
        policy="chat",
        model="meta-llama/Llama-3.1-8B-Instruct",
        objectives=(
            Objective(name="ttft", indicator="ttft", threshold_s=1.0, objective_ratio=0.95),
            Objective(name="tpot", indicator="tpot", threshold_s=0.08, objective_ratio=0.95),
        ),
        pools=(
            PoolFacts(
                name="chat/main",
                role="aggregated",
                profile="a100-llama8b-tp1",
                gpus_per_replica=1,
                cost_usd_per_h=2.5,
                min_replicas=1,
                max_replicas=64,
                cold_start_s=120.0,
            ),
        ),
        routing="least_request",
        target_ratio=0.99,
        seeds=(0, 1, 2),
        scoring="docs/scoring.md",
    )
    values: dict[str, Any] = {
        "version": "0.1.0",
        "trace": trace,
        "conditions": conditions,
        "policies": (
            result("tidegate", 0.9931, 151.0, 148.2),
            result("hpa-queue", 0.9712, 160.0, 188.9),
            result("kpa", 0.981, 158.0, 176.1),
            result("wva-v2", 0.921, 120.0, None),
            result("best-static", 0.99, 210.0, 210.0, kind="oracle", frontier=(), knob=None),
            result("clairvoyant", 0.99, 120.0, 120.0, kind="oracle", frontier=(), knob=None),
        ),
        "forecast": ForecastPair(
            on=Figures(**figures(0.9931, 151.0)),
            off=Figures(**figures(0.985, 149.0)),
            matched_gpu_hours_on=148.2,
            matched_gpu_hours_off=161.0,
        ),
        "notes": ("The fair oracle's remaining gap is at most 1.2 %.",),
    }
    return Document(**(values | more))
