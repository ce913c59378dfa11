"""What NVIDIA's planner takes one engine to carry, from a model of the time of a forward pass.

Capacity is service time at full utilisation: the batch with the highest rate among those whose own pass meets the
limit. There is no queueing term and no headroom. If no batch meets it, the fastest counts all the same.

Source: NVIDIA Dynamo planner 1.6.1, engine queries (Apache-2.0), re-implemented.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tidegate.perf.profile import PS_PER_S, EngineProfile
from tidegate.perf.steptime import dense_ps

# (prefill tokens, decoding requests, KV tokens they hold) -> seconds of one pass
ForwardPass = Callable[[int, int, int], float]

MAX_HIT_RATIO = 0.95  # of prompt tokens taken off for a prefix cache
_CANDIDATES = 128  # batch sizes tried


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """What one engine may hold at once."""

    token_budget: int  # most tokens of one pass
    max_sequences: int
    kv_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCapacity:
    """The best batch of one engine."""

    requests_per_s: float
    batch: int
    ttft_s: float | None = None
    itl_s: float | None = None
    eligible: bool = True  # False: even the fastest batch misses a limit


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """What is inside one engine, as its per-pass telemetry tells."""

    queued_prompt_tokens: float = 0.0
    decoding: float = 0.0  # requests
    context_tokens: float = 0.0  # KV they hold
    queued_decodes: float = 0.0
    queued_context_tokens: float = 0.0


def believed_pass(profile: EngineProfile) -> ForwardPass:
    """Return the pass time a benchmark of this engine shows; the planner bootstraps itself from one.

    A pass computes one prompt chunk from the beginning of its prompt, as the benchmark does.
    """
    fixed = profile.step_base_ps + profile.host_fixed_ps

    def seconds(prefill_tokens: int, decoding: int, context_tokens: int) -> float:
        sequences = decoding + (1 if prefill_tokens else 0)
        spent_ps = (
            fixed
            + dense_ps(profile, prefill_tokens + decoding)
            + profile.kv_read_ps_per_token * context_tokens
            + profile.attention_ps_per_pair * prefill_tokens * prefill_tokens / 2.0
            + profile.host_ps_per_sequence * sequences
        )
        return spent_ps / PS_PER_S

    return seconds


def limits_of(profile: EngineProfile) -> EngineLimits:
    """Return the limits an engine of this profile reports."""
    return EngineLimits(
        token_budget=profile.token_budget,
        max_sequences=profile.max_sequences,
        kv_tokens=profile.kv_blocks * profile.block_tokens,
    )


def prefill_capacity(
    forward: ForwardPass, limits: EngineLimits, *, prompt_tokens: float, ttft_s: float, hit_ratio: float = 0.0
) -> EngineCapacity | None:
    """Return what one prefill engine carries; None when the prompt length is not known (<= 0)."""
    if prompt_tokens <= 0.0:
        return None
    uncached = _uncached(prompt_tokens, hit_ratio)
    most = 1 if uncached > limits.token_budget else min(limits.max_sequences, limits.token_budget // uncached)
    best: EngineCapacity | None = None
    for batch in batches(most):
        spent_s = chunked_s(forward, limits, uncached * batch)
        found = EngineCapacity(requests_per_s=batch / spent_s, batch=batch, ttft_s=spent_s, eligible=spent_s <= ttft_s)
        best = _better(best, found)
    return best


def decode_capacity(
    forward: ForwardPass, limits: EngineLimits, *, prompt_tokens: float, output_tokens: float, itl_s: float
) -> EngineCapacity | None:
    """Return what one decode engine carries; None when lengths are not known or one request does not fit."""
    if prompt_tokens <= 0.0 or output_tokens <= 0.0:
        return None
    output, context = _shape(prompt_tokens, output_tokens)
    best: EngineCapacity | None = None
    for batch in batches(min(limits.max_sequences, limits.kv_tokens // context)):
        spent_s = forward(0, batch, batch * context)
        rate = batch / (output * spent_s)
        best = _better(best, EngineCapacity(requests_per_s=rate, batch=batch, itl_s=spent_s, eligible=spent_s <= itl_s))
    return best


def aggregated_capacity(
    forward: ForwardPass,
    limits: EngineLimits,
    *,
    prompt_tokens: float,
    output_tokens: float,
    ttft_s: float,
    itl_s: float,
    hit_ratio: float = 0.0,
) -> EngineCapacity | None:
    """Return what one engine that does both carries; None as for the two apart."""
    if prompt_tokens <= 0.0 or output_tokens <= 0.0 or limits.token_budget <= 1:
        return None
    output, context = _shape(prompt_tokens, output_tokens)
    uncached = _uncached(prompt_tokens, hit_ratio)
    most = min(limits.max_sequences, limits.kv_tokens // context, limits.token_budget - 1)
    best: EngineCapacity | None = None
    for batch in batches(most):
        beside = math.ceil(batch * uncached / output)  # prompt tokens of a pass, in balance with the answers
        if beside > limits.token_budget - batch:
            continue
        spent_s = forward(beside, batch, batch * context)
        first_s = chunked_s(forward, limits, beside + uncached, decoding=batch, context_tokens=batch * context)
        found = EngineCapacity(
            requests_per_s=batch / (output * spent_s),
            batch=batch,
            ttft_s=first_s,
            itl_s=spent_s,
            eligible=first_s <= ttft_s and spent_s <= itl_s,
        )
        best = _better(best, found)
    return best


def chunked_s(
    forward: ForwardPass, limits: EngineLimits, tokens: int, *, decoding: int = 0, context_tokens: int = 0
) -> float:
    """Return the seconds to prefill `tokens` in passes of the full budget, beside a given decode load."""
    full, rest = divmod(tokens, limits.token_budget)
    spent_s = full * forward(limits.token_budget, decoding, context_tokens) if full else 0.0
    return spent_s + (forward(rest, decoding, context_tokens) if rest else 0.0)


def next_ttft_s(
    forward: ForwardPass,
    limits: EngineLimits,
    load: EngineLoad,
    *,
    prompt_tokens: float,
    queue_factor: float = 1.0,
    decode_factor: float = 1.0,
    beside_decodes: bool = False,
    queued_decodes: bool = False,
) -> float:
    """Return the TTFT of a next request of mean length: the drain of the queue and its own prefill."""
    tokens = math.ceil(load.queued_prompt_tokens * queue_factor + max(0.0, prompt_tokens))
    if not beside_decodes:
        return chunked_s(forward, limits, tokens)
    decoding, context = _decodes(load, decode_factor, queued=queued_decodes)
    return chunked_s(forward, limits, tokens, decoding=math.ceil(decoding), context_tokens=math.ceil(context))


def next_itl_s(
    forward: ForwardPass,
    load: EngineLoad,
    *,
    context_tokens: float,
    decode_factor: float = 1.0,
    prefill_tokens: int = 0,
    queued_prompts: bool = False,
) -> float:
    """Return the ITL once a next request of mean context has joined those scheduled and queued.

    Args:
        forward: The pass time.
        load: The engine.
        context_tokens: Mean KV of a decoding request; 0 when none was ever seen.
        decode_factor: The load times this.
        prefill_tokens: Prompt tokens of a typical pass beside the decodes.
        queued_prompts: Whether queued prompts are taken to decode as well.
    """
    decoding, context = load.decoding + load.queued_decodes, load.context_tokens + load.queued_context_tokens
    if queued_prompts:
        context += load.queued_prompt_tokens
    joining = 1.0 if context_tokens > 0.0 else 0.0
    return forward(
        prefill_tokens,
        math.ceil(decoding * decode_factor + joining),
        math.ceil(context * decode_factor + joining * context_tokens),
    )


def batches(most: int) -> Iterator[int]:
    """Return the batch sizes tried: all up to `most`, or 128 of them evenly apart."""
    if most <= _CANDIDATES:
        yield from range(1, most + 1)
        return
    for index in range(_CANDIDATES):
        yield 1 + index * (most - 1) // (_CANDIDATES - 1)


def _decodes(load: EngineLoad, factor: float, *, queued: bool) -> tuple[float, float]:
    decoding, context = load.decoding, load.context_tokens
    if queued:
        decoding, context = decoding + load.queued_decodes, context + load.queued_context_tokens
    return decoding * factor, context * factor


def _uncached(prompt_tokens: float, hit_ratio: float) -> int:
    return max(1, math.ceil(math.ceil(prompt_tokens) * (1.0 - min(MAX_HIT_RATIO, max(0.0, hit_ratio)))))


def _shape(prompt_tokens: float, output_tokens: float) -> tuple[int, int]:
    """Return whole output tokens and the mean context of a decode."""
    output = max(1, math.ceil(output_tokens))
    return output, math.ceil(prompt_tokens) + output // 2


def _better(best: EngineCapacity | None, found: EngineCapacity) -> EngineCapacity:
    if best is None or (found.eligible and not best.eligible):
        return found
    if best.eligible and not found.eligible:
        return best
    return found if found.requests_per_s > best.requests_per_s else best
