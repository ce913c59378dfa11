"""A Prometheus and everything it scrapes, for the live tests of the observer."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from tests.observe.engines import Engine, Envoy, advancing, key_of, members, policy, ready
from tests.observe.exposition import Exposition

from tidegate.app import servers
from tidegate.app.servers import ScrapeJob
from tidegate.observe.observer import Observer, ObserveSettings
from tidegate.observe.prometheus import PrometheusConfig, PrometheusReader
from tidegate.observe.selftest import ContractReport, contract_report
from tidegate.terms.observation import Observation, PoolObservation, ServiceObservation
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.signal import Known, Signal, Unknown, UnknownReason, Value

SETTINGS = ObserveSettings(rate_window_s=4.0, scrape_interval_s=0.5, stale_after_s=2.0)
V054 = "neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8"
V033 = "meta-llama/Llama-3.1-8B-Instruct"
RAY = "neuralmagic/Meta-Llama-3.1-70B-Instruct-FP8"
QWEN = "Qwen/Qwen3-32B"
Seen = TypeVar("Seen")


@dataclass
class Fleet:
    """One Prometheus and everything it scrapes; engines by replica name."""

    prometheus_url: str = ""
    engines: dict[str, Engine] = field(default_factory=dict)
    envoy: Envoy = field(default_factory=lambda: Envoy(key_of("both")))
    stoppable: Exposition = field(default_factory=Exposition)
    policies: dict[str, ServicePolicy] = field(default_factory=dict)
    address: str = ""

    def observer(self) -> Observer:
        return Observer(PrometheusReader(PrometheusConfig(url=self.prometheus_url)), settings=SETTINGS)

    def look(self, service: str, *names: str, age_s: float = 1000.0) -> ServiceObservation:
        now_s = time.time()
        joined = members(*ready(service, *names, now_s=now_s, age_s=age_s), now_s=now_s)
        seen: Observation = self.observer().observe([self.policies[service]], joined, now_s)
        return seen.services[0]

    def pool(self, service: str, *names: str) -> PoolObservation:
        return self.look(service, *names).pools[0]

    def report(self, *services: str) -> ContractReport:
        reader = PrometheusReader(PrometheusConfig(url=self.prometheus_url))
        chosen = [self.policies[s] for s in services]
        return contract_report(reader, chosen, None, time.time(), settings=SETTINGS)


def until(look: Callable[[], Seen], good: Callable[[Seen], bool]) -> Seen:
    """Return the first look that is good, or the last of those taken in 20 s."""
    deadline_s = time.monotonic() + 20
    while True:
        seen = look()
        if good(seen) or time.monotonic() > deadline_s:
            return seen
        time.sleep(0.2)


def known(signal: Signal) -> float:
    assert isinstance(signal, Known), signal
    return signal.number


def why(signal: Signal) -> UnknownReason:
    assert isinstance(signal, Unknown), signal
    return signal.reason


@pytest.fixture(scope="module", name="fleet")
def running_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    one = Fleet()
    placed = {
        "both": ("both-1", "both-2"),
        "switch": ("switch-1",),
        "vanish": ("vanish-1",),
        "percent": ("percent-1",),
        "idle": ("idle-1",),
        "wrong": ("wrong-1",),
    }
    one.engines = {name: Engine() for names in placed.values() for name in names}
    one.engines["both-2"] = Engine(prefix="vllm_", total="")
    one.engines["percent-1"].kv = 35.0
    one.engines["idle-1"].requests_per_s = 0.0
    one.engines["idle-1"].running = 0.0
    one.engines["wrong-1"].model = "acme/other"
    dumps = {
        "dump054": (advancing("vllm_0.5.4.txt"), V054, "vllm"),
        "dump033": (advancing("synth_vllm_0.33.0.txt"), V033, "vllm"),
        "dump033u": (advancing("synth_vllm_0.33.0.txt", underscore="vllm"), V033, "vllm"),
        "dumpray": (advancing("vllm_0.6_ray_serve.txt"), RAY, "vllm"),
        "dump043": (advancing("sglang_0.4.3.txt"), V033, "sglang"),
        "dump0523": (advancing("synth_sglang_0.5.23_scheduler.txt"), QWEN, "sglang"),
    }
    one.policies = {service: policy(service) for service in (*placed, "gone", "bare", "nowhere")}
    one.policies |= {service: policy(service, model, engine) for service, (_, model, engine) in dumps.items()}
    with contextlib.ExitStack() as running:
        pages = running.enter_context(Exposition())
        running.enter_context(one.stoppable)
        one.address = pages.address
        jobs = [_job(pages, service, name) for service, names in placed.items() for name in names]
        jobs += [_job(pages, service, f"{service}-1") for service in dumps]
        jobs.append(_job(one.stoppable, "gone", "gone-1"))
        jobs.append(ScrapeJob(name="bare", targets=(pages.address,), metrics_path="/bare"))
        jobs.append(
            ScrapeJob(name="twin", targets=(pages.address,), metrics_path="/both-1", labels=_labels("both", "both-1"))
        )
        jobs.append(ScrapeJob(name="envoy", targets=(pages.address,), metrics_path="/envoy"))
        pages.pages = {f"/{name}": engine.page for name, engine in one.engines.items()}
        pages.pages |= {f"/{service}-1": page for service, (page, _, _) in dumps.items()}
        pages.pages |= {"/envoy": one.envoy.page, "/bare": Engine().page}
        one.stoppable.pages = {"/gone-1": Engine().page}
        port = servers.free_port()
        folder = tmp_path_factory.mktemp("prometheus")
        server = servers.start_prometheus(folder, port=port, scrape_interval_s=0.5, jobs=jobs)
        running.enter_context(server)
        one.prometheus_url = f"http://127.0.0.1:{port}"
        scraped = [(s, n) for s, names in placed.items() if s != "wrong" for n in names] + [("gone", "gone-1")]
        scraped += [(service, f"{service}-1") for service in dumps if service not in {"dumpray", "dump0523"}]
        for service, name in scraped:
            until(lambda s=service, n=name: one.pool(s, n).finished_per_s, lambda f: isinstance(f, Known))  # type: ignore[misc]
        until(lambda: one.look("both", "both-1"), lambda s: isinstance(s.arrivals_per_s, Value))
        yield one


def _labels(service: str, replica: str) -> dict[str, str]:
    return {"service": service, "pool": "main", "replica": replica}


def _job(pages: Exposition, service: str, replica: str) -> ScrapeJob:
    return ScrapeJob(
        name=replica, targets=(pages.address,), metrics_path=f"/{replica}", labels=_labels(service, replica)
    )
