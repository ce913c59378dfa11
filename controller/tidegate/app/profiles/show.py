"""An engine profile in words and in what one replica of it carries."""

from tidegate.perf.capacity import replica_capacity
from tidegate.perf.profile import PS_PER_S, EngineProfile
from tidegate.perf.steptime import dense_ps

# (prompt, answer) tokens and the limits (TTFT, TPOT) they are asked with.
_ASKED = ((200, 200, 1.0, 0.05), (1000, 250, 2.0, 0.05), (8000, 200, 8.0, 0.1))


def shown_lines(profile: EngineProfile) -> list[str]:
    """Return the profile in the reader's units."""
    p = profile
    error = f"{p.fit_error_ratio:.1%}" if p.fit_error_ratio else "not stated"
    lines = [
        f"{p.name}: {p.model} on {p.tensor_parallel} x {p.accelerator}, {p.engine} {p.engine_version}",
        f"  source: {p.source}, {p.dated}; mean error {error}",
        f"  step of 1 token: {_ms(p.step_base_ps + p.host_fixed_ps + dense_ps(p, 1.0) + p.host_ps_per_sequence)}",
        f"  prefill of {p.token_budget} tokens: {_ms(_prefill_ps(p))}",
        f"  host: {_ms(p.host_fixed_ps)} a step and {_ms(p.host_ps_per_sequence)} a sequence in it",
        f"  front end: {_ms(p.front_end_ps)} and {_ms(p.front_end_ps_per_live)} for each request in flight",
        (
            f"  KV: {p.kv_capacity_tokens} tokens in blocks of {p.block_tokens}; longest request "
            f"{p.longest_request_tokens} tokens; {p.max_sequences} sequences; {p.token_budget} tokens a step"
        ),
    ]
    for prompt, output, ttft_s, tpot_s in _ASKED:
        carries = replica_capacity(p, ttft_s=ttft_s, tpot_s=tpot_s, prompt_tokens=prompt, output_tokens=output)
        lines.append(
            f"  carries {carries.requests_per_s:.3g} requests/s of {prompt} + {output} tokens with 95 % inside TTFT "
            f"{ttft_s:g} s and TPOT {tpot_s * 1e3:g} ms (limit: {carries.binding})"
        )
    return lines


def _prefill_ps(p: EngineProfile) -> float:
    pairs = p.token_budget * p.token_budget / 2.0
    return p.step_base_ps + p.host_fixed_ps + dense_ps(p, p.token_budget) + p.attention_ps_per_pair * pairs


def _ms(ps: float) -> str:
    return f"{ps / PS_PER_S * 1e3:.3g} ms"
