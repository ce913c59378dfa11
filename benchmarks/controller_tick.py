"""Time of a whole tick against a real Prometheus, and the memory of the controller process.

`python benchmarks/controller_tick.py [--replicas 10 200] [--ticks 60] [--out FILE]` prints one JSON row per part and
fleet size: {"part", "replicas", "ticks", "p50_ms", "p99_ms"}, and rows of memory, {"part", "replicas", "rss_mib"}: of a
real `tidegate run`, then of this process, which holds all that the controller imports. Prometheus scrapes one page per
replica (the engine twin's own families, counters growing) and a gateway's page, all served by one process; the
membership is made up, everything after it is the controller's own code: queries, join, sizing, forecast, decision,
journal with fsync. A run in which any required signal is unknown at the end fails: it would have measured something
else. Prometheus and the pages share the machine with the tick.
"""

import argparse
import asyncio
import json
import math
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import tidegate.app.controller  # noqa: F401  (all that the real process holds in memory)
from tidegate.app import clock
from tidegate.app.config import parse_policies
from tidegate.app.config_profile import load_profile
from tidegate.app.journal import Journal
from tidegate.app.servers import ScrapeJob, Server, free_port, launch, start_prometheus
from tidegate.app.tick import Before, Ports, Ticked, tick
from tidegate.app.twin.exposition import Exposition, Names, TwinCollector
from tidegate.app.twin.metrics import TwinMetrics
from tidegate.observe.observer import Observer
from tidegate.observe.prometheus import PrometheusReader
from tidegate.observe.prometheus_config import PrometheusConfig
from tidegate.observe.settings import ObserveSettings
from tidegate.terms.decision import Memory
from tidegate.terms.fleet import Membership, Replica, ReplicaState
from tidegate.terms.history import History
from tidegate.terms.observation import Observation
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.signal import Unknown

SCRAPE_S = 2.0
WINDOW_S = 6 * SCRAPE_S
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
PROFILE = "a100-llama8b-tp1"
PER_REPLICA = 2.0  # requests/s
PROMPT_TOKENS, OUTPUT_TOKENS = 900, 180

POLICY = """\
apiVersion: tidegate.io/v1alpha1
kind: ServicePolicy
metadata: {{name: chat}}
spec:
  model: {model}
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
      minReplicas: 1
      maxReplicas: {most}
      coldStart: 60s
      costPerHour: 2.5
      scaleTarget: {{kind: Local, name: main}}
  scaling: {{staleAfter: 15s}}
"""


# --- the pages, in a process of their own ---


class Pages:
    """One engine page that all replicas share and one gateway page, both as old as the last whole second."""

    def __init__(self, replicas: int) -> None:
        profile = load_profile(PROFILE)
        self._replicas = replicas
        self._metrics = TwinMetrics(profile.kv_capacity_tokens)
        self._metrics.running, self._metrics.kv_used_ratio = 8, 0.4
        self._exposition = Exposition(TwinCollector(self._metrics, profile, model=MODEL, names=Names.V1))
        self._finished = 0
        self._began_s = time.monotonic()
        self._engine = b""

    def engine(self) -> bytes:
        """Return the page of any replica."""
        due = int(PER_REPLICA * (time.monotonic() - self._began_s))
        if due > self._finished or not self._engine:
            for _ in range(due - self._finished):
                self._finish()
            self._finished = due
            self._engine = self._exposition.page("text/plain; version=0.0.4")[0]
        return self._engine

    def _finish(self) -> None:
        m = self._metrics
        m.first_token(0.2, PROMPT_TOKENS)
        m.stepped(PROMPT_TOKENS, OUTPUT_TOKENS, 0)
        m.ended["length"] += 1
        m.per_output_token_s.observe(0.03)
        m.e2e_s.observe(6.0)
        m.request_prompt_tokens.observe(PROMPT_TOKENS)
        m.request_generation_tokens.observe(OUTPUT_TOKENS)

    def gateway(self) -> bytes:
        """Return what Envoy would say of the same requests."""
        done = self._replicas * self._finished
        cluster = 'envoy_cluster_name="chat/main"'
        tags = f'service="chat",pool="main",model="{MODEL}"'
        rows = {
            f"envoy_cluster_upstream_rq_total{{{cluster}}}": done,
            f"envoy_cluster_upstream_rq_retry{{{cluster}}}": 0,
            f"envoy_cluster_upstream_rq_active{{{cluster}}}": 8 * self._replicas,
            f"envoy_cluster_upstream_rq_pending_active{{{cluster}}}": 0,
            f'envoy_tg_requests{{{tags},code_class="2xx"}}': done,
            f"envoy_tg_ttft_count{{{tags}}}": done,
            **{f'envoy_tg_ttft_bucket{{{tags},le="{le}"}}': done for le in ("499", "999", "+Inf")},
        }
        return "".join(f"{name} {number}\n" for name, number in rows.items()).encode()


