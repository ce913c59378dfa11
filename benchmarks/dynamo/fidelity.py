"""The same fixed size and load in Tidegate's simulator, and how far its figures lie from theirs."""

from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.dynamo.engine import ITL_S, START_UP_S, TTFT_S
from benchmarks.dynamo.loads import Load

from tidegate.perf.profile import PS_PER_S, EngineProfile
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.fleet_protocol import Fleet
from tidegate.sim.sample import Outcomes
from tidegate.sim.setup import FleetSetup, KvLink, PoolSetup, Routing
from tidegate.sim.trace import Trace
from tidegate.terms.fleet import PoolKey, Role

TAIL_S = 24 * 3600.0  # an overloaded fixed size may take this long to answer all
_QUANTILES = (("p50", "median", 50), ("p95", "p95", 95), ("p99", "p99", 99))


def compared(
    policy: str,
    size: tuple[int, int],
    load: Load,
    theirs: dict[str, Any],
    profiles: tuple[EngineProfile, EngineProfile],
) -> dict[str, object]:
    """Return the row: each figure of ours beside theirs, and the difference relative to theirs."""
    # Here, because importing it compiles it.
    from tidegate.sim.fast.fleet import FastFleet  # noqa: PLC0415

    ours = figures_of(run(size, load, profiles, FastFleet))
    found: dict[str, float] = {"goodput_ratio": theirs["goodput_completed_requests"] / theirs["num_requests"]}
    for name in ("ttft", "tpot"):
        found |= {f"{name}_{q}_ms": theirs[f"{key}_{name}_ms"] for q, key, _ in _QUANTILES}
    row: dict[str, object] = {"row": "fidelity", "policy": policy, "load": load.name, "requests": len(load)}
    for name, value in found.items():
        row[name] = {
            "ours": round(ours[name], 4),
            "theirs": round(value, 4),
            "difference_ratio": round(ours[name] / value - 1.0, 4),
        }
    return row


def run(
    size: tuple[int, int],
    load: Load,
    profiles: tuple[EngineProfile, EngineProfile],
    make_fleet: Callable[[Trace, FleetSetup], Fleet],
) -> Outcomes:
    """Return what becomes of a load at a fixed size: round robin to prefill, KV handed over at once, as in theirs."""
    pools = tuple(
        PoolSetup(
            key=PoolKey(service="replay", pool=str(role)),
            role=role,
            profile=profile,
            cold_start=ColdStart(samples_s=(START_UP_S,)),
            initial=count,
        )
        for role, profile, count in zip((Role.PREFILL, Role.DECODE), profiles, size, strict=True)
    )
    setup = FleetSetup(pools=pools, routing=Routing.ROUND_ROBIN, link=KvLink(name="none", base_ps=0, ps_per_token=0))
    fleet = make_fleet(trace_of(load), setup)
    fleet.run_until(round((float(load.arrival_s[-1]) + TAIL_S) * PS_PER_S))
    return fleet.outcomes()


def trace_of(load: Load) -> Trace:
    """Return the load as the simulator takes it; arrivals in whole milliseconds, as in the file theirs reads."""
    return Trace(
        name=load.name,
        arrival_ps=np.rint(1000.0 * load.arrival_s).astype(np.int64) * (PS_PER_S // 1000),
        prompt_tokens=load.prompt_tokens.astype(np.int64),
        output_tokens=load.output_tokens.astype(np.int64),
    )


def figures_of(outcomes: Outcomes) -> dict[str, float]:
    """Return goodput and percentiles in milliseconds, over the answered requests."""
    answered = outcomes.ended_ps >= 0
    first_ms = (outcomes.first_ps - outcomes.trace.arrival_ps)[answered] * 1000.0 / PS_PER_S
    more = np.maximum(outcomes.trace.output_tokens - 1, 1)
    each_ms = ((outcomes.ended_ps - outcomes.first_ps) / more)[answered] * 1000.0 / PS_PER_S
    several = outcomes.trace.output_tokens[answered] > 1
    good = (first_ms <= 1000.0 * TTFT_S) & (~several | (each_ms <= 1000.0 * ITL_S))
    found = {"goodput_ratio": float(good.sum()) / len(outcomes.trace)}
    for q, _, percent in _QUANTILES:
        found[f"ttft_{q}_ms"] = float(np.percentile(first_ms, percent))
        found[f"tpot_{q}_ms"] = float(np.percentile(each_ms[several], percent))
    return found
