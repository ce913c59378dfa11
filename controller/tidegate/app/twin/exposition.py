"""The twin's /metrics page: vLLM's names, types, labels and bounds, in whichever format the scraper asks for.

The encoder is prometheus_client's own, as in vLLM: an OpenMetrics scrape therefore sees `vllm_…` where the text format
says `vllm:…`, unless the scraper allows UTF-8 names.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import CollectorRegistry

from tidegate.app.twin.histogram import Histogram
from tidegate.app.twin.metrics import TwinMetrics
from tidegate.perf.profile import EngineProfile


class Names(StrEnum):
    """Under which names the engine families are served; all but `V1` exist for tests of the metric contract."""

    V1 = "v1"  # as vLLM does since 0.12
    V0 = "v0"  # gpu_cache_usage_perc, time_per_output_token_seconds, no `engine` label
    UNDERSCORE = "underscore"  # as Prometheus 2 stores an OpenMetrics scrape of new images
    RENAMED = "renamed"  # no known name is left


_V0_NAMES = {
    "kv_cache_usage_perc": "gpu_cache_usage_perc",
    "inter_token_latency_seconds": "time_per_output_token_seconds",
}
_V0_ABSENT = frozenset(
    {
        "num_requests_waiting_by_reason",
        "engine_sleep_state",
        "prefix_cache_queries",
        "prefix_cache_hits",
        "prompt_tokens_by_source",
        "request_time_per_output_token_seconds",
        "request_num_preemptions",
    }
)

Labels = dict[str, str]


@dataclass(frozen=True, slots=True)
class _Number:
    """A gauge or counter family: samples as (own labels, value)."""

    name: str
    text: str
    counter: bool
    samples: tuple[tuple[Labels, float], ...]


class TwinCollector:
    """Builds the families of one scrape."""

    def __init__(self, metrics: TwinMetrics, profile: EngineProfile, *, model: str, names: Names) -> None:
        self._metrics = metrics
        self._profile = profile
        self._model = model
        self.names = names

    def collect(self) -> Iterator[Metric]:
        """Yield every family, engine families first."""
        for number in self._numbers():
            name = self._name(number.name)
            if name is not None:
                yield self._number(name, number)
        for short, text, histogram in self._histograms():
            name = self._name(short)
            if name is not None:
                yield self._histogram(name, text, histogram)
        yield from self._http()
        lag = "Seconds the latest step went out after its time in the model."
        yield GaugeMetricFamily("tidegate_twin_lag_seconds", lag, value=self._metrics.lag_s)
        worst = "Largest lag since start, in seconds."
        yield GaugeMetricFamily("tidegate_twin_worst_lag_seconds", worst, value=self._metrics.worst_lag_s)

    def _name(self, short: str) -> str | None:
        match self.names:
            case Names.V1:
                return f"vllm:{short}"
            case Names.UNDERSCORE:
                return f"vllm_{short}"
            case Names.RENAMED:
                return f"llmserver:{short.replace('_', '')}"
            case Names.V0:
                return None if short in _V0_ABSENT else f"vllm:{_V0_NAMES.get(short, short)}"

    def _labels(self) -> Labels:
        if self.names is Names.V0:
            return {"model_name": self._model}
        return {"engine": "0", "model_name": self._model}

    def _number(self, name: str, number: _Number) -> Metric:
        labels = {**self._labels(), **number.samples[0][0]}
        kind = CounterMetricFamily if number.counter else GaugeMetricFamily
        family = kind(name, number.text, labels=list(labels))
        for own, value in number.samples:
            family.add_metric([*self._labels().values(), *own.values()], value)
        return family

    def _histogram(self, name: str, text: str, histogram: Histogram) -> Metric:
        labels = self._labels()
        family = HistogramMetricFamily(name, text, labels=list(labels))
        family.add_metric(list(labels.values()), _cumulative(histogram), histogram.total)
        return family

    def _numbers(self) -> Iterator[_Number]:
        m = self._metrics

        def gauge(name: str, text: str, *samples: tuple[Labels, float]) -> _Number:
            return _Number(name, text, counter=False, samples=samples)

        def counter(name: str, text: str, *samples: tuple[Labels, float]) -> _Number:
            return _Number(name, text, counter=True, samples=samples)

        yield gauge("num_requests_running", "Requests in the batch.", ({}, m.running))
        yield gauge("num_requests_waiting", "Requests waiting.", ({}, m.waiting))
        by_reason = (({"reason": "capacity"}, m.waiting), ({"reason": "deferred"}, 0))
        yield gauge("num_requests_waiting_by_reason", "Requests waiting, by reason.", *by_reason)
        asleep = (("awake", 1), ("weights_offloaded", 0), ("discard_all", 0))
        states = (({"sleep_state": state}, value) for state, value in asleep)
        yield gauge("engine_sleep_state", "Sleep state, each 0 or 1.", *states)
        yield gauge("kv_cache_usage_perc", "KV cache in use, 0 to 1.", ({}, m.kv_used_ratio))
        yield gauge("cache_config_info", "Cache configuration.", (self._cache_config(), 1))
        yield counter("num_preemptions", "Preemptions.", ({}, m.preemptions))
        yield counter("prompt_tokens", "Prompt tokens prefilled.", ({}, m.prompt_tokens))
        sources = (("local_compute", m.prompt_tokens), ("local_cache_hit", 0), ("external_kv_transfer", 0))
        by_source = (({"source": source}, value) for source, value in sources)
        yield counter("prompt_tokens_by_source", "Prompt tokens by source.", *by_source)
        yield counter("generation_tokens", "Tokens generated.", ({}, m.generation_tokens))
        # Prefix caching is off in the twin, and an engine with it off queries nothing.
        yield counter("prefix_cache_queries", "Prefix cache queries, in tokens.", ({}, 0))
        yield counter("prefix_cache_hits", "Prefix cache hits, in tokens.", ({}, 0))
        ended = (({"finished_reason": reason}, value) for reason, value in m.ended.items())
        yield counter("request_success", "Requests ended, by reason.", *ended)

    def _cache_config(self) -> Labels:
        return {
            "block_size": str(self._profile.block_tokens),
            "cache_dtype": "auto",
            "enable_prefix_caching": "False",
            "gpu_memory_utilization": "0.9",
            "num_gpu_blocks": str(self._profile.kv_blocks),
        }

    def _histograms(self) -> Iterator[tuple[str, str, Histogram]]:
        m = self._metrics
        yield "time_to_first_token_seconds", "Time to first token.", m.ttft_s
        yield "inter_token_latency_seconds", "Gap between two tokens.", m.inter_token_s
        yield "request_time_per_output_token_seconds", "Mean time per output token of a request.", m.per_output_token_s
        yield "e2e_request_latency_seconds", "Arrival to last token.", m.e2e_s
        yield "request_queue_time_seconds", "Time waiting.", m.queue_s
        yield "request_prefill_time_seconds", "Admission to first token.", m.prefill_s
        yield "request_decode_time_seconds", "First to last token.", m.decode_s
        yield "request_inference_time_seconds", "Admission to last token.", m.inference_s
        yield "request_prompt_tokens", "Prompt length.", m.request_prompt_tokens
        yield "request_generation_tokens", "Answer length.", m.request_generation_tokens
        yield "request_params_max_tokens", "max_tokens asked for.", m.request_max_tokens
        yield "request_num_preemptions", "Preemptions of a request.", m.request_preemptions
        yield "iteration_tokens_total", "Tokens per step.", m.step_tokens

    def _http(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "http_requests", "HTTP requests by handler, method and status.", labels=["handler", "method", "status"]
        )
        for key, count in sorted(self._metrics.http.items()):
            requests.add_metric(list(key), count)
        yield requests
        took = HistogramMetricFamily(
            "http_request_duration_seconds", "HTTP latency by handler and method.", labels=["handler", "method"]
        )
        for which, histogram in sorted(self._metrics.http_s.items()):
            took.add_metric(list(which), _cumulative(histogram), histogram.total)
        yield took


def _cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    buckets: list[tuple[str, float]] = []
    seen = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        seen += count
        buckets.append((_le(bound), seen))
    return buckets


def _le(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(bound)


class Exposition:
    """Renders the page."""

    def __init__(self, collector: TwinCollector) -> None:
        self.collector = collector
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(collector)
        ProcessCollector(registry=self._registry)

    def page(self, accept: str) -> tuple[bytes, str]:
        """Return the body and content type for an Accept header."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
