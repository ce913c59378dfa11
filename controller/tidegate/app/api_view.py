"""Records to the JSON models of the API."""

import math
from collections.abc import Iterable
from typing import Literal

from tidegate.app import api_models as out
from tidegate.app.signals import named
from tidegate.app.state import DatedDecision, Newest, request_forecast
from tidegate.core.explain import sentence
from tidegate.terms.capacity import PoolCapacity
from tidegate.terms.decision import PoolDecision, Reason
from tidegate.terms.fleet import Membership, Replica, ReplicaState
from tidegate.terms.observation import (
    Intervention,
    PoolObservation,
    ReplicaObservation,
    ServiceObservation,
    SliReading,
)
from tidegate.terms.policy import PoolPolicy, ServicePolicy
from tidegate.terms.signal import Signal, TrueZero, Unknown, Value

# Notes that say a decision lacked numbers.
_BLIND = frozenset(
    {Reason.STALE_METRICS, Reason.PARTIAL_COVERAGE, Reason.NO_OBSERVATION_YET, Reason.CONTRACT_VIOLATION}
)


def signal_out(signal: Signal, now_s: float) -> out.ValueOut | out.ZeroOut | out.UnknownOut:
    """Return a signal as JSON; unknown stays unknown."""
    at_s, age_s = signal.sampled_at_s, signal.age_s(now_s)
    coverage, source = signal.coverage_ratio, signal.source
    match signal:
        case Unknown():
            return out.UnknownOut(
                reason=str(signal.reason),
                detail=signal.detail,
                sampled_at_s=at_s,
                age_s=age_s,
                coverage_ratio=coverage,
                source=source,
            )
        case TrueZero():
            return out.ZeroOut(sampled_at_s=at_s, age_s=age_s, coverage_ratio=coverage, source=source)
        case Value():
            return out.ValueOut(
                value=signal.value,
                at_least=signal.at_least,
                sampled_at_s=at_s,
                age_s=age_s,
                coverage_ratio=coverage,
                source=source,
            )


def decision_out(dated: DatedDecision) -> out.DecisionOut:
    """Return one pool's decision as JSON, with its sentence."""
    pool = dated.pool
    wanted: out.CountOut | out.NoCountOut = out.NoCountOut(reason="nothing known to size on")
    if pool.wanted_replicas is not None:
        wanted = out.CountOut(value=pool.wanted_replicas)
    return out.DecisionOut(
        decided_at_s=dated.decided_at_s,
        sequence=dated.sequence,
        service=pool.key.service,
        pool=pool.key.pool,
        role=str(pool.role),
        verdict=str(pool.verdict),
        binding=str(pool.binding),
        ready_replicas=pool.ready_replicas,
        starting_replicas=pool.starting_replicas,
        draining_replicas=pool.draining_replicas,
        asked_before_replicas=pool.asked_before_replicas,
        wanted_replicas=wanted,
        asked_replicas=pool.asked_replicas,
        writes=pool.writes,
        sentence=sentence(pool),
        notes=[
            out.NoteOut(
                reason=str(note.reason),
                before_replicas=note.before_replicas,
                after_replicas=note.after_replicas,
                facts={name: number if math.isfinite(number) else None for name, number in note.facts},
                text=note.text,
            )
            for note in pool.notes
        ],
    )


def services_out(newest: Newest, now_s: float) -> list[out.ServiceOut]:
    """Return all services of the newest tick."""
    return [_service_out(policy, newest, now_s) for policy in newest.record.inputs.policies]


def intervention_out(found: Intervention) -> out.InterventionOut:
    """Return an intervention as JSON."""
    return out.InterventionOut(
        kind=str(found.kind),
        service=found.pool.service,
        pool=found.pool.pool,
        replicas=found.replicas,
        expires_at_s=found.expires_at_s,
        origin=found.origin,
    )


def _service_out(policy: ServicePolicy, newest: Newest, now_s: float) -> out.ServiceOut:
    record = newest.record
    seen = _seen(newest, policy)
    forecast = request_forecast(record, policy.name)
    return out.ServiceOut(
        service=policy.name,
        model=policy.model,
        mode=str(policy.mode),
        priority=policy.priority,
        forecast_quantile=policy.scaling.forecast_quantile,
        signals=_signals(seen, now_s),
        slis=[_sli_out(sli, policy, now_s) for sli in (seen.slis if seen is not None else ())],
        forecast=None
        if forecast is None
        else out.ForecastOut(
            made_at_s=forecast.made_at_s,
            step_s=forecast.step_s,
            levels=list(forecast.levels),
            values=[list(row) for row in forecast.values],
            method=forecast.method,
            reason=forecast.reason,
        ),
        pools=[
            _pool_out(policy, pool, decision, newest, now_s)
            for pool in policy.pools
            for decision in record.decision.pools
            if decision.key == pool.key
        ],
    )


