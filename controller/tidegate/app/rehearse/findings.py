"""What was found out about each policy, and the document made of it: medians, ranks, flips and the gap closed."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from tidegate.app.rehearse.document import (
    CapacityCheck,
    FaultFigures,
    Figures,
    ForecastPair,
    FrontierPoint,
    KnobFacts,
    Matched,
    PolicyResult,
    ReplicasOverTime,
    SeedFigures,
)
from tidegate.sim.faults import Fault

# Between these two lies what there is to win.
BEST_STATIC = "best-static"
FAIR_ORACLE = "clairvoyant"
# Below the fair oracle lies this; between the two, what a better schedule could still save.
INSTANT_BOUND = "instant-bound"
OWN = "tidegate"
OWN_WITHOUT_FORECAST = "tidegate-reactive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """One policy once over one load."""

    seed: int
    setting: float | None  # the knob's value; None: it has none
    figures: Figures
    attained: Mapping[str, float]  # share of requests that met each objective alone
    replicas: ReplicasOverTime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The cheapest setting that reaches the target, played under every seed; or why there is none."""

    plays: tuple[Play, ...] = ()
    reason: str | None = None

    @property
    def gpu_hours(self) -> float | None:
        """Median over the seeds; None when the target is out of reach."""
        return statistics.median(p.figures.gpu_hours for p in self.plays) if self.plays else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AtSpeed:
    """The comparison with engines of another speed than believed."""

    default: tuple[Play, ...]
    match: Match


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """All that was played of one policy."""

    name: str
    kind: str  # "policy" or "oracle"
    summary: str
    source: str
    period_s: float | None
    knob: KnobFacts | None
    default: tuple[Play, ...]  # one a seed; at least one
    match: Match
    frontier: tuple[FrontierPoint, ...] = ()
    at_speed: Mapping[float, AtSpeed] = field(default_factory=dict)  # by real speed over believed speed
    faulty: tuple[tuple[Fault, Play], ...] = ()
    notes: tuple[str, ...] = ()


def results_of(findings: Sequence[Finding]) -> tuple[PolicyResult, ...]:
    """Return the document's policies, in the order given."""
    believed = {f.name: f.match.gpu_hours for f in findings}
    by_speed = {
        ratio: {f.name: f.at_speed[ratio].match.gpu_hours for f in findings if ratio in f.at_speed}
        for ratio in sorted({r for f in findings for r in f.at_speed})
    }
    return tuple(_result(f, findings, believed, by_speed) for f in findings)


_Hours = Mapping[str, float | None]


def _result(
    of: Finding, findings: Sequence[Finding], believed: _Hours, by_speed: Mapping[float, _Hours]
) -> PolicyResult:
    closed, closed_reason = gap_closed(believed, of.name)
    matched = None
    if of.match.plays:
        matched = Matched(**_values(median_of([p.figures for p in of.match.plays])), setting=of.match.plays[0].setting)
    policies = [f.name for f in findings if f.kind == "policy"]
    return PolicyResult(
        **_values(median_of([p.figures for p in of.default])),
        name=of.name,
        kind=of.kind,
        summary=of.summary,
        source=of.source,
        period_s=of.period_s,
        attained={k: statistics.median(p.attained[k] for p in of.default) for k in of.default[0].attained},
        knob=of.knob,
        gap_closed_ratio=closed,
        gap_closed_ratio_reason=closed_reason,
        matched_gpu_hours=of.match.gpu_hours,
        matched_gpu_hours_reason=of.match.reason,
        matched=matched,
        rank=rank_of(of.name, {n: believed[n] for n in policies}),
        seeds=tuple(SeedFigures(**_values(p.figures), seed=p.seed) for p in of.default),
        frontier=tuple(sorted(of.frontier, key=lambda p: (p.gpu_hours, p.attainment_ratio))),
        capacity_check=tuple(_at_speed(of, r, believed, hours, policies) for r, hours in by_speed.items()
                             if r in of.at_speed),
        faults=tuple(_faulty(fault, play) for fault, play in of.faulty),
        replicas=next((p.replicas for p in of.default if p.replicas is not None), None),
        notes=of.notes,
    )  # fmt: skip


def _at_speed(of: Finding, ratio: float, believed: _Hours, hours: _Hours, policies: Sequence[str]) -> CapacityCheck:
    played = of.at_speed[ratio]
    rivals = policies if of.name in policies else ()
    figures = median_of([p.figures for p in played.default])
    return CapacityCheck(
        capacity_ratio=ratio,
        attainment_ratio=figures.attainment_ratio,
        gpu_hours=figures.gpu_hours,
        matched_gpu_hours=played.match.gpu_hours,
        matched_gpu_hours_reason=played.match.reason,
        rank=rank_of(of.name, {n: hours.get(n) for n in policies}),
        flips_with=tuple(n for n in rivals if n in hours and flips(of.name, n, believed, hours)),
    )


