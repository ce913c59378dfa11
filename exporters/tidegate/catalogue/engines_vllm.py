"""vLLM's names, V0 and V1, releases 0.2.7 to 0.33.0.

Evidence: presence of each name in the source tree or wheel of the releases named, and recorded expositions of 0.5.4 and
0.33. Names are stored with a colon or, when a newer Python client answered an OpenMetrics scrape, with an underscore;
Ray Serve puts `ray_` in front. Counters lost `_total` in source around 0.9 while the wire kept it.
"""

from tidegate.catalogue.quantity import Alias, EngineCatalogue

_TREE = "release trees and wheels 0.2.7 to 0.33.0"
_COUNTER = ("_total", "")

VLLM = EngineCatalogue(
    engine="vllm",
    prefixes=("vllm:", "vllm_", "ray_vllm:", "ray_vllm_"),
    model_label="model_name",
    # A gauge without an aggregation mode appears once per API process, so `pid` is a copy; `engine` (data-parallel
    # rank) is not: those are summed.
    copies=("pid",),
    total_label="",
    aliases={
        "running_requests": (Alias(base="num_requests_running", evidence=_TREE),),
        "waiting_requests": (Alias(base="num_requests_waiting", evidence=_TREE),),
        "kv_used_ratio": (
            Alias(
                base="kv_cache_usage_perc",
                first="0.9.2",
                evidence=_TREE,
                sentinels=(-1.0,),
                note="a ratio in spite of its name",
            ),
            Alias(base="gpu_cache_usage_perc", last="0.11.0", evidence=_TREE, sentinels=(-1.0,)),
        ),
        "finished_requests": (
            Alias(
                base="request_success",
                first="0.4.2",
                evidence=_TREE,
                suffixes=_COUNTER,
                note="counts every finish reason, not success only; n > 1 counts each sequence",
            ),
        ),
        "prompt_tokens": (Alias(base="prompt_tokens", first="0.3.3", evidence=_TREE, suffixes=_COUNTER),),
        "output_tokens": (Alias(base="generation_tokens", first="0.3.3", evidence=_TREE, suffixes=_COUNTER),),
        "preemptions": (Alias(base="num_preemptions", first="0.4.3", evidence=_TREE, suffixes=_COUNTER),),
        "prompt_length": (Alias(base="request_prompt_tokens", first="0.4.2", evidence=_TREE),),
        "output_length": (Alias(base="request_generation_tokens", first="0.4.2", evidence=_TREE),),
        "ttft": (Alias(base="time_to_first_token_seconds", first="0.3.3", evidence=_TREE),),
        "tpot": (Alias(base="request_time_per_output_token_seconds", first="0.11.0", evidence=_TREE),),
        "itl": (
            Alias(base="inter_token_latency_seconds", first="0.10.2", evidence=_TREE),
            Alias(
                base="time_per_output_token_seconds",
                first="0.3.3",
                last="0.12.0",
                evidence=_TREE,
                note="per token step in spite of its name",
            ),
        ),
        "e2e": (Alias(base="e2e_request_latency_seconds", first="0.3.3", evidence=_TREE),),
    },
)
