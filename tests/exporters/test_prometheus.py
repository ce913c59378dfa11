"""A real Prometheus scrapes the exporters' pages."""

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidegate.app.servers import ScrapeJob, Server
from tidegate.catalogue.engines_vllm import VLLM
from tidegate.exporters.engine import EngineExporter, Scrape
from tidegate.exporters.engine_fetch import EnginePage, Failed, parse
from tidegate.exporters.engine_normalise import normalise
from tidegate.exporters.exposition import render
from tidegate.exporters.serve import MetricsServer

pytestmark = pytest.mark.e2e
PAGE = (Path(__file__).parents[1] / "data" / "metrics" / "synth_vllm_0.33.0.txt").read_text()
WAIT_S = 30.0


def ask(server: Server, path: str, **parameters: str) -> Any:  # noqa: ANN401  (JSON)
    query = urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/api/v1/{path}?{query}", timeout=10) as answer:
        return json.load(answer)["data"]


def until_found(server: Server, query: str) -> list[Any]:
    deadline_s = time.monotonic() + WAIT_S
    while not (found := ask(server, "query", query=query)["result"]):
        assert time.monotonic() < deadline_s, f"no result for {query}"
        time.sleep(0.2)
    return list(found)


def engine_page() -> str:
    page = parse(PAGE)
    assert isinstance(page, EnginePage)
    scrapes = [
        Scrape(target="http://a/metrics", result=normalise(page, VLLM, now_s=0.0), duration_s=0.1),
        Scrape(target="http://b/metrics", result=Failed(reason="timeout", detail=""), duration_s=5.0),
    ]
    exporter = EngineExporter(["http://a", "http://b"], engine="vllm", timeout_s=1.0, clock=lambda: 0.0)
    return render(exporter.families(scrapes))


def test_prometheus_stores_what_the_engine_exporter_serves(prometheus_factory: Callable[..., Server]) -> None:
    exporter = MetricsServer("127.0.0.1:0", engine_page)
    exporter.start()
    try:
        job = ScrapeJob(name="engines", targets=(f"127.0.0.1:{exporter.port}",))
        server = prometheus_factory(jobs=(job,))
        (running,) = until_found(server, "tidegate_engine_running_requests")
        assert running["value"][1] == "20"
        assert running["metric"]["target"] == "http://a/metrics"
        (down,) = until_found(server, "tidegate_exporter_engine_up == 0")
        assert down["metric"]["reason"] == "timeout"
        assert until_found(server, "histogram_quantile(0.5, tidegate_engine_ttft_seconds_bucket)")
        kinds = ask(server, "metadata", metric="tidegate_engine_output_tokens_total")
        assert kinds["tidegate_engine_output_tokens_total"][0]["type"] == "counter"
    finally:
        exporter.stop()
