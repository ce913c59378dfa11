"""One comparison from load to document: which policies, under what conditions, and what came of each."""

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidegate.app.config_problem import did_you_mean
from tidegate.app.rehearse.caveats import caveats, within_budget
from tidegate.app.rehearse.contest import SPEEDS, Contest, Entrant, findings
from tidegate.app.rehearse.document import ConditionsFacts, Document, Objective, PoolFacts
from tidegate.app.rehearse.findings import (
    FAIR_ORACLE,
    INSTANT_BOUND,
    Finding,
    beaten_by,
    forecast_pair,
    oracle_gap,
    results_of,
)
from tidegate.app.rehearse.forecastable import forecastable_of
from tidegate.app.rehearse.laws import best_static, rivals
from tidegate.app.rehearse.loads import Loads, trace_facts
from tidegate.app.rehearse.plays import Stage, cache_of, world_of
from tidegate.app.rehearse.progress import Told
from tidegate.sim.faults import FaultName
from tidegate.sim.policies import Rival
from tidegate.sim.setup import Routing
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
    match: bool = True  # search each policy's knob
    routing: Routing = Routing.LEAST_REQUEST


def compare(loads: Loads, options: CompareOptions, *, told: Told, also: Sequence[Rival] = ()) -> Document:
    """Return the whole comparison."""
    options = replace(options, policy=within_budget(options.policy))
    trace = loads.of(options.seeds[0])
    facts = trace_facts(loads, trace, seed=options.seeds[0])
    world = world_of(options.policy, trace, peak_per_s=facts.peak_requests_per_s)
    cache, cache_note = cache_of(world, trace)
    contest = Contest(
        stage=Stage(loads=loads, world=world, seeds=options.seeds, routing=options.routing, cache=cache),
        target_ratio=options.target_ratio,
        speeds=SPEEDS if options.capacity_check else (),
        faults=fault_names(options.faults),
        match=options.match,
    )
    entrants = [Entrant(player=rival) for rival in chosen_rivals(options.against, also)]
    if options.oracles:
        entrants.append(Entrant(player=best_static(), kind="oracle"))
        # With several pools it would be a schedule of each; that search is not built yet.
        one_pool = len(options.policy.pools) == 1
        entrants += [Entrant(player=n, kind="oracle") for n in (INSTANT_BOUND, FAIR_ORACLE) if one_pool]
    found = findings(contest, entrants, jobs=options.jobs, told=told)
    told(len(entrants), len(entrants), "forecasting the load")
    foreseen, why_not = forecastable_of(trace, horizon_s=world.cold_start_s)
    facts = replace(facts, forecastable=foreseen, forecastable_reason=why_not)
    results = results_of(found)
    pair, why = forecast_pair(results)
    return Document(
        version=importlib.metadata.version("tidegate"),
        trace=facts,
        conditions=conditions_facts(options),
        policies=results,
        forecast=pair,
        forecast_reason=why,
        notes=(
            *loads.notes,
            *([cache_note] if cache_note else []),
            *caveats(world, trace),
            *_oracle_notes(options, found),
        ),
    )


def _oracle_notes(options: CompareOptions, found: Sequence[Finding]) -> tuple[str, ...]:
    if options.oracles and len(options.policy.pools) > 1:
        return ("There is no fair oracle for a policy of several pools yet, so no gap closed.",)
    return tuple(said for said in (beaten_by(found), oracle_gap(found)) if said is not None)


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
        routing=str(options.routing),
        target_ratio=options.target_ratio,
        seeds=options.seeds,
        scoring=SCORING,
    )  # fmt: skip
