"""What the twin counts, in plain numbers; `exposition` turns them into metric families at a scrape."""

from typing import TYPE_CHECKING

from tidegate.app.twin.histogram import Histogram

if TYPE_CHECKING:
    from tidegate.app.twin.engine import Answer

# Bucket bounds of vLLM since 0.8.4, in seconds; design notes name the releases.
TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_GAP_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
STEP_TOKENS = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)
PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)
HTTP_S = (0.1, 0.5, 1.0)

FINISHED_REASONS = ("stop", "length", "abort", "error", "repetition")


def length_bounds(longest_tokens: int) -> tuple[float, ...]:
    """Return vLLM's 1-2-5 bounds up to a model's longest request."""
    bounds = [float(mantissa * 10**power) for power in range(9) for mantissa in (1, 2, 5)]
    return tuple(b for b in bounds if b <= longest_tokens)


class TwinMetrics:
    """Counters, gauges and histograms of one twin."""

    def __init__(self, longest_tokens: int) -> None:
        lengths = length_bounds(longest_tokens)
        self.running = 0
        self.waiting = 0
        self.kv_used_ratio = 0.0
        self.preemptions = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.ended = dict.fromkeys(FINISHED_REASONS, 0)
        self.ttft_s = Histogram(TTFT_S)
        self.inter_token_s = Histogram(TOKEN_GAP_S)
        self.per_output_token_s = Histogram(TOKEN_GAP_S)
        self.e2e_s = Histogram(REQUEST_S)
        self.queue_s = Histogram(REQUEST_S)
        self.prefill_s = Histogram(REQUEST_S)
        self.decode_s = Histogram(REQUEST_S)
        self.inference_s = Histogram(REQUEST_S)
        self.request_prompt_tokens = Histogram(lengths)
        self.request_generation_tokens = Histogram(lengths)
        self.request_max_tokens = Histogram(lengths)
        self.request_preemptions = Histogram(PREEMPTIONS)
        self.step_tokens = Histogram(STEP_TOKENS)
        self.http: dict[tuple[str, str, str], int] = {}  # handler, method, status class
        self.http_s: dict[tuple[str, str], Histogram] = {}  # handler, method
        self.lag_s = 0.0
        self.worst_lag_s = 0.0

    def first_token(self, ttft_s: float, prompt_tokens: int) -> None:
        """Count a first token; like vLLM, the prompt is counted when its prefill is done."""
        self.ttft_s.observe(ttft_s)
        self.prompt_tokens += prompt_tokens

    def stepped(self, scheduled_tokens: int, emitted_tokens: int, preempted: int) -> None:
        """Count one step."""
        self.step_tokens.observe(scheduled_tokens)
        self.generation_tokens += emitted_tokens
        self.preemptions += preempted

    def lagged(self, lag_s: float) -> None:
        """Note how late a step went out."""
        self.lag_s = lag_s
        self.worst_lag_s = max(self.worst_lag_s, lag_s)

    def finished(self, answer: "Answer") -> None:
        """Count a request answered in full."""
        admitted_s = answer.arrived_s if answer.admitted_s is None else answer.admitted_s
        self.ended["length"] += 1
        self.e2e_s.observe(answer.last_s - answer.arrived_s)
        self.queue_s.observe(max(0.0, admitted_s - answer.arrived_s))
        self.prefill_s.observe(max(0.0, answer.first_s - admitted_s))
        self.decode_s.observe(answer.last_s - answer.first_s)
        self.inference_s.observe(max(0.0, answer.last_s - admitted_s))
        if answer.emitted > 1:
            self.per_output_token_s.observe((answer.last_s - answer.first_s) / (answer.emitted - 1))
        self.request_prompt_tokens.observe(answer.request.prompt_tokens)
        self.request_generation_tokens.observe(answer.emitted)
        self.request_max_tokens.observe(answer.request.output_tokens)
        self.request_preemptions.observe(answer.preemptions)

    def aborted(self, prompt_tokens: int, emitted_tokens: int) -> None:
        """Count a request whose client left."""
        self.ended["abort"] += 1
        self.request_prompt_tokens.observe(prompt_tokens)
        self.request_generation_tokens.observe(emitted_tokens)

    def answered(self, handler: str, method: str, status: int, took_s: float) -> None:
        """Count one HTTP answer."""
        key = (handler, method, f"{status // 100}xx")
        self.http[key] = self.http.get(key, 0) + 1
        seen = self.http_s.get((handler, method))
        if seen is None:
            seen = self.http_s[handler, method] = Histogram(HTTP_S)
        seen.observe(took_s)
