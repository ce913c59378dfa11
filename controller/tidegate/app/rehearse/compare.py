"""One comparison from load to document: which policies, under what conditions, and what came of each."""

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.app.config_problem import did_you_mean
from tidegate.app.rehearse.document import ConditionsFacts, Document, Objective, PoolFacts
from tidegate.app.rehearse.findings import Finding, Match, forecast_pair, results_of
from tidegate.app.rehearse.loads import Loads, trace_facts
from tidegate.app.rehearse.plays import play, rivals, world_of
from tidegate.app.rehearse.progress import Told
from tidegate.sim.faults import FaultName
from tidegate.sim.policies import Rival
from tidegate.terms.errors import BadInputError
from tidegate.terms.policy import ServicePolicy

SCORING = "docs/scoring.md"
ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """What is compared, and how strictly."""

    policy: ServicePolicy
    against: tuple[str, ...] = ()  # names, or "all"
    seeds: tuple[int, ...] = (0,)
    faults: tuple[str, ...] = ()  # names, or "all"
    target_ratio: float = 0.99
    jobs: int = 1
    capacity_check: bool = True
    oracles: bool = True


def compare(loads: Loads, options: CompareOptions, *, told: Told, also: Sequence[Rival] = ()) -> Document:
    """Return the whole comparison."""
    chosen = chosen_rivals(options.against, also)
    trace = loads.of(options.seeds[0])
    facts = trace_facts(loads, trace, seed=options.seeds[0])
    world = world_of(options.policy, trace, peak_per_s=facts.peak_requests_per_s)
    findings = []
    for i, rival in enumerate(chosen):
        told(i, len(chosen), rival.name)
        contender = rival.make(world, None)
        plays = tuple(play(loads.of(s), world, contender, seed=s) for s in options.seeds)
        findings.append(
            Finding(name=rival.name, kind="policy", summary=rival.summary, source=rival.source,
                    period_s=contender.wants.period_s, knob=None, default=plays, match=Match(reason="not searched"))
        )  # fmt: skip
    results = results_of(findings)
    pair, why = forecast_pair(results)
    return Document(
        version=importlib.metadata.version("tidegate"),
        trace=facts,
        conditions=conditions_facts(options),
        policies=results,
        forecast=pair,
        forecast_reason=why,
        notes=loads.notes,
    )


def check(options: CompareOptions) -> None:
    """Raise BadInputError when a name is none: before anything is read that takes long."""
    chosen_rivals(options.against)
    fault_names(options.faults)


def fault_names(named: Sequence[str]) -> tuple[FaultName, ...]:
    """Return the faults named, or all.

    Raises:
        BadInputError: A name that is none.
    """
    if ALL in named:
        return tuple(FaultName)
    for name in named:
        if name not in set(FaultName):
            hint = did_you_mean(name, FaultName)
            msg = f"--faults: no such fault: {name!r}{hint}; there are {', '.join(FaultName)}, {ALL}"
            raise BadInputError(msg)
    return tuple(FaultName(name) for name in named)


def chosen_rivals(against: Sequence[str], also: Sequence[Rival] = ()) -> list[Rival]:
    """Return our own law with and without its forecast, then those named, then `also`.

    Raises:
        BadInputError: A name that is none.
    """
    known = rivals()
    own = ["tidegate", "tidegate-reactive"]
    named = list(known) if ALL in against else list(against)
    for name in named:
        if name not in known:
            msg = f"--against: no such policy: {name!r}{did_you_mean(name, known)}; there are {', '.join(known)}, {ALL}"
            raise BadInputError(msg)
    return [known[name] for name in dict.fromkeys([*own, *named])] + list(also)


def conditions_facts(options: CompareOptions) -> ConditionsFacts:
    """Return what all policies shared."""
    policy = options.policy
    return ConditionsFacts(
        policy=policy.name,
        model=policy.model,
        objectives=tuple(
            Objective(name=s.name, indicator=str(s.indicator), threshold_s=s.threshold_s,
                      objective_ratio=s.objective_ratio)
            for s in policy.slos
        ),
        pools=tuple(
            PoolFacts(name=str(p.key), role=str(p.role), profile=p.profile, gpus_per_replica=p.gpus_per_replica,
                      cost_usd_per_h=p.cost_usd_per_h, min_replicas=p.min_replicas, max_replicas=p.max_replicas,
                      cold_start_s=p.cold_start_prior_s)
            for p in policy.pools
        ),
        routing="least_request",
        target_ratio=options.target_ratio,
        seeds=options.seeds,
        scoring=SCORING,
    )  # fmt: skip
