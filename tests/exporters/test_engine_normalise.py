"""Engine pages, recorded and altered, in canonical form."""

from pathlib import Path

import pytest

from tidegate.catalogue.canonical import QUANTITIES
from tidegate.catalogue.engines_vllm import VLLM
from tidegate.exporters.engine_fetch import EnginePage, Failed, parse
from tidegate.exporters.engine_normalise import Normalised, normalise

DATA = Path(__file__).parents[1] / "data" / "metrics"
NOW_S = 1_000_000.0


def page(text: str) -> EnginePage:
    found = parse(text)
    assert isinstance(found, EnginePage)
    return found


def of(text: str) -> Normalised:
    return normalise(page(text), VLLM, now_s=NOW_S)


def state(found: Normalised, quantity: str) -> tuple[str, str, str]:
    (finding,) = [f for f in found.findings if f.quantity.name == quantity]
    return finding.state, finding.alias, finding.reason


def values(found: Normalised, name: str, suffix: str = "") -> dict[tuple[str, ...], float]:
    return {tuple(v for _, v in s.labels): s.value for s in found.samples.get(name, ()) if s.suffix == suffix}


def test_normalise_reads_a_current_vllm() -> None:
    found = of((DATA / "synth_vllm_0.33.0.txt").read_text())
    model = "meta-llama/Llama-3.1-8B-Instruct"
    assert values(found, "tidegate_engine_running_requests") == {(model, "0"): 20.0}
    assert values(found, "tidegate_engine_waiting_requests") == {(model, "0"): 9.0}
    assert values(found, "tidegate_engine_kv_used_ratio") == {(model, "0"): 0.5828}
    assert values(found, "tidegate_engine_preemptions_total") == {(model, "0"): 9156.0}
    assert {f.quantity.name for f in found.findings} == {q.name for q in QUANTITIES}
    assert [f.quantity.name for f in found.findings if f.state != "found"] == []


def test_normalise_adds_up_finish_reasons() -> None:
    found = of((DATA / "synth_vllm_0.33.0.txt").read_text())
    raw = page((DATA / "synth_vllm_0.33.0.txt").read_text()).samples["vllm:request_success_total"]
    assert len(raw) > 1
    assert list(values(found, "tidegate_engine_finished_requests_total").values()) == [sum(s.value for s in raw)]


def test_normalise_reads_an_old_vllm_by_its_old_names_and_keeps_models_apart() -> None:
    found = of((DATA / "vllm_0.5.4.txt").read_text())
    assert state(found, "kv_used_ratio") == ("found", "vllm:gpu_cache_usage_perc", "")
    waiting = values(found, "tidegate_engine_waiting_requests")
    assert waiting[("other/OTHER", "")] == 3.0
    assert len(waiting) == 2
    assert state(found, "itl")[1] == "vllm:time_per_output_token_seconds"
    assert state(found, "tpot") == ("missing", "", "")


def test_normalise_reads_ray_serve_spelling() -> None:
    found = of((DATA / "vllm_0.6_ray_serve.txt").read_text())
    assert state(found, "running_requests")[:2] == ("found", "ray_vllm:num_requests_running")
    assert state(found, "itl")[:2] == ("found", "ray_vllm:time_per_output_token_seconds")


def test_normalise_prefers_the_newer_alias_when_both_are_exposed() -> None:
    found = of("vllm:gpu_cache_usage_perc 0.1\nvllm:kv_cache_usage_perc 0.2\n")
    assert state(found, "kv_used_ratio")[1] == "vllm:kv_cache_usage_perc"
    assert values(found, "tidegate_engine_kv_used_ratio") == {("", ""): 0.2}


@pytest.mark.parametrize(
    ("text", "quantity", "expected"),
    [
        ("vllm:kv_cache_usage_perc -1\n", "kv_used_ratio", ("suspect", "sentinel")),
        ("vllm:kv_cache_usage_perc 58.3\n", "kv_used_ratio", ("suspect", "above_range")),
        ("vllm:kv_cache_usage_perc NaN\n", "kv_used_ratio", ("suspect", "not_a_number")),
        ("vllm:num_requests_running +Inf\n", "running_requests", ("suspect", "infinite")),
        ("vllm:num_requests_running -3\n", "running_requests", ("suspect", "negative")),
        (
            "# TYPE vllm:prompt_tokens_total gauge\nvllm:prompt_tokens_total 3\n",
            "prompt_tokens",
            ("suspect", "type_gauge"),
        ),
        (f"vllm:num_requests_running 1 {int((NOW_S - 61) * 1000)}\n", "running_requests", ("stale", "old_timestamp")),
        ("vllm:other 1\n", "running_requests", ("missing", "")),
    ],
)
def test_normalise_leaves_out_and_names_what_it_does_not_believe(
    text: str, quantity: str, expected: tuple[str, str]
) -> None:
    found = of(text)
    assert found.samples == {}
    kind, _, reason = state(found, quantity)
    assert (kind, reason) == expected


@pytest.mark.parametrize("value", [0.0, 1.0, 1.04])
def test_normalise_keeps_a_ratio_at_its_borders(value: float) -> None:
    found = of(f"vllm:kv_cache_usage_perc {value}\n")
    assert values(found, "tidegate_engine_kv_used_ratio") == {("", ""): value}


def test_normalise_counts_copies_of_one_gauge_once_and_ranks_apart() -> None:
    found = of(
        'vllm:num_requests_running{engine="0",pid="1"} 5\nvllm:num_requests_running{engine="0",pid="2"} 0\n'
        'vllm:num_requests_running{engine="1",pid="1"} 7\n'
    )
    assert values(found, "tidegate_engine_running_requests") == {("", "0"): 5.0, ("", "1"): 7.0}


def test_normalise_passes_histograms_through_with_their_bounds() -> None:
    text = (
        "# TYPE vllm:time_to_first_token_seconds histogram\n"
        'vllm:time_to_first_token_seconds_bucket{le="0.5"} 3\nvllm:time_to_first_token_seconds_bucket{le="+Inf"} 4\n'
        "vllm:time_to_first_token_seconds_sum 2.5\nvllm:time_to_first_token_seconds_count 4\n"
    )
    found = of(text)
    assert values(found, "tidegate_engine_ttft_seconds", "_bucket") == {("", "", "0.5"): 3.0, ("", "", "+Inf"): 4.0}
    assert values(found, "tidegate_engine_ttft_seconds", "_sum") == {("", ""): 2.5}
    assert values(found, "tidegate_engine_ttft_seconds", "_count") == {("", ""): 4.0}


@pytest.mark.parametrize("text", ["", "<html>\n<body>hello</body>\n", '{"a": 1}', "a{b 1\n", "\x00\x01\x02"])
def test_parse_says_that_a_page_is_no_metrics(text: str) -> None:
    found = parse(text)
    assert isinstance(found, Failed)
    assert found.reason == "not_metrics"