async def serve(port: int, replicas: int) -> None:
    """Serve the pages until killed."""
    pages = Pages(replicas)

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = pages.gateway() if head.startswith(b"GET /gateway") else pages.engine()
                kind = b"text/plain; version=0.0.4"
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (kind, len(body)))
                writer.write(body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


# --- the tick ---


def membership(replicas: int, now_s: float) -> Membership:
    """Return a fleet that has been ready for long."""
    (policy,) = policies(replicas)
    return Membership(
        taken_at_s=now_s,
        replicas=tuple(
            Replica(
                name=f"chat.main.1.{i}",
                pool=policy.pools[0].key,
                state=ReplicaState.READY,
                address=f"127.0.0.1:{20_000 + i}",
                ordered_at_s=now_s - 3600.0,
                ready_at_s=now_s - 3540.0,
            )
            for i in range(replicas)
        ),
    )


def policies(replicas: int) -> tuple[ServicePolicy, ...]:
    """Return one service that may have twice the replicas."""
    return parse_policies(POLICY.format(model=MODEL, profile=PROFILE, most=2 * replicas))


def start_all(replicas: int, folder: Path) -> tuple[Server, Server, str]:
    """Return the pages' server, Prometheus and its URL."""
    port, prometheus_port = free_port(), free_port()
    pages = launch(
        [sys.executable, __file__, "--serve", str(port), "--replicas", str(replicas)],
        name="pages",
        ports=(port,),
        log_path=folder / "pages.log",
        ready_path="/gateway",
    )
    pages.wait_ready()
    targets = folder / "targets.json"
    groups = [
        {
            "targets": [f"127.0.0.1:{port}"],
            "labels": {
                "__metrics_path__": f"/replica/{i}",
                "instance": f"127.0.0.1:{20_000 + i}",
                "service": "chat",
                "pool": "main",
                "replica": f"chat.main.1.{i}",
            },
        }
        for i in range(replicas)
    ]
    targets.write_text(json.dumps(groups), encoding="utf-8")
    prometheus = start_prometheus(
        folder / "prometheus",
        port=prometheus_port,
        scrape_interval_s=SCRAPE_S,
        jobs=(
            ScrapeJob(name="engines", file_sd=str(targets)),
            ScrapeJob(name="envoy", targets=(f"127.0.0.1:{port}",), metrics_path="/gateway"),
        ),
    )
    return pages, prometheus, f"http://127.0.0.1:{prometheus_port}"


class TimedSight:
    """The observer, with the time of each look kept."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.looks_ms: list[float] = []

    def observe(self, chosen: Sequence[ServicePolicy], members: Membership, now_s: float) -> Observation:
        """Return what the observer sees."""
        began_s = time.perf_counter()
        seen = self._observer.observe(chosen, members, now_s)
        self.looks_ms.append((time.perf_counter() - began_s) * 1e3)
        return seen

    def histories(
        self, chosen: Sequence[ServicePolicy], now_s: float, span_s: float, step_s: float
    ) -> tuple[History, ...]:
        """Return past load."""
        return self._observer.histories(chosen, now_s, span_s, step_s)


def measure(replicas: int, ticks: int, folder: Path) -> list[dict[str, object]]:
    """Return the rows of one fleet size."""
    pages, prometheus, url = start_all(replicas, folder)
    with pages, prometheus, Journal(folder / "journal.jsonl") as journal:
        settings = ObserveSettings(rate_window_s=WINDOW_S, scrape_interval_s=SCRAPE_S, stale_after_s=15.0)
        sight = TimedSight(Observer(PrometheusReader(PrometheusConfig(url=url)), settings=settings))
        time.sleep(5.0 + WINDOW_S + 3 * SCRAPE_S)  # targets are applied after up to 5 s; then a window's worth
        wall_ms, cpu_ms = run_ticks(replicas, ticks, sight, journal)
    figures = {"tick": wall_ms, "tick_cpu": cpu_ms, "observe": sight.looks_ms}
    rows: list[dict[str, object]] = [
        {
            "part": part,
            "replicas": replicas,
            "ticks": ticks,
            "p50_ms": _percentile(values_ms, 0.5),
            "p99_ms": _percentile(values_ms, 0.99),
        }
        for part, values_ms in figures.items()
    ]
    return [*rows, {"part": "rss", "replicas": replicas, **_rss()}]


def run_ticks(replicas: int, ticks: int, sight: TimedSight, journal: Journal) -> tuple[list[float], list[float]]:
    """Return wall-clock and CPU milliseconds of each tick, journal included."""
    chosen = policies(replicas)
    ports = Ports(
        sight=sight,
        profiles={PROFILE: load_profile(PROFILE)},
        cold_starts=lambda _: (),
        nodes=None,
        scrape_interval_s=SCRAPE_S,
        decide_every_s=15.0,
    )
    before = Before(memory=Memory(), capacity=())
    wall_ms: list[float] = []
    cpu_ms: list[float] = []
    for number in range(ticks):
        now_s = clock.now_s()
        members = membership(replicas, now_s)
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        ticked = tick(chosen, members, before, ports=ports, interventions=(), receipts=(), now_s=now_s)
        journal.append(ticked.record)
        wall_ms.append((time.perf_counter() - began_s) * 1e3)
        cpu_ms.append((time.process_time() - began_cpu_s) * 1e3)
        before = Before(memory=ticked.record.memory_after, capacity=ticked.record.inputs.capacity)
        if number == ticks - 1:
            _refuse_unknown(ticked, replicas)
    return wall_ms, cpu_ms


def _refuse_unknown(ticked: Ticked, replicas: int) -> None:
    """Refuse a run whose last tick did not see everything."""
    (service,) = ticked.record.inputs.observation.services
    (pool,) = service.pools
    needed = {
        "arrivals": service.arrivals_per_s,
        "running": pool.running_requests,
        "waiting": pool.waiting_requests,
        "finished": pool.finished_per_s,
        "output": pool.output_tokens_per_s,
        **{s.slo: s.attained_ratio for s in service.slis},
    }
    bad = [f"{k}: {s}" for k, s in needed.items() if isinstance(s, Unknown) or s.coverage_ratio < 1.0]
    if bad or len(pool.replicas) != replicas or not ticked.record.inputs.forecasts:
        msg = f"the last tick did not see everything, so its time means nothing: {'; '.join(bad) or 'no forecast'}"
        raise SystemExit(msg)


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))], 1)


def _rss(pid: int | str = "self") -> dict[str, object]:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return {"rss_mib": round(pages * resource.getpagesize() / 2**20, 1)}


def idle_controller(folder: Path) -> dict[str, object]:
    """Return the memory of a real `tidegate run` that serves its page and xDS and has decided a few times."""
    policy, port = folder / "policy.yaml", free_port()
    policy.write_text(POLICY.format(model=MODEL, profile=PROFILE, most=8), encoding="utf-8")
    server = launch(
        [
            *(sys.executable, "-m", "tidegate", "run", "--dry-run", "--decide-every", "1s", "-f", policy),
            *("--prometheus", "http://127.0.0.1:1", "--state-dir", folder / "state"),
            *("--listen", f"127.0.0.1:{port}", "--ads-listen", f"127.0.0.1:{free_port()}"),
        ],
        name="controller",
        ports=(port,),
        log_path=folder / "controller.log",
        ready_path="/healthz",
    )
    with server:
        server.wait_ready()
        time.sleep(5.0)
        return {"part": "rss_of_idle_tidegate_run", "replicas": 0, **_rss(server.pid)}


def main() -> int:
    """Measure and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, nargs="+", default=[10, 200])
    parser.add_argument("--ticks", type=int, default=60)
    parser.add_argument("--out", type=Path, help="also write the rows to this file")
    parser.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve is not None:
        asyncio.run(serve(args.serve, args.replicas[0]))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        lines = json.dumps(idle_controller(Path(folder))) + "\n"
    sys.stdout.write(lines)
    for replicas in args.replicas:
        with tempfile.TemporaryDirectory() as folder:
            for row in measure(replicas, args.ticks, Path(folder)):
                line = json.dumps(row) + "\n"
                sys.stdout.write(line)
                sys.stdout.flush()
                lines += line
    if args.out:
        args.out.write_text(lines, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
