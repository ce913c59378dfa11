"""Profiles derived from others: faster or slower hardware, and quantised weights; pure."""

from dataclasses import dataclass, replace
from enum import StrEnum

from tidegate.perf.profile import EngineProfile

_TIMES = (
    "step_base_ps",
    "weight_read_ps",
    "compute_ps_per_token",
    "kv_read_ps_per_token",
    "attention_ps_per_pair",
    "host_fixed_ps",
    "host_ps_per_sequence",
    "front_end_ps",
    "front_end_ps_per_live",
)
_AT_LEAST_ONE = ("weight_read_ps", "compute_ps_per_token")
_MOST_RATIO = 100.0


class Weights(StrEnum):
    """How weights are held, against 16 bits."""

    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrink:
    """What a weight format does, as ratios to 16-bit weights."""

    read_ratio: float  # time to read the weights once
    compute_ratio: float  # compute time per token
    bytes_ratio: float  # size of the weights


# FP8: the ratios that miss the step tables of Llama-3.1-70B FP8 least, from those of its 16-bit twin, on H100 and H200
# at TP 2, 4 and 8 (vLLM 0.24, aiconfigurator-core 0.12): 12 % mean error, against 20 % with one half for both. The same
# tables have Qwen3-32B FP8 slower than 16 bits; they are not used.
# INT8: as FP8. NVIDIA's A100 data sheet gives INT8 twice the 16-bit rate, as FP8 has on H100; not measured here.
# INT4: weights only, computed in 16 bits; 4.25 bits each and embeddings left alone; not measured here.
SHRINKS: dict[Weights, Shrink] = {
    Weights.FP8: Shrink(read_ratio=0.60, compute_ratio=0.75, bytes_ratio=0.51),
    Weights.INT8: Shrink(read_ratio=0.60, compute_ratio=0.75, bytes_ratio=0.51),
    Weights.INT4: Shrink(read_ratio=0.35, compute_ratio=1.0, bytes_ratio=0.30),
}


def scaled(profile: EngineProfile, ratio: float) -> EngineProfile:
    """Return the profile of an engine that does everything `ratio` times as fast; its limits stay.

    Args:
        profile: The engine.
        ratio: Of speed, so 0.9 is a slower engine; > 0, <= 100.

    Raises:
        ValueError: A ratio outside its range.
    """
    if not 0.0 < ratio <= _MOST_RATIO:
        msg = f"ratio must be > 0 and <= {_MOST_RATIO:g}, got {ratio}"
        raise ValueError(msg)
    if ratio == 1.0:
        return profile
    times = {name: round(getattr(profile, name) / ratio) for name in _TIMES}
    return replace(profile, **times | {name: max(1, times[name]) for name in _AT_LEAST_ONE})


def quantised(
    profile: EngineProfile,
    weights: Weights,
    *,
    weight_bytes: int,
    kv_bytes_per_token: int,
    kv_bytes_ratio: float = 1.0,
) -> EngineProfile:
    """Return the profile with quantised weights; what they no longer fill becomes KV.

    A prior until a log of the quantised engine is fitted: the ratios are averages over sizes and kernels.

    Args:
        profile: The engine with 16-bit weights.
        weights: The format.
        weight_bytes: Of all 16-bit weights, over all GPUs of the replica, > 0.
        kv_bytes_per_token: Of one token's 16-bit KV, over all GPUs of the replica, > 0.
        kv_bytes_ratio: Size of a token's KV to that; 0.5 of an FP8 KV cache, which some checkpoints bring; (0, 1].

    Raises:
        ValueError: A size that is not > 0, or a ratio outside its range.
    """
    if weight_bytes <= 0 or kv_bytes_per_token <= 0 or not 0.0 < kv_bytes_ratio <= 1.0:
        msg = (
            "sizes must be > 0 bytes and the KV ratio in (0, 1], got "
            f"weights {weight_bytes}, KV {kv_bytes_per_token}, ratio {kv_bytes_ratio}"
        )
        raise ValueError(msg)
    shrink = SHRINKS[weights]
    freed_tokens = int(weight_bytes * (1.0 - shrink.bytes_ratio)) // kv_bytes_per_token
    tokens = int((profile.kv_capacity_tokens + freed_tokens) / kv_bytes_ratio)
    return replace(
        profile,
        name=f"{profile.name}-{weights}",
        source=f"{profile.source}; {weights} weights by ratio",
        weight_read_ps=max(1, round(profile.weight_read_ps * shrink.read_ratio)),
        compute_ps_per_token=max(1, round(profile.compute_ps_per_token * shrink.compute_ratio)),
        kv_read_ps_per_token=round(profile.kv_read_ps_per_token * kv_bytes_ratio),
        kv_capacity_tokens=tokens // profile.block_tokens * profile.block_tokens,
        fit_error_ratio=0.0,
    )