def _faulty(fault: Fault, play: Play) -> FaultFigures:
    heals = math.isfinite(fault.duration_s)
    return FaultFigures(
        **_values(play.figures),
        fault=str(fault.name),
        start_s=fault.start_s,
        duration_s=fault.duration_s if heals else None,
    )


def gap_closed(matched_gpu_hours: _Hours, name: str) -> tuple[float | None, str | None]:
    """Return (best static - policy) / (best static - fair oracle) at matched attainment, or None and why."""
    for end in (BEST_STATIC, FAIR_ORACLE):
        if end not in matched_gpu_hours:
            return None, f"{end} was not played"
    static, oracle, mine = (matched_gpu_hours[n] for n in (BEST_STATIC, FAIR_ORACLE, name))
    if static is None or oracle is None:
        return None, f"{BEST_STATIC if static is None else FAIR_ORACLE} does not reach the target"
    if mine is None:
        return None, "does not reach the target"
    if static - oracle <= 1e-9 * static:
        return None, f"no gap: {FAIR_ORACLE} needs as many GPU hours as {BEST_STATIC}"
    return (static - mine) / (static - oracle), None


def beaten_by(findings: Sequence[Finding]) -> str | None:
    """Say which policies did better than the schedule found for the fair oracle; None when none did."""
    hours = {f.name: f.match.gpu_hours for f in findings if f.kind == "policy"}
    fair = next((f.match.gpu_hours for f in findings if f.name == FAIR_ORACLE), None)
    if fair is None:
        return None
    below = [name for name, mine in hours.items() if mine is not None and mine < fair]
    if not below:
        return None
    return (
        f"The fair oracle is beaten by {', '.join(below)}: its search is coarse on small fleets and short "
        "loads, and a gap closed above 100 % says no more than that."
    )


def oracle_gap(findings: Sequence[Finding]) -> str | None:
    """Return how far the fair oracle lies above the instant bound, in a sentence; None when one of them is missing."""
    hours = {f.name: f.match.gpu_hours for f in findings}
    fair, instant = hours.get(FAIR_ORACLE), hours.get(INSTANT_BOUND)
    if fair is None or instant is None:
        return None
    if fair <= instant:
        return (
            f"The fair oracle ({fair:.4g} GPU h) needs no more than a perfect forecast with instant starts "
            f"({instant:.4g} GPU h), which does not choose where to spend its misses."
        )
    return (
        f"The fair oracle lies {100.0 * (fair / instant - 1.0):.1f} % above a perfect forecast with instant starts "
        f"({instant:.4g} GPU h): about the most that a better schedule could still save."
    )


def rank_of(name: str, matched_gpu_hours: _Hours) -> int | None:
    """Return the place by GPU hours from 1 (equal ones share it); None for an oracle or when out of reach."""
    mine = matched_gpu_hours.get(name)
    if mine is None:
        return None
    return 1 + sum(other is not None and other < mine for other in matched_gpu_hours.values())


def flips(one: str, other: str, before: _Hours, after: _Hours) -> bool:
    """Return whether two policies change their order; out of reach is worse than any number of GPU hours."""

    def order(hours: _Hours) -> int:
        a, b = (math.inf if (h := hours.get(n)) is None else h for n in (one, other))
        return (a > b) - (a < b)

    return order(before) * order(after) < 0


def median_of(figures: Sequence[Figures]) -> Figures:
    """Return the median of each figure; null where most plays have none."""
    made: dict[str, Any] = {f.name: _median([getattr(one, f.name) for one in figures]) for f in fields(Figures)}
    return Figures(**(made | {n: round(made[n]) for n in ("scale_events", "failed", "replicas_peak")}))


def _median(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.median(known) if 2 * len(known) > len(values) else None


def _values(figures: Figures) -> dict[str, Any]:
    return {f.name: getattr(figures, f.name) for f in fields(Figures)}


def forecast_pair(results: Sequence[PolicyResult]) -> tuple[ForecastPair | None, str | None]:
    """Return Tidegate with and without its forecast, or None and why."""
    by_name = {r.name: r for r in results}
    on, off = by_name.get(OWN), by_name.get(OWN_WITHOUT_FORECAST)
    if on is None or off is None:
        return None, f"{OWN if on is None else OWN_WITHOUT_FORECAST} was not played"
    return ForecastPair(
        on=Figures(**_values(on)),
        off=Figures(**_values(off)),
        matched_gpu_hours_on=on.matched_gpu_hours,
        matched_gpu_hours_off=off.matched_gpu_hours,
    ), None
