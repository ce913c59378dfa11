"""What became of each request of a rehearsal, and how it is scored.

A request that was refused misses every objective; an answer of one token meets TPOT (it has no second token).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.perf.profile import PS_PER_S
from tidegate.sim.arrivals import Arrival
from tidegate.sim.sample import Outcomes
from tidegate.terms.slo import Indicator, Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One request as its client would have seen it; None where it never came that far."""

    arrival: Arrival
    answered: bool  # whole answer received
    ttft_s: float | None = None
    tpot_s: float | None = None  # None also for one-token answers
    e2e_s: float | None = None


def outcomes_of(columns: Outcomes) -> tuple[Outcome, ...]:
    """Return the columns of a rehearsal as one outcome per request, in order of arrival."""
    trace = columns.trace
    rows = zip(
        trace.arrival_ps.tolist(),
        trace.prompt_tokens.tolist(),
        trace.output_tokens.tolist(),
        columns.first_ps.tolist(),
        columns.ended_ps.tolist(),
        strict=True,
    )
    return tuple(
        _outcome(Arrival(at_s=at_ps / PS_PER_S, prompt_tokens=prompt, output_tokens=output), at_ps, first_ps, ended_ps)
        for at_ps, prompt, output, first_ps, ended_ps in rows
    )


def _outcome(arrival: Arrival, arrived_ps: int, first_ps: int, ended_ps: int) -> Outcome:
    if ended_ps < 0:
        return Outcome(arrival=arrival, answered=False)
    gaps = arrival.output_tokens - 1
    return Outcome(
        arrival=arrival,
        answered=True,
        ttft_s=(first_ps - arrived_ps) / PS_PER_S,
        tpot_s=(ended_ps - first_ps) / gaps / PS_PER_S if gaps else None,
        e2e_s=(ended_ps - arrived_ps) / PS_PER_S,
    )


def met(outcome: Outcome, slo: Slo) -> bool:
    """Return whether one request met one objective.

    ITL is judged by TPOT: the gaps of single tokens are not kept.
    """
    if not outcome.answered:
        return False
    if slo.threshold_s is None or slo.indicator is Indicator.AVAILABILITY:
        return True
    if slo.indicator in {Indicator.TPOT, Indicator.ITL} and outcome.arrival.output_tokens == 1:
        return True
    seen = measured(outcome, slo.indicator)
    return seen is not None and seen <= slo.threshold_s


def measured(outcome: Outcome, indicator: Indicator) -> float | None:
    """Return the latency an indicator speaks of, in seconds; None for availability or when it never came that far."""
    if indicator is Indicator.TTFT:
        return outcome.ttft_s
    if indicator is Indicator.E2E:
        return outcome.e2e_s
    return outcome.tpot_s if indicator in {Indicator.TPOT, Indicator.ITL} else None


def attained_ratios(outcomes: Sequence[Outcome], slos: Sequence[Slo]) -> tuple[tuple[str, float], ...]:
    """Return per objective the share of all requests that met it; 1.0 of none."""
    total = max(1, len(outcomes))
    return tuple((s.name, sum(met(o, s) for o in outcomes) / total if outcomes else 1.0) for s in slos)


def joint_ratio(outcomes: Sequence[Outcome], slos: Sequence[Slo]) -> float:
    """Return the share of all requests that met every objective; 1.0 of none."""
    return sum(all(met(o, s) for s in slos) for o in outcomes) / len(outcomes) if outcomes else 1.0
