"""What a policy can expect of its pools before any request was seen, and which of its objectives make no sense."""

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.app.sizing import PRIOR_OUTPUT_TOKENS, PRIOR_PROMPT_TOKENS, modelled
from tidegate.perf.capacity import replica_capacity
from tidegate.perf.profile import EngineProfile
from tidegate.terms.policy import PoolPolicy, ServicePolicy
from tidegate.terms.slo import Indicator, Slo

# A limit beyond this many times what an idle replica needs is met by a replica in deep trouble, too.
LOOSE_FACTOR = 100.0
# A limit that nothing meets: the model then tells the latencies of an idle replica.
_NO_TIME_S = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolProspect:
    """One replica of a pool at the lengths assumed before the first request."""

    pool: str
    requests_per_s: float  # at full use; a pool is planned for targetUtilisation of it
    binding: str
    prompt_tokens: float
    output_tokens: float
    warnings: tuple[str, ...]


def prospect(policy: ServicePolicy, pool: PoolPolicy, profile: EngineProfile) -> PoolProspect:
    """Return what one replica of `pool` carries by its profile, and a warning for each objective that is odd."""
    requests_per_s, binding = modelled(policy, profile, PRIOR_PROMPT_TOKENS, PRIOR_OUTPUT_TOKENS)
    return PoolProspect(
        pool=str(pool.key),
        requests_per_s=requests_per_s,
        binding=binding,
        prompt_tokens=PRIOR_PROMPT_TOKENS,
        output_tokens=PRIOR_OUTPUT_TOKENS,
        warnings=tuple(_odd(policy, pool, profile)),
    )


def _odd(policy: ServicePolicy, pool: PoolPolicy, profile: EngineProfile) -> Iterator[str]:
    idle = replica_capacity(
        profile,
        ttft_s=_NO_TIME_S,
        tpot_s=_NO_TIME_S,
        prompt_tokens=PRIOR_PROMPT_TOKENS,
        output_tokens=PRIOR_OUTPUT_TOKENS,
    )
    needed_s = {Indicator.TTFT: idle.ttft_s, Indicator.TPOT: idle.tpot_s, Indicator.ITL: idle.tpot_s}
    for slo in policy.slos:
        if slo.threshold_s is None or slo.indicator not in needed_s:
            continue
        text = _judged(slo, slo.threshold_s, needed_s[slo.indicator])
        if text:
            yield f"pool {pool.key}: objective {slo.name}: {text} (profile {profile.name})"


def _judged(slo: Slo, threshold_s: float, needed_s: float) -> str:
    have, need = _milliseconds(threshold_s), _milliseconds(needed_s)
    if threshold_s < needed_s:
        return f"{have} is out of reach: even an idle replica needs {need} for the {slo.indicator} of 95 % of requests"
    if threshold_s > LOOSE_FACTOR * needed_s:
        return f"{have} is so loose that it guards nothing: an idle replica needs {need}; is the unit right?"
    return ""


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1.0 else f"{seconds:.4g} s"