def _seen(newest: Newest, policy: ServicePolicy) -> ServiceObservation | None:
    return next((s for s in newest.record.inputs.observation.services if s.service == policy.name), None)


def _signals(
    of: ServiceObservation | PoolObservation | ReplicaObservation | None, now_s: float
) -> dict[str, out.ValueOut | out.ZeroOut | out.UnknownOut]:
    return {} if of is None else {name: signal_out(signal, now_s) for name, signal in named(of)}


def _sli_out(sli: SliReading, policy: ServicePolicy, now_s: float) -> out.SliOut:
    slo = next((s for s in policy.slos if s.name == sli.slo), None)
    objective = slo.objective_ratio if slo is not None else 0.0
    attained = sli.attained_ratio
    met: Literal["yes", "no", "unknown"] = "unknown"
    if slo is not None and not isinstance(attained, Unknown):
        met = "yes" if attained.number >= objective else "no"
    return out.SliOut(
        slo=sli.slo,
        indicator=str(slo.indicator) if slo is not None else "",
        objective_ratio=objective,
        threshold_s=sli.threshold_s,
        promised_s=slo.threshold_s if slo is not None else None,
        attained_ratio=signal_out(attained, now_s),
        quantile_s=signal_out(sli.quantile_s, now_s),
        source=sli.source,
        met=met,
    )


def _pool_out(
    policy: ServicePolicy,
    pool: PoolPolicy,
    decision: PoolDecision,
    newest: Newest,
    now_s: float,
) -> out.PoolOut:
    seen = _seen(newest, policy)
    observed = next((p for p in (seen.pools if seen is not None else ()) if p.key == pool.key), None)
    capacity = next((c for c in newest.record.inputs.capacity if c.key == pool.key), None)
    made = newest.record.decision
    dated = DatedDecision(decided_at_s=made.decided_at_s, sequence=made.sequence, pool=decision)
    members = _members(newest.view.membership, pool, observed)
    return out.PoolOut(
        service=pool.key.service,
        pool=pool.key.pool,
        role=str(pool.role),
        engine=str(pool.engine),
        accelerator=pool.accelerator,
        profile=pool.profile,
        gpus_per_replica=pool.gpus_per_replica,
        min_replicas=pool.min_replicas,
        max_replicas=pool.max_replicas,
        cost_usd_per_h=pool.cost_usd_per_h,
        decision=decision_out(dated),
        states={str(state): sum(r.state is state for r in members) for state in ReplicaState},
        metrics_unknown=list(_why_blind(decision)),
        violations=list(observed.violations) if observed is not None else [],
        capacity=_capacity_out(capacity, policy.scaling.target_utilisation_ratio),
        signals=_signals(observed, now_s),
        replicas=_replicas_out(members, observed, now_s),
    )


def _why_blind(decision: PoolDecision) -> Iterable[str]:
    for note in decision.notes:
        if note.reason in _BLIND:
            yield f"{note.reason}: {note.text}" if note.text else str(note.reason)


def _capacity_out(capacity: PoolCapacity | None, target_ratio: float) -> out.CapacityOut | None:
    if capacity is None:
        return None
    return out.CapacityOut(
        requests_per_s=capacity.requests_per_s,
        planned_requests_per_s=capacity.requests_per_s * target_ratio,
        source=str(capacity.source),
        binding=capacity.binding,
        prompt_tokens=capacity.prompt_tokens,
        output_tokens=capacity.output_tokens,
        cold_start_p50_s=capacity.cold_start_p50_s,
        cold_start_p95_s=capacity.cold_start_p95_s,
        cold_starts_seen=capacity.cold_starts_seen,
    )


def _members(
    membership: Membership | None, policy: PoolPolicy, observed: PoolObservation | None
) -> tuple[Replica, ...]:
    if membership is not None:
        return membership.of(policy.key)
    return tuple(r.replica for r in observed.replicas) if observed is not None else ()


def _replicas_out(members: tuple[Replica, ...], observed: PoolObservation | None, now_s: float) -> list[out.ReplicaOut]:
    seen = {r.replica.name: r for r in observed.replicas} if observed is not None else {}
    return [
        out.ReplicaOut(
            name=replica.name,
            state=str(replica.state),
            address=replica.address,
            node=replica.node,
            ordered_at_s=replica.ordered_at_s,
            ready_at_s=replica.ready_at_s,
            signals=_signals(seen.get(replica.name), now_s),
        )
        for replica in members
    ]
