"""How a rehearsal is scored: per request, all latency objectives jointly, and every GPU second from order to end.

The rules are written down for readers in docs/scoring.md; they are the same for every policy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.perf.profile import PS_PER_S
from tidegate.sim.rehearse import RehearsalResult
from tidegate.sim.sample import Outcomes
from tidegate.sim.trace import FloatArray, Int64Array
from tidegate.terms.slo import Indicator, Slo

BoolArray = npt.NDArray[np.bool_]

Quantiles = tuple[float | None, float | None, float | None]  # p50, p95, p99; None of no value


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What one play came to."""

    requests: int
    attainment_ratio: float  # of all requests, those that met every latency objective; 1.0 of none
    attained: Mapping[str, float]  # by objective, alone
    goodput_per_s: float  # requests that met every objective, over the time until the last arrival or answer
    gpu_hours: float
    cost_usd: float
    ttft_s: Quantiles  # of answered requests
    tpot_s: Quantiles  # of answered requests with two tokens or more
    scale_events: int  # changes of the asked count
    failed: int  # refused, cut, or not answered in time
    replicas_peak: int


def score(result: RehearsalResult, slos: Sequence[Slo]) -> Score:
    """Return the score of a rehearsal under a policy's objectives."""
    outcomes = result.outcomes
    each = met(outcomes, slos)
    every = np.logical_and.reduce([outcomes.ended_ps >= 0, *each.values()])
    n = len(outcomes.trace)
    answered = outcomes.ended_ps >= 0
    long = answered & (outcomes.trace.output_tokens > 1)
    return Score(
        requests=n,
        attainment_ratio=_share(every),
        attained={name: _share(ok) for name, ok in each.items()},
        goodput_per_s=float(every.sum()) / max(result.ended_s, 1e-9),
        gpu_hours=result.gpu_seconds / 3600.0,
        cost_usd=result.cost_usd,
        ttft_s=_quantiles(ttft_s(outcomes)[answered]),
        tpot_s=_quantiles(tpot_s(outcomes)[long]),
        scale_events=result.asked_changes,
        failed=n - int(answered.sum()),
        replicas_peak=result.replicas_peak,
    )


def met(outcomes: Outcomes, slos: Sequence[Slo]) -> dict[str, BoolArray]:
    """Return for each objective which requests met it, (n,).

    What was refused, cut or never answered meets none. An answer of one token has no second one and meets TPOT. ITL is
    judged by TPOT: gaps of single tokens are not kept. A latency of exactly the threshold meets it; both are compared
    as whole picoseconds.
    """
    answered: BoolArray = outcomes.ended_ps >= 0
    found: dict[str, BoolArray] = {}
    for slo in slos:
        took_ps = _took_ps(outcomes, slo.indicator)
        if slo.threshold_s is None or took_ps is None:
            found[slo.name] = answered
        else:
            found[slo.name] = answered & (took_ps <= round(slo.threshold_s * PS_PER_S))
    return found


def _took_ps(outcomes: Outcomes, indicator: Indicator) -> Int64Array | None:
    """Return what an indicator measures, (n,), rounded up; None for availability, which is no time."""
    if indicator is Indicator.AVAILABILITY:
        return None
    if indicator is Indicator.TTFT:
        return outcomes.first_ps - outcomes.trace.arrival_ps
    if indicator is Indicator.E2E:
        return outcomes.ended_ps - outcomes.trace.arrival_ps
    # Rounded up, a mean is at most a whole threshold exactly when it is so unrounded; the threshold times the token
    # count, which would need no rounding, can leave 64 bits.
    gaps = outcomes.trace.output_tokens - 1
    mean_ps: Int64Array = -((outcomes.first_ps - outcomes.ended_ps) // np.maximum(gaps, 1))
    return np.where(gaps == 0, 0, mean_ps)


def joint(outcomes: Outcomes, slos: Sequence[Slo]) -> BoolArray:
    """Return which requests met every objective, (n,)."""
    every: BoolArray = np.logical_and.reduce([outcomes.ended_ps >= 0, *met(outcomes, slos).values()])
    return every


def ttft_s(outcomes: Outcomes) -> FloatArray:
    """Return each request's time to first token in seconds, (n,); no meaning where none came."""
    return _since(outcomes, outcomes.first_ps)


def tpot_s(outcomes: Outcomes) -> FloatArray:
    """Return each request's mean time per output token after the first, (n,); no meaning where there is none."""
    gaps = np.maximum(outcomes.trace.output_tokens - 1, 1)
    tpot: FloatArray = (outcomes.ended_ps - outcomes.first_ps) / gaps / PS_PER_S
    return tpot


def _since(outcomes: Outcomes, moments_ps: npt.NDArray[np.int64]) -> FloatArray:
    since: FloatArray = (moments_ps - outcomes.trace.arrival_ps) / PS_PER_S
    return since


def _share(ok: BoolArray) -> float:
    return float(ok.mean()) if len(ok) else 1.0


def _quantiles(values: FloatArray) -> Quantiles:
    if not len(values):
        return None, None, None
    p50, p95, p99 = (float(v) for v in np.quantile(values, [0.5, 0.95, 0.99]))
    return p50, p95, p99
