"""Time of one tick without Prometheus: forecast, decide, encode, journal; and the memory of the process.

python benchmarks/tick.py [--replicas 10 200] [--ticks 200] [--out FILE]

Prints one JSON row per part and fleet size: {"part", "replicas", "ticks", "p50_ms", "p99_ms"}, then one row of memory:
{"part": "rss", "replicas", "rss_mib"}. The journal is written with fsync in a temporary folder, so its figure is that
of the disk under it.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from tidegate.app import codec
from tidegate.app.journal import Journal, last
from tidegate.app.record import TickInputs, TickRecord
from tidegate.core.decide import decide
from tidegate.forecast.select import foresee
from tidegate.terms.capacity import CapacitySource, PoolCapacity
from tidegate.terms.decision import Memory
from tidegate.terms.fleet import EngineKind, PoolKey, Replica, ReplicaState, Role
from tidegate.terms.forecast import Quantity
from tidegate.terms.history import History
from tidegate.terms.observation import Observation, PoolObservation, ReplicaObservation, ServiceObservation, SliReading
from tidegate.terms.policy import (
    BudgetPolicy,
    CachePolicy,
    GatewayPolicy,
    Mode,
    Parallelism,
    PoolPolicy,
    ScaleTarget,
    ScalingPolicy,
    ServicePolicy,
    TargetKind,
)
from tidegate.terms.signal import Signal, combine, reading
from tidegate.terms.slo import Indicator, Slo

T = TypeVar("T")
KEY = PoolKey(service="chat", pool="main")
START_S = 1_800_000_000.0
TICK_S = 15.0
HISTORY_STEPS = 120
PER_REPLICA = 2.3  # requests/s


def policy(replicas: int) -> ServicePolicy:
    """Return a service whose one pool may have twice the replicas."""
    pool = PoolPolicy(
        key=KEY,
        role=Role.AGGREGATED,
        engine=EngineKind.VLLM,
        accelerator="nvidia-a100-80gb",
        gpus_per_replica=1,
        parallelism=Parallelism(),
        profile="a100-llama8b-tp1",
        min_replicas=1,
        max_replicas=2 * replicas,
        cold_start_prior_s=60.0,
        cost_usd_per_h=2.5,
        target=ScaleTarget(kind=TargetKind.LOCAL, name="main"),
    )
    day_s = 86_400.0
    return ServicePolicy(
        name=KEY.service,
        model="meta-llama/Llama-3.1-8B-Instruct",
        mode=Mode.ACT,
        priority=100,
        slos=(
            Slo(name="ttft", indicator=Indicator.TTFT, objective_ratio=0.95, threshold_s=1.0, window_s=28 * day_s),
            Slo(name="tpot", indicator=Indicator.TPOT, objective_ratio=0.95, threshold_s=0.08, window_s=28 * day_s),
        ),
        pools=(pool,),
        scaling=ScalingPolicy(
            max_grow_replicas=8,
            max_shrink_replicas=2,
            shrink_stabilisation_s=None,
            target_utilisation_ratio=0.85,
            forecast_quantile=0.9,
            stale_after_s=60.0,
        ),
        budget=BudgetPolicy(max_gpus=4 * replicas),
        gateway=GatewayPolicy(retries=3, idle_timeout_s=300.0, max_body_bytes=8 << 20),
        cache=CachePolicy(),
    )


def load_per_s(replicas: int, tick: int) -> float:
    """Return a load that keeps the fleet moving around `replicas`."""
    return PER_REPLICA * replicas * (0.7 + 0.2 * math.sin(tick / 9.0) + 0.05 * math.sin(tick * 2.1))


def observation(replicas: int, tick: int, now_s: float) -> Observation:
    """Return a fleet in which every replica reports every signal."""
    load = load_per_s(replicas, tick)

    def seen(number: float) -> Signal:
        return reading(number, sampled_at_s=now_s - 3.0, coverage_ratio=1.0, source="vllm:num_requests_running")

    members = []
    for i in range(replicas):
        share = load / replicas * (1.0 + 0.1 * math.sin(i + tick))
        one = Replica(
            name=f"chat.main.{i}.0",
            pool=KEY,
            state=ReplicaState.READY,
            address=f"127.0.0.1:{20_000 + i}",
            node=f"node-{i % 25}",
            ordered_at_s=START_S - 600.0,
            ready_at_s=START_S - 540.0,
        )
        members.append(
            ReplicaObservation(
                replica=one,
                running_requests=seen(share * 4.0),
                waiting_requests=seen(0.0),
                kv_used_ratio=seen(min(1.0, share / 4.0)),
                finished_per_s=seen(share),
                prompt_tokens_per_s=seen(share * 900.0),
                output_tokens_per_s=seen(share * 180.0),
                preemptions_per_s=seen(0.0),
            )
        )

    def summed(name: str) -> Signal:
        return combine([getattr(m, name) for m in members], expected=replicas, source=name, now_s=now_s)

    pool = PoolObservation(
        key=KEY,
        replicas=tuple(members),
        running_requests=summed("running_requests"),
        waiting_requests=summed("waiting_requests"),
        finished_per_s=summed("finished_per_s"),
        output_tokens_per_s=summed("output_tokens_per_s"),
        gateway_in_flight_requests=seen(load * 4.0),
        gateway_pending_requests=seen(0.0),
    )
    service = ServiceObservation(
        service=KEY.service,
        arrivals_per_s=seen(load),
        prompt_tokens_mean=seen(900.0),
        output_tokens_mean=seen(180.0),
        failed_per_s=seen(0.0),
        slis=tuple(
            SliReading(slo=name, attained_ratio=seen(0.99), quantile_s=seen(0.3), source="gateway", threshold_s=1.0)
            for name in ("ttft", "tpot")
        ),
        pools=(pool,),
    )
    return Observation(observed_at_s=now_s, services=(service,))


def history(replicas: int, tick: int) -> History:
    """Return the load of the last two hours or so, up to this tick."""
    return History(
        service=KEY.service,
        quantity=Quantity.REQUESTS_PER_S,
        step_s=TICK_S,
        samples=tuple((START_S + TICK_S * t, load_per_s(replicas, t)) for t in range(tick - HISTORY_STEPS, tick + 1)),
        source="gateway",
    )


def timed(spent_ms: list[float], call: Callable[[], T]) -> T:
    """Return what `call` returns and add its milliseconds to `spent_ms`."""
    began = time.perf_counter()
    result = call()
    spent_ms.append((time.perf_counter() - began) * 1e3)
    return result


def measure(replicas: int, ticks: int, folder: Path) -> list[dict[str, object]]:
    """Return one row per part of the tick."""
    chosen = policy(replicas)
    capacity = PoolCapacity(
        key=KEY,
        requests_per_s=PER_REPLICA,
        source=CapacitySource.PROFILE,
        prompt_tokens=900.0,
        output_tokens=180.0,
        binding="tpot",
        cold_start_p50_s=50.0,
        cold_start_p95_s=60.0,
        cold_starts_seen=9,
    )
    memory = Memory()
    spent: dict[str, list[float]] = {
        n: [] for n in ("forecast", "decide", "encode", "journal", "tick_without_prometheus")
    }
    path = folder / f"{replicas}.jsonl"
    with Journal(path) as journal:
        for tick in range(ticks):
            now_s = START_S + TICK_S * tick
            seen, past = observation(replicas, tick, now_s), history(replicas, tick)
            began = time.perf_counter()
            forecasts = timed(spent["forecast"], partial(foresee, (past,), horizons_s={"chat": 60.0}, now_s=now_s))
            inputs = TickInputs(
                observation=seen,
                forecasts=forecasts,
                capacity=(capacity,),
                policies=(chosen,),
                memory=memory,
                now_s=now_s,
            )
            decision, memory = timed(
                spent["decide"],
                partial(decide, seen, forecasts, inputs.capacity, inputs.policies, memory, now_s=now_s),
            )
            record = TickRecord(inputs=inputs, decision=decision, memory_after=memory)
            timed(spent["journal"], partial(journal.append, record))
            spent["tick_without_prometheus"].append((time.perf_counter() - began) * 1e3)
            timed(spent["encode"], partial(_encode, record))
    spent["last_record"] = []
    for _ in range(20):
        timed(spent["last_record"], lambda: last(path))
    rows: list[dict[str, object]] = [
        {
            "part": part,
            "replicas": replicas,
            "ticks": len(values),
            "p50_ms": round(percentile(values, 0.50), 3),
            "p99_ms": round(percentile(values, 0.99), 3),
        }
        for part, values in spent.items()
    ]
    rows.append({"part": "journal_line", "replicas": replicas, "bytes": path.stat().st_size // ticks})
    rows.append({"part": "rss", "replicas": replicas, "rss_mib": round(rss_mib(), 1)})
    return rows


def _encode(record: TickRecord) -> str:
    return codec.dumped(codec.to_document(record))


def percentile(values: list[float], share: float) -> float:
    """Return the nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


def rss_mib() -> float:
    """Return the resident memory of this process now."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * 4096 / 2**20


def main() -> int:
    """Measure and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, nargs="+", default=[10, 200])
    parser.add_argument("--ticks", type=int, default=200)
    parser.add_argument("--out", type=Path, help="also write the rows to this file")
    args = parser.parse_args()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for replicas in args.replicas:
            rows += measure(replicas, args.ticks, Path(folder))
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    sys.stdout.write(lines)
    if args.out:
        args.out.write_text(lines, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
