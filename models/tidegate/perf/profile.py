"""What a replica's hardware, model and engine version cost: the coefficients of the step-time model and its limits."""

from dataclasses import dataclass

PS_PER_S = 1_000_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """One (model, accelerator, tensor parallel degree, engine version) as the step-time model sees it.

    Times are whole picoseconds, so that sums are exact in any order and a compiled simulator can equal this one.
    The YAML spelling of a field is its name in camelCase.
    """

    name: str
    model: str
    accelerator: str  # e.g. "nvidia-a100-80gb"
    engine: str  # "vllm" or "sglang"
    engine_version: str
    tensor_parallel: int
    source: str  # where the coefficients come from
    dated: str  # ISO date the coefficients were taken over
    step_base_ps: int  # c0: launch cost of any step
    weight_read_ps: int  # w: reading the weights once
    compute_ps_per_token: int  # c1
    smooth_max_power: float  # p >= 1: how sharply reading and computing meet; 1 adds them
    compute_factor_ratio: float  # m: 1.0 for short prompts, 1.1 to 1.2 for prefill-heavy traffic
    kv_read_ps_per_token: int  # c2: per KV token read by a decoding sequence
    attention_ps_per_pair: int  # c3: per (query, key) pair of a prefill chunk
    host_fixed_ps: int  # h_fix: scheduler, sampler, detokeniser
    host_ps_per_sequence: int  # h_seq
    front_end_ps: int  # tokeniser and HTTP, once a request, before the engine sees it
    kv_capacity_tokens: int
    block_tokens: int  # KV is held in blocks of this many tokens
    token_budget: int  # most tokens in one step
    max_sequences: int  # most sequences running at once
    max_context_tokens: int  # prompt + output of one request
    # One API server process writes the tokens of every open stream, so it reaches a new request the later the more
    # requests the replica holds when that one comes.
    front_end_ps_per_live: int = 0
    fit_error_ratio: float = 0.0  # mean relative error over the data the coefficients were fitted to; 0: not stated

    @property
    def front_end_s(self) -> float:
        """Seconds a request spends in the front end before the engine sees it."""
        return self.front_end_ps / PS_PER_S

    @property
    def kv_blocks(self) -> int:
        """Whole KV blocks."""
        return self.kv_capacity_tokens // self.block_tokens

    @property
    def longest_request_tokens(self) -> int:
        """Most tokens, prompt and output together, that one request may ever hold."""
        return min(self.max_context_tokens, self.kv_blocks * self.block_tokens)


def profile_problems(profile: EngineProfile) -> tuple[tuple[str, str], ...]:
    """Return `(field, what it must be)` for each field that makes the profile unusable; empty when it is sound."""
    texts = ("name", "model", "accelerator", "engine", "engine_version", "source", "dated")
    positive = ("tensor_parallel", "weight_read_ps", "compute_ps_per_token", "block_tokens", "max_sequences")
    counts = ("step_base_ps", "kv_read_ps_per_token", "attention_ps_per_pair", "host_fixed_ps", "host_ps_per_sequence")
    found = [(f, "a text that is not empty") for f in texts if not getattr(profile, f).strip()]
    found += [(f, ">= 1") for f in positive if getattr(profile, f) < 1]
    found += [(f, ">= 0") for f in (*counts, "front_end_ps", "front_end_ps_per_live") if getattr(profile, f) < 0]
    # A step or a front end of a minute is a slip of the unit, not hardware.
    found += [
        (f, "picoseconds, under 60 s")
        for f in (*counts, "front_end_ps", "front_end_ps_per_live", "weight_read_ps", "compute_ps_per_token")
        if getattr(profile, f) >= 60 * PS_PER_S
    ]
    if not 1.0 <= profile.smooth_max_power <= 16.0:  # noqa: PLR2004  (16 is a hard max to four digits)
        found.append(("smooth_max_power", "between 1 and 16"))
    if not 0.1 <= profile.compute_factor_ratio <= 10.0:  # noqa: PLR2004
        found.append(("compute_factor_ratio", "between 0.1 and 10"))
    if not 0.0 <= profile.fit_error_ratio <= 1.0:
        found.append(("fit_error_ratio", "between 0 and 1"))
    if profile.token_budget < max(1, profile.max_sequences):
        found.append(("token_budget", f">= max_sequences ({profile.max_sequences}), one token each"))
    if profile.token_budget > 1 << 20:
        found.append(("token_budget", "<= 1048576"))
    if profile.kv_capacity_tokens < max(2, 2 * profile.block_tokens):
        found.append(("kv_capacity_tokens", f">= two blocks ({2 * profile.block_tokens})"))
    if profile.max_context_tokens < 2:  # noqa: PLR2004  (one prompt token, one output token)
        found.append(("max_context_tokens", ">= 2"))
    return tuple(found)
