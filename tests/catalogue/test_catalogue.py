"""The catalogue against itself and against recorded expositions."""

import re
from pathlib import Path

import pytest

from tidegate.catalogue.canonical import BY_NAME, QUANTITIES
from tidegate.catalogue.engines import ENGINES
from tidegate.catalogue.own import OWN, PREFIX, TWIN
from tidegate.catalogue.quantity import Kind
from tidegate.terms.fleet import EngineKind

DUMPS = Path(__file__).parents[1] / "data" / "metrics"
SUFFIX = {Kind.GAUGE: "", Kind.COUNTER: "", Kind.HISTOGRAM: "_bucket"}


def names_in(dump: str) -> set[str]:
    text = (DUMPS / dump).read_text(encoding="utf-8")
    return {re.split(r"[{ ]", line, maxsplit=1)[0] for line in text.splitlines() if line and not line.startswith("#")}


def test_every_engine_of_a_policy_has_a_catalogue() -> None:
    assert set(ENGINES) == {kind.value for kind in EngineKind}


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_every_alias_is_of_a_known_quantity_and_says_where_it_was_seen(engine: str) -> None:
    for quantity, aliases in ENGINES[engine].aliases.items():
        assert quantity in BY_NAME
        assert aliases
        for alias in aliases:
            assert alias.evidence


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_every_required_quantity_has_a_name_in_every_engine(engine: str) -> None:
    for quantity in QUANTITIES:
        if quantity.required:
            assert ENGINES[engine].spellings(quantity.name), quantity.name


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_no_name_stands_for_two_quantities(engine: str) -> None:
    owner: dict[str, str] = {}
    for quantity in QUANTITIES:
        for name, _ in ENGINES[engine].spellings(quantity.name):
            assert owner.setdefault(name, quantity.name) == quantity.name


@pytest.mark.parametrize(
    ("engine", "dump", "missing"),
    [
        # TPOT per request came with 0.11.0.
        ("vllm", "vllm_0.5.4.txt", {"tpot"}),
        ("vllm", "synth_vllm_0.33.0.txt", set()),
        # The Ray wrapper of that time passed on a part only.
        (
            "vllm",
            "vllm_0.6_ray_serve.txt",
            {"finished_requests", "preemptions", "prompt_length", "output_length", "tpot", "e2e"},
        ),
        ("sglang", "sglang_0.4.3.txt", {"preemptions", "prompt_length", "output_length", "tpot"}),
    ],
)
def test_recorded_exposition_has_every_quantity_but_those_known_to_be_missing(
    engine: str, dump: str, missing: set[str]
) -> None:
    there = names_in(dump)
    absent = {
        quantity.name
        for quantity in QUANTITIES
        if not any(f"{name}{SUFFIX[quantity.kind]}" in there for name, _ in ENGINES[engine].spellings(quantity.name))
    }
    assert absent == missing


def test_spellings_prefer_the_newest_alias_with_the_colon() -> None:
    names = [name for name, _ in ENGINES["vllm"].spellings("kv_used_ratio")]
    assert names[:2] == ["vllm:kv_cache_usage_perc", "vllm_kv_cache_usage_perc"]
    assert names.index("vllm:gpu_cache_usage_perc") > names.index("vllm_kv_cache_usage_perc")


def test_additions_keep_the_prefix_of_the_name_they_belong_to() -> None:
    sglang = ENGINES["sglang"]
    for name, alias in sglang.spellings("waiting_requests"):
        assert sglang.additions(name, alias) == (name.replace("num_queue_reqs", "num_grammar_queue_reqs"),)


def test_own_metrics_are_named_once_and_by_the_rules() -> None:
    assert len({m.name for m in (*OWN, *TWIN)}) == len(OWN) + len(TWIN)
    for metric in (*OWN, *TWIN):
        assert metric.name.startswith(PREFIX)
        assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
        assert (metric.kind is Kind.HISTOGRAM) == bool(metric.buckets)
        assert list(metric.buckets) == sorted(metric.buckets)
        assert metric.meaning.endswith(".")
