"""How long one iteration of the engine takes, in whole picoseconds.

step = c0 + h_fix + (w^p + (c1*m*N)^p)^(1/p) + c2*K + c3*A + h_seq*S

Only the smooth maximum needs real numbers, and only N enters it: it is rounded once per N into a table, all else is
integer. A compiled simulator that reads the same table gives the same picosecond.
"""

import math
from functools import lru_cache

from tidegate.perf.profile import EngineProfile


@lru_cache(maxsize=64)
def dense_table_ps(profile: EngineProfile) -> tuple[int, ...]:
    """Return c0 + h_fix + the smooth maximum, in picoseconds, for N = 0 … token budget tokens in the step."""
    fixed = profile.step_base_ps + profile.host_fixed_ps
    return tuple(fixed + round(dense_ps(profile, n)) for n in range(profile.token_budget + 1))


def dense_ps(profile: EngineProfile, tokens: float) -> float:
    """Return the smooth maximum of reading the weights and computing `tokens` tokens, in picoseconds.

    Factored by the larger term, so that no power overflows.
    """
    read = float(profile.weight_read_ps)
    compute = profile.compute_ps_per_token * profile.compute_factor_ratio * tokens
    low, high = sorted((read, compute))
    power = profile.smooth_max_power
    return high * math.pow(1.0 + math.pow(low / high, power), 1.0 / power)


def step_ps(profile: EngineProfile, *, tokens: int, kv_read_tokens: int, double_pairs: int, sequences: int) -> int:
    """Return the time of one step in picoseconds.

    Args:
        profile: The engine.
        tokens: N, decoding sequences plus prefill chunk tokens; 1 … token budget.
        kv_read_tokens: K, the contexts of the decoding sequences summed.
        double_pairs: 2*A, the sum over prefill chunks of q * (2*x + q) for q tokens after x already computed.
        sequences: S, sequences with a token or a chunk in the step.

    Raises:
        IndexError: More tokens than the budget.
    """
    return (
        dense_table_ps(profile)[tokens]
        + profile.kv_read_ps_per_token * kv_read_tokens
        + profile.attention_ps_per_pair * double_pairs // 2
        + profile.host_ps_per_sequence * sequences
    )
