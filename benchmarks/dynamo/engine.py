"""The engine both simulators run: theirs by its timing tables, ours by a profile fitted to them."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tidegate.perf.profile import PS_PER_S, EngineProfile

MODEL, SYSTEM, TENSOR_PARALLEL = "Qwen/Qwen3-32B", "h200_sxm", 2
TOKEN_BUDGET, MAX_SEQUENCES, BLOCKS, BLOCK_TOKENS = 8192, 256, 20_000, 16
# The model's own; without it the planner as shipped never adds a prefill engine, since it has nothing to divide by.
MAX_CONTEXT_TOKENS = 40_960
START_UP_S = 120.0
TTFT_S, ITL_S = 1.0, 0.03
PS_PER_MS = PS_PER_S // 1000

# (prompts in one pass, tokens of each): passes of one prompt, and full passes of several as they are under load.
_PASSES = (
    *((1, n) for n in (16, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)),
    *((b, n) for b in (2, 3, 4, 5, 6) for n in (1024, 8192 // b)),
)
_BATCHES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
_CONTEXTS = (500, 1000, 1500, 2500, 4000, 8000)


def timing(role: str) -> dict[str, Any]:
    """Return the configuration of their timing model for a role, "prefill" or "decode"."""
    return {
        "model": MODEL,
        "system": SYSTEM,
        "backend": "vllm",
        "tp": TENSOR_PARALLEL,
        "worker_type": role,
    }


def engine_args(role: str) -> dict[str, Any]:
    """Return one role's engine as their simulator takes it."""
    return {
        "dp_size": 1,
        "startup_time": START_UP_S,
        "engine": {
            "backend": "vllm",
            "worker_type": role,
            "max_num_seqs": MAX_SEQUENCES,
            "max_num_batched_tokens": TOKEN_BUDGET,
            "max_model_len": MAX_CONTEXT_TOKENS,
            "num_gpu_blocks": BLOCKS,
            "block_size": BLOCK_TOKENS,
            "timing_model": {"type": "external", "provider": "ais", "config": timing(role)},
        },
    }


def fitted() -> tuple[EngineProfile, EngineProfile, dict[str, float]]:
    """Return the prefill and the decode profile that fit their timing best, with the mean relative error of each."""
    create = importlib.import_module("dynamo._internal.ais").create_session
    prefill, decode = create(config=timing("prefill")), create(config=timing("decode"))
    passes = np.array([prefill.predict_prefill(b, n, 0) for b, n in _PASSES])
    steps = np.array([[decode.predict_decode(b, c, 2) for c in _CONTEXTS] for b in _BATCHES])
    prefill_profile, prefill_error = _fit_prefill(passes)
    decode_profile, decode_error = _fit_decode(steps)
    return prefill_profile, decode_profile, {"prefill": prefill_error, "decode": decode_error}


def _fit_prefill(passes_ms: np.ndarray) -> tuple[EngineProfile, float]:
    """Fit base, weight read, compute, its meeting with the read, and attention."""
    prompts, each = np.array(_PASSES, dtype=float).T
    tokens, pairs = prompts * each, prompts * each**2

    def model(x: np.ndarray) -> np.ndarray:
        base, read, compute, power, attention = x
        dense = (read**power + (compute * tokens) ** power) ** (1.0 / power)
        return np.asarray(base + dense + attention * pairs / 2.0)

    least, most = [0.0, 0.1, 1e-4, 1.0, 0.0], [20.0, 30.0, 1.0, 16.0, 1e-4]
    found = _least_squares(lambda x: model(x) / passes_ms - 1.0, [2.0, 10.0, 0.05, 4.0, 1e-7], least, most)
    base, read, compute, power, attention = found
    error = np.abs(model(found) / passes_ms - 1.0).mean()
    times = {"step_base": base, "weight_read": read, "compute": compute, "attention": attention}
    return _profile("prefill", times, power=power), float(error)


def _fit_decode(steps_ms: np.ndarray) -> tuple[EngineProfile, float]:
    """Fit base, cost per sequence and per KV token to decode steps."""
    batch = np.repeat(np.array(_BATCHES, dtype=float), len(_CONTEXTS))
    context = np.tile(np.array(_CONTEXTS, dtype=float), len(_BATCHES)) * batch
    fits = context <= BLOCKS * BLOCK_TOKENS
    seen = steps_ms.reshape(-1)

    def error(x: np.ndarray) -> np.ndarray:
        return np.asarray(((x[0] + x[1] * batch + x[2] * context) / seen - 1.0)[fits])

    base, sequence, kv = _least_squares(error, [12.0, 0.03, 3e-5], [0.0, 0.0, 0.0], [30.0, 1.0, 1e-3])
    times = {"weight_read": base, "sequence": sequence, "kv_read": kv}
    return _profile("decode", times, power=16.0), float(np.abs(error(np.array([base, sequence, kv]))).mean())


def _least_squares(
    error: Callable[[np.ndarray], np.ndarray], start: list[float], least: list[float], most: list[float]
) -> np.ndarray:
    solver = importlib.import_module("scipy.optimize").least_squares
    return np.asarray(solver(error, start, bounds=(least, most)).x)


def _profile(role: str, times_ms: dict[str, float], *, power: float) -> EngineProfile:
    """Return the profile; what is not in `times_ms` costs nothing."""
    ps = {name: round(time_ms * PS_PER_MS) for name, time_ms in times_ms.items()}
    return EngineProfile(
        name=f"h200-qwen3-32b-tp2-{role}",
        model=MODEL,
        accelerator="nvidia-h200",
        engine="vllm",
        engine_version="0.24.0",
        tensor_parallel=TENSOR_PARALLEL,
        source="fitted to the timing model of aisimulate 0.13.0.dev202610130000000070",
        dated="2026-10-13",
        step_base_ps=ps.get("step_base", 0),
        weight_read_ps=ps.get("weight_read", 0),
        compute_ps_per_token=ps.get("compute", 1),
        smooth_max_power=float(power),
        compute_factor_ratio=1.0,
        kv_read_ps_per_token=ps.get("kv_read", 0),
        attention_ps_per_pair=ps.get("attention", 0),
        host_fixed_ps=0,
        host_ps_per_sequence=ps.get("sequence", 0),
        front_end_ps=0,
        kv_capacity_tokens=BLOCKS * BLOCK_TOKENS,
        block_tokens=BLOCK_TOKENS,
        token_budget=TOKEN_BUDGET,
        max_sequences=MAX_SEQUENCES,
        max_context_tokens=MAX_CONTEXT_TOKENS,
    )
