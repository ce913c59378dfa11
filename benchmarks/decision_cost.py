"""CPU time of one decision in a rehearsal, by part: what a sweep over laws and settings pays beside its simulator.

`python benchmarks/decision_cost.py [--replicas 10 40 200] [--decisions 600] [--out FILE]` prints one JSON row per part
and fleet size: {"part", "replicas", "decisions", "p50_us", "p99_us"}. The parts are those of Tidegate's own law with
forecast, sizing and per-replica signals: scrape (all scrapes between two decisions), observe, histories, size,
forecast, decide, and their sum, `decision`. The fleet is the compiled one under a load that moves like a day's; only
looking at it is timed, not its own time, and its size is fixed, as it is in most decisions of a day. A median above
1 ms at 40 replicas exits 1; a busy machine easily doubles these times.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.app.config import parse_policies
from tidegate.app.config_profile import load_profile
from tidegate.app.sizing import pool_capacities
from tidegate.app.tick import HISTORY_STEPS, levels_of
from tidegate.core.decide import decide
from tidegate.forecast.select import foresee
from tidegate.perf.profile import PS_PER_S
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.fast.fleet import FastFleet
from tidegate.sim.metric_faults import MetricFaults
from tidegate.sim.past import Past
from tidegate.sim.policies import Contender, Wants
from tidegate.sim.rehearse import Conditions, setup_for
from tidegate.sim.setup import FleetSetup, PoolSetup
from tidegate.sim.sight import Sight
from tidegate.sim.trace import Trace
from tidegate.terms.decision import Memory
from tidegate.terms.forecast import Quantity
from tidegate.terms.policy import Mode, ServicePolicy

PROFILE = "a100-llama8b-tp1"
PERIOD_S, SCRAPE_S, WINDOW_S, STEP_S = 15.0, 5.0, 60.0, 30.0
LIMIT_US, LIMIT_REPLICAS = 1000.0, 40

POLICY = """\
apiVersion: tidegate.io/v1alpha1
kind: ServicePolicy
metadata: {{name: chat}}
spec:
  model: meta-llama/Llama-3.1-8B-Instruct
  slos:
    - {{name: ttft, indicator: ttft, percentile: 95, threshold: 1s, window: 28d}}
    - {{name: tpot, indicator: tpot, percentile: 95, threshold: 80ms, window: 28d}}
    - {{name: available, indicator: availability, objective: 0.999, window: 28d}}
  pools:
    - name: main
      role: aggregated
      engine: vllm
      accelerator: nvidia-a100-80gb
      gpusPerReplica: 1
      engineProfile: {profile}
      minReplicas: {replicas}
      maxReplicas: {replicas}
      coldStart: 5m
      costPerHour: 2.5
      scaleTarget: {{kind: Local, name: main}}
"""


def day(replicas: int, seconds: float) -> Trace:
    """Return a load that moves like a day's and that this many replicas carry with ease."""
    rng = np.random.default_rng(1)
    at_s = np.arange(int(seconds))
    came = rng.poisson(2.0 * replicas * (0.6 + 0.4 * np.sin(2.0 * np.pi * at_s / 86_400.0)))
    arrival_s = np.sort(np.repeat(at_s, came) + rng.random(int(came.sum())))
    return Trace(
        name="day",
        arrival_ps=(arrival_s * PS_PER_S).astype(np.int64),
        prompt_tokens=rng.integers(200, 2000, len(arrival_s)),
        output_tokens=rng.integers(20, 400, len(arrival_s)),
    )


class Stopwatch:
    """CPU seconds by part, one entry per decision."""

    def __init__(self) -> None:
        self.spent_s: dict[str, list[float]] = {}
        self._now: dict[str, float] = {}

    def time(self, part: str, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        began = time.process_time()
        made = work(*args, **kwargs)
        self._now[part] = self._now.get(part, 0.0) + time.process_time() - began
        return made

    def end(self) -> None:
        """Close one decision."""
        self._now["decision"] = sum(self._now.values())
        for part, seconds in self._now.items():
            self.spent_s.setdefault(part, []).append(seconds)
        self._now = {}


def measure(replicas: int, decisions: int) -> list[dict[str, object]]:
    policy: ServicePolicy = replace(
        parse_policies(POLICY.format(replicas=replicas, profile=PROFILE), "decision_cost")[0], mode=Mode.ACT
    )
    profile = load_profile(PROFILE)
    wants = Wants(
        period_s=PERIOD_S,
        scrape_interval_s=SCRAPE_S,
        rate_window_s=WINDOW_S,
        replicas=True,
        slis=True,
        histories=(Quantity.REQUESTS_PER_S,),
    )
    pool = policy.pools[0]
    pools = (
        PoolSetup(
            key=pool.key, role=pool.role, profile=profile, cold_start=ColdStart(samples_s=(300.0,)), initial=replicas
        ),
    )
    contender = Contender(name="tidegate", law=decide, start=Memory(), wants=wants)
    setup = setup_for(contender, Conditions(policy=policy, setup=FleetSetup(pools=pools)))
    faults = MetricFaults(faults=())
    past = Past(
        step_s=STEP_S,
        steps=HISTORY_STEPS,
        window_ps=round(WINDOW_S * PS_PER_S),
        quantities=wants.histories,
        faults=faults,
    )
    warm = HISTORY_STEPS * int(STEP_S / PERIOD_S)
    fleet = FastFleet(day(replicas, (decisions + warm) * PERIOD_S), setup)
    sight = Sight(fleet, policy=policy, wants=wants, faults=faults, past=past)
    sizer = partial(pool_capacities, profiles={pool.profile: profile}, elapsed_s=PERIOD_S)
    forecaster = partial(foresee, levels=levels_of([policy]))
    memory, watch = Memory(), Stopwatch()
    capacity: Any = ()
    for turn in range(1, decisions + warm + 1):
        for scrape in range(1, int(PERIOD_S / SCRAPE_S) + 1):
            fleet.run_until(round(((turn - 1) * PERIOD_S + scrape * SCRAPE_S) * PS_PER_S))
            watch.time("scrape", sight.scrape)
        now_s = turn * PERIOD_S
        obs = watch.time("observe", sight.observe, now_s, {})
        capacity = watch.time(
            "size",
            sizer,
            (policy,),
            obs.services,
            cold_starts=sight.membership.cold_starts,
            previous=capacity,
            now_s=now_s,
        )
        horizons = {policy.name: capacity[0].cold_start_p95_s}
        histories = watch.time("histories", sight.histories, now_s)
        forecasts = watch.time("forecast", forecaster, histories, horizons_s=horizons, now_s=now_s)
        _, memory = watch.time("decide", decide, obs, forecasts, capacity, (policy,), memory, now_s=now_s)
        watch.end()
    return [
        {
            "part": part,
            "replicas": replicas,
            "decisions": decisions,
            "p50_us": round(1e6 * float(np.median(spent[warm:])), 1),
            "p99_us": round(1e6 * float(np.quantile(spent[warm:], 0.99)), 1),
        }
        for part, spent in watch.spent_s.items()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, nargs="+", default=[10, 40, 200])
    parser.add_argument("--decisions", type=int, default=600)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = [row for n in options.replicas for row in measure(n, options.decisions)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    sys.stdout.write(lines)
    if options.out is not None:
        options.out.write_text(lines, encoding="utf-8")
    sums = {r["replicas"]: float(str(r["p50_us"])) for r in rows if r["part"] == "decision"}
    return 1 if sums.get(LIMIT_REPLICAS, 0.0) > LIMIT_US else 0


if __name__ == "__main__":
    sys.exit(main())
