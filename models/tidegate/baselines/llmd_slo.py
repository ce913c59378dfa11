"""llm-d's SLO-aware law: p90 TTFT and TPOT over their limits, made a count by a recording rule, then KEDA and HPA.

The count is a function of the latency ratio, of what is provisioned and of the share of it that is ready. It is taken
as documented, faults included: without data or traffic the ratio reads 0, so a broken scrape looks idle and drains to
the floor; and the credit for pending replicas can ask for fewer than there are while over the limit, which only the
window for shrinking hides. The guide's signal is the endpoint picker's predicted latency where there is a predictor,
else the measured one; here it is the one measured at the gateway.

Source: llm-d, autoscaling guide "SLO-aware" (KEDA with recording rules over endpoint-picker latency histograms).
"""

import math
from dataclasses import dataclass

from tidegate.baselines.hpa import Behavior, HpaState, Rules, Step, average_value, follow
from tidegate.baselines.law import LawMemory, PoolFacts, PoolRule, Proposal, number_of, pool_law
from tidegate.sim.policies import Contender, Knob, Rival, Wants, World
from tidegate.terms.observation import ServiceObservation
from tidegate.terms.slo import Indicator

PERIOD_S = 15.0  # of the recording rules and of the HPA
SCRAPE_S = 5.0
QUANTILE = 0.9
BUCKET_S = 60.0  # the rate window under the quantile
AVERAGE_S = 45.0  # the ratio is averaged over this
RATIO_CAP = 2.0

TARGET = 0.55  # ratio of latency to limit that is aimed at
# Shrink below this part of the target. As documented: 0.40 of 0.55; kept in proportion when the target is moved.
SHRINK_PART = 0.40 / 0.55

BEHAVIOR = Behavior(
    up=Rules(window_s=30.0, steps=(Step(percent=100.0, period_s=60.0), Step(pods=4, period_s=60.0))),
    down=Rules(window_s=180.0, steps=(Step(pods=1, period_s=120.0),)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SloKept:
    """Ratios of the last 45 s, and the HPA behind the rule."""

    ratios: tuple[tuple[float, float], ...] = ()  # (time, capped ratio), oldest first
    hpa: HpaState | None = None


def desired(ratio: float, provisioned: int, ready: int, *, target: float = TARGET) -> int:
    """Return the count the recording rule gives.

    Args:
        ratio: Latency over limit, averaged and capped, >= 0.
        provisioned: Replicas ready or starting.
        ready: Replicas that serve.
        target: The ratio aimed at, > 0.
    """
    shrink_below = target * SHRINK_PART
    credit = ready / provisioned if 0 < ready < provisioned else 1.0
    if ratio > target:
        return provisioned + math.ceil(provisioned * (ratio * credit / target - 1.0))
    if ratio < shrink_below:
        return provisioned - math.floor(provisioned * (1.0 - ratio / shrink_below))
    return provisioned


def worst_ratio(served: ServiceObservation | None, *, ttft_s: float | None, tpot_s: float | None) -> float:
    """Return the larger of both latencies over their limits; as in the rule, 0 for what is unknown or has no limit."""
    found = [0.0]
    for indicator, limit_s in ((Indicator.TTFT, ttft_s), (Indicator.TPOT, tpot_s)):
        readings = served.latencies if served else ()
        read = next((r for r in readings if r.indicator is indicator and r.quantile == QUANTILE), None)
        seconds = number_of(read.seconds) if read else None
        if seconds is not None and limit_s:
            found.append(seconds / limit_s)
    return max(found)


def slo_rule(*, target: float = TARGET, behavior: Behavior = BEHAVIOR) -> PoolRule[SloKept]:
    """Return the law for one pool."""

    def rule(facts: PoolFacts, before: SloKept | None) -> tuple[Proposal, SloKept]:
        kept = before or SloKept()
        ratio = worst_ratio(
            facts.served,
            ttft_s=facts.service.threshold_s(Indicator.TTFT),
            tpot_s=facts.service.threshold_s(Indicator.TPOT) or facts.service.threshold_s(Indicator.ITL),
        )
        recent = tuple(r for r in kept.ratios if r[0] > facts.now_s - AVERAGE_S)
        ratios = (*recent, (facts.now_s, min(ratio, RATIO_CAP)))
        average = sum(r for _, r in ratios) / len(ratios)
        wanted = max(0, desired(average, facts.existing, facts.ready, target=target))
        passed_on = average_value(float(wanted), facts.existing, 1.0, tolerance=behavior.tolerance)
        proposal, hpa = follow(passed_on, facts, kept.hpa, behavior)
        return proposal, SloKept(ratios=ratios, hpa=hpa)

    return rule


def _knob(_world: World) -> Knob:
    return Knob(name="target", unit="latency over limit", safe=0.05, thrifty=1.5, default=TARGET)


def _make(_world: World, setting: float | None) -> Contender:
    return Contender(
        name="llmd-slo",
        law=pool_law(slo_rule(target=TARGET if setting is None else setting)),
        start=LawMemory(),
        wants=Wants(
            period_s=PERIOD_S,
            scrape_interval_s=SCRAPE_S,
            rate_window_s=BUCKET_S,
            latencies=((Indicator.TTFT, QUANTILE, BUCKET_S), (Indicator.TPOT, QUANTILE, BUCKET_S)),
        ),
        setting=setting,
    )


RIVALS: tuple[Rival, ...] = (
    Rival(
        name="llmd-slo",
        summary="llm-d SLO-aware: p90 latency over its limit, through KEDA and an HPA",
        source="llm-d autoscaling guide, SLO-aware KEDA law",
        knob=_knob,
        make=_make,
    ),
)
