"""SGLang's names, packages 0.4.1 to 0.5.23.

Evidence: presence of each name in the packages named, and recorded expositions of 0.4.3 and 0.5.23 (scheduler).
"""

from tidegate.catalogue.quantity import Alias, EngineCatalogue

_PACKAGES = "packages 0.4.1 to 0.5.23"

SGLANG = EngineCatalogue(
    engine="sglang",
    prefixes=("sglang:", "sglang_"),
    model_label="model_name",
    # An option exports every tensor-parallel rank; each repeats the scheduler's one truth. `dp_rank` does not: summed.
    copies=("tp_rank", "pp_rank", "moe_ep_rank", "pid"),
    # With priority scheduling, priority="" is the total and the other values are its parts.
    total_label="priority",
    aliases={
        "running_requests": (Alias(base="num_running_reqs", evidence=_PACKAGES),),
        "waiting_requests": (Alias(base="num_queue_reqs", evidence=_PACKAGES, plus=("num_grammar_queue_reqs",)),),
        "kv_used_ratio": (Alias(base="token_usage", evidence=_PACKAGES, sentinels=(-1.0,)),),
        "finished_requests": (
            Alias(base="num_requests", first="0.4.6", evidence=_PACKAGES, suffixes=("_total",)),
            Alias(
                base="e2e_request_latency_seconds",
                evidence=_PACKAGES,
                suffixes=("_count",),
                note="the histogram's count; 0.4.1 to 0.4.3 have no request counter",
            ),
        ),
        "prompt_tokens": (Alias(base="prompt_tokens", evidence=_PACKAGES, suffixes=("_total",)),),
        "output_tokens": (Alias(base="generation_tokens", evidence=_PACKAGES, suffixes=("_total",)),),
        "preemptions": (
            Alias(
                base="num_retracted_requests",
                first="0.5.10",
                evidence=_PACKAGES,
                suffixes=("_total",),
                note="SGLang's word for preempted",
            ),
        ),
        "prompt_length": (Alias(base="prompt_tokens_histogram", first="0.4.10", evidence=_PACKAGES),),
        "output_length": (Alias(base="generation_tokens_histogram", first="0.4.10", evidence=_PACKAGES),),
        "ttft": (Alias(base="time_to_first_token_seconds", evidence=_PACKAGES),),
        "tpot": (Alias(base="request_time_per_output_token_seconds", first="0.5.23", evidence=_PACKAGES),),
        "itl": (
            Alias(base="inter_token_latency_seconds", first="0.4.6", evidence=_PACKAGES),
            Alias(base="time_per_output_token_seconds", last="0.4.3", evidence=_PACKAGES),
        ),
        "e2e": (Alias(base="e2e_request_latency_seconds", evidence=_PACKAGES),),
    },
)
