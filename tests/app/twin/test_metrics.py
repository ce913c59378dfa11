"""The twin's metrics page: vLLM's names, types, labels and bounds."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.app.twin.twin_process import MODEL, TwinFactory

OWN = f'engine="0",model_name="{MODEL}"'

# Bounds as vLLM ships them since 0.8.4.
BOUNDS = {
    "vllm:time_to_first_token_seconds": (
        ".001 .005 .01 .02 .04 .06 .08 .1 .25 .5 .75 1 2.5 5 7.5 10 20 40 80 160 640 2560"
    ),
    "vllm:inter_token_latency_seconds": ".01 .025 .05 .075 .1 .15 .2 .3 .4 .5 .75 1 2.5 5 7.5 10 20 40 80",
    "vllm:request_time_per_output_token_seconds": ".01 .025 .05 .075 .1 .15 .2 .3 .4 .5 .75 1 2.5 5 7.5 10 20 40 80",
    "vllm:e2e_request_latency_seconds": ".3 .5 .8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680",
    "vllm:request_queue_time_seconds": ".3 .5 .8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680",
    "vllm:iteration_tokens_total": "1 8 16 32 64 128 256 512 1024 2048 4096 8192 16384",
}
TYPES = {
    "vllm:num_requests_running": "gauge",
    "vllm:num_requests_waiting": "gauge",
    "vllm:kv_cache_usage_perc": "gauge",
    "vllm:cache_config_info": "gauge",
    "vllm:engine_sleep_state": "gauge",
    "vllm:num_preemptions": "counter",
    "vllm:prompt_tokens": "counter",
    "vllm:generation_tokens": "counter",
    "vllm:request_success": "counter",
    "vllm:prefix_cache_queries": "counter",
    "vllm:prefix_cache_hits": "counter",
    "http_requests": "counter",
    **dict.fromkeys(BOUNDS, "histogram"),
}


def names(page: str) -> Iterator[str]:
    return (line.partition("{")[0].partition(" ")[0] for line in page.splitlines() if not line.startswith("#"))


def test_metrics_count_what_was_served(start_twin: TwinFactory) -> None:
    twin = start_twin()
    before = twin.series()
    twin.ask(tokens=5, prompt="a b c d")
    twin.ask(tokens=2, stream=True).close()
    twin.ask(tokens=2, stream=True).content  # noqa: B018  (reads the stream to its end)
    after = twin.series()

    def grew(name: str, labels: str = OWN) -> float:
        key = f"{name}{{{labels}}}"
        return after[key] - before[key]

    assert grew("vllm:time_to_first_token_seconds_count") >= 2
    assert grew("vllm:prompt_tokens_total") >= 4 + 3
    assert grew("vllm:request_success_total", f'engine="0",finished_reason="length",model_name="{MODEL}"') >= 2
    assert grew("vllm:inter_token_latency_seconds_count") == (
        grew("vllm:generation_tokens_total") - grew("vllm:time_to_first_token_seconds_count")
    )
    assert after[f"vllm:kv_cache_usage_perc{{{OWN}}}"] == 0.0


def test_metrics_have_the_engine_s_types_and_bounds(start_twin: TwinFactory) -> None:
    page = requests.get(f"{start_twin().url}/metrics", timeout=10).text
    families = {family.name: family for family in parse_text(page)}

    assert {name: families[name].type for name in TYPES} == TYPES
    for name, bounds in BOUNDS.items():
        found = [s.labels["le"] for s in families[name].samples if s.name.endswith("_bucket")]
        assert [float(le) for le in found] == [*map(float, bounds.split()), float("inf")]


def test_metrics_invent_no_family_under_the_engine_s_prefix(start_twin: TwinFactory) -> None:
    recorded = Path(__file__).parents[2] / "data" / "twin" / "vllm_0.33_families.txt"
    known = set(recorded.read_text(encoding="utf-8").split())

    served = set(names(requests.get(f"{start_twin().url}/metrics", timeout=10).text))

    ours = {name for name in served if name.startswith("vllm:")}
    # Nothing under the engine's prefix that the engine does not serve itself. The record lacks this one info gauge,
    # which the engine has served since 0.5.5.
    assert ours - known <= {"vllm:cache_config_info"}
    assert len(ours) > 30


def test_metrics_are_escaped_for_an_openmetrics_scraper_as_the_engine_s_are(start_twin: TwinFactory) -> None:
    answer = requests.get(
        f"{start_twin().url}/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}, timeout=10
    )

    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert "vllm_num_requests_running{" in answer.text
    assert answer.text.endswith("# EOF\n")


def test_metrics_keep_colons_for_an_openmetrics_scraper_that_takes_utf_8(start_twin: TwinFactory) -> None:
    accept = "application/openmetrics-text; version=1.0.0; escaping=allow-utf-8"
    page = requests.get(f"{start_twin().url}/metrics", headers={"Accept": accept}, timeout=10).text

    assert "vllm:num_requests_running" in {family.name for family in parse_openmetrics(page)}  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("mode", "there", "gone"),
    [
        ("v0", "vllm:gpu_cache_usage_perc{", "kv_cache_usage_perc"),
        ("v0", "vllm:time_per_output_token_seconds_bucket{", "inter_token"),
        ("underscore", "vllm_num_requests_running{", "vllm:"),
        ("renamed", "llmserver:", "vllm"),
    ],
)
def test_metrics_take_other_names_on_request(start_twin: TwinFactory, mode: str, there: str, gone: str) -> None:
    twin = start_twin()
    answer = requests.post(f"{twin.url}/admin/metrics-names", json={"names": mode}, timeout=10)
    page = requests.get(f"{twin.url}/metrics", timeout=10).text

    assert answer.json() == {"names": mode}
    assert there in page
    assert gone not in page
    assert ('engine="0"' in page) == (mode != "v0")


def test_metrics_refuse_names_they_do_not_know(start_twin: TwinFactory) -> None:
    twin = start_twin()
    for body in (b"", b"[]", b'{"names": "v9"}', b'{"names": []}'):
        assert requests.post(f"{twin.url}/admin/metrics-names", data=body, timeout=10).status_code == 400


def test_metrics_lose_their_names_on_a_signal_and_find_them_again(start_twin: TwinFactory) -> None:
    twin = start_twin("--metrics-names", "v1")
    known = f"vllm:num_requests_running{{{OWN}}}"
    seen = []
    for _ in range(2):
        twin.process.send_signal(signal.SIGUSR1)
        requests.get(f"{twin.url}/health", timeout=10)  # the loop runs signal handlers before it answers this
        seen.append(known in twin.series())

    assert seen == [False, True]


def test_metrics_count_a_client_that_left_as_aborted_and_free_its_kv(start_twin: TwinFactory) -> None:
    twin = start_twin()
    stream = twin.ask(stream=True, tokens=100_000)
    pieces = stream.iter_content(10)  # kept: a reader that is dropped closes its connection
    next(pieces)
    running = twin.series()[f"vllm:num_requests_running{{{OWN}}}"]
    stream.close()

    # The twin learns of it within a loop turn or two of the kernel.
    aborted = f'vllm:request_success_total{{engine="0",finished_reason="abort",model_name="{MODEL}"}}'
    after = twin.series()
    for _ in range(100):
        if after[aborted]:
            break
        after = twin.series()

    assert running == 1.0
    assert after[aborted] == 1.0
    assert after[f"vllm:num_requests_running{{{OWN}}}"] == 0.0
    assert after[f"vllm:kv_cache_usage_perc{{{OWN}}}"] == 0.0


def test_metrics_count_http_answers_by_handler_and_class(start_twin: TwinFactory) -> None:
    twin = start_twin()
    twin.ask(tokens=1)
    requests.get(f"{twin.url}/x", timeout=10)
    series = twin.series()

    assert series['http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"}'] == 1.0
    assert series['http_requests_total{handler="none",method="GET",status="4xx"}'] == 1.0
    assert series["tidegate_twin_lag_seconds"] >= 0.0
