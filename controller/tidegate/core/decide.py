"""One decision over the whole fleet: facts and memory in, counts with reasons and memory out."""

from collections.abc import Sequence

from tidegate.core.guards import Context, restrain, worst
from tidegate.core.need import PoolNeed, queue_of
from tidegate.core.scene import Scene, contexts, look
from tidegate.core.supply import Supply, leave_order
from tidegate.core.trust import words_on
from tidegate.terms.capacity import PoolCapacity
from tidegate.terms.decision import Decision, Memory, PoolDecision, PoolMemory, Reason, ReasonNote, Verdict
from tidegate.terms.fleet import PoolKey
from tidegate.terms.forecast import Forecast
from tidegate.terms.observation import Observation, PoolObservation
from tidegate.terms.policy import Mode, PoolPolicy, ServicePolicy


def decide(
    obs: Observation,
    forecasts: Sequence[Forecast],
    capacity: Sequence[PoolCapacity],
    policies: Sequence[ServicePolicy],
    memory: Memory,
    *,
    now_s: float,
) -> tuple[Decision, Memory]:
    """Return the replica count to ask of every pool, with reasons, and what to remember.

    Never raises on bad data: what cannot be believed holds the pool, and the notes say so. The order of pools is that
    of the policies. The same arguments always give the same result.

    Args:
        obs: The fleet as seen; every number a signal.
        forecasts: At most one per service counts: the newest of requests/s.
        capacity: One per pool; a pool without one is held.
        policies: All services; what is not named here is not decided.
        memory: As returned by the call before; `Memory()` at the very first.
        now_s: Unix time of the decision.
    """
    services = {s.service: s for s in obs.services}
    capacities = {c.key: c for c in capacity}
    sequence = memory.sequence + 1
    decided: list[PoolDecision] = []
    remembered: list[PoolMemory] = []
    for policy in policies:
        scene = look(policy, services.get(policy.name), forecasts, capacities, memory, now_s=now_s)
        guarded = contexts(scene, obs.interventions)
        for pool in policy.pools:
            decision = _decide_pool(scene, pool, guarded[pool.key])
            decided.append(decision)
            remembered.append(_remember(scene, pool, decision))
    return (
        Decision(decided_at_s=now_s, sequence=sequence, pools=tuple(decided)),
        Memory(sequence=sequence, pools=tuple(remembered)),
    )


def _decide_pool(scene: Scene, pool: PoolPolicy, context: Context) -> PoolDecision:
    supply = scene.facts.supply[pool.key]
    need = scene.needs[pool.key]
    asked, guard_notes = restrain(scene.proposal(pool.key), context)
    before = supply.asked_before_replicas
    binding, closing = _binding(need, guard_notes, context, asked)
    notes = (
        *need.notes,
        *guard_notes,
        *closing,
        *_side_notes(supply, asked, advise=scene.facts.policy.mode is Mode.ADVISE),
    )
    excess = max(0, supply.live_replicas - asked)
    target = context.inside(max(need.wanted_replicas or 0, context.window.highest_replicas or 0))
    return PoolDecision(
        key=pool.key,
        role=pool.role,
        verdict=Verdict.GROW if asked > before else Verdict.SHRINK if asked < before else Verdict.HOLD,
        ready_replicas=supply.ready_replicas,
        starting_replicas=supply.starting_replicas,
        draining_replicas=supply.draining_replicas,
        asked_before_replicas=before,
        wanted_replicas=need.wanted_replicas,
        asked_replicas=asked,
        binding=binding,
        notes=notes,
        drain_first=leave_order(
            _seen(scene, pool.key),
            excess_replicas=excess,
            spare_ready_replicas=supply.ready_replicas - min(asked, target),
        ),
        writes=scene.facts.policy.mode is Mode.ACT,
    )


def _binding(
    need: PoolNeed, guard_notes: Sequence[ReasonNote], context: Context, asked: int
) -> tuple[Reason, tuple[ReasonNote, ...]]:
    """Return the reason that bound the number, and a closing note when no other one says it.

    That is the last consideration that changed the number. A hold while signals are lost is always named so, even if
    the need happens to equal what there is: nobody can know that it does.
    """
    before = context.supply.asked_before_replicas
    if not context.ever_observed:
        return Reason.NO_OBSERVATION_YET, ()
    spoke = [n for n in guard_notes if n.before_replicas != n.after_replicas]
    frozen = any(n.reason is Reason.FROZEN for n in spoke)
    if asked == before and (need.wanted_replicas is None or need.wanted_replicas <= before) and not frozen:
        blind = bool(context.doubts) and worst(context.doubts) is not Reason.PARTIAL_COVERAGE
        if blind or need.wanted_replicas is None:
            return _blind(guard_notes, context, asked)
    if spoke:
        return spoke[-1].reason, ()
    if asked == before:
        return Reason.STEADY, (ReasonNote(reason=Reason.STEADY, before_replicas=asked, after_replicas=asked),)
    raising = [n for n in need.notes if n.before_replicas != n.after_replicas]
    return (raising or list(need.notes))[-1].reason, ()


def _blind(guard_notes: Sequence[ReasonNote], context: Context, asked: int) -> tuple[Reason, tuple[ReasonNote, ...]]:
    reason = worst(context.doubts) if context.doubts else Reason.STALE_METRICS
    if any(n.reason is reason for n in guard_notes):
        return reason, ()
    text = words_on(context.doubts)
    return reason, (ReasonNote(reason=reason, before_replicas=asked, after_replicas=asked, text=text),)


def _side_notes(supply: Supply, asked: int, *, advise: bool) -> tuple[ReasonNote, ...]:
    """Return the notes on what does not change the number: failed replicas replaced, supply ordered, advice only."""
    notes = []
    if supply.failed_replicas and supply.live_replicas < asked:
        facts = (("failed_replicas", float(supply.failed_replicas)),)
        notes.append(ReasonNote(reason=Reason.REPLACE_FAILED, before_replicas=asked, after_replicas=asked, facts=facts))
    elif supply.starting_replicas:
        facts = (("pending_replicas", float(supply.starting_replicas)),)
        notes.append(ReasonNote(reason=Reason.PENDING_SUPPLY, before_replicas=asked, after_replicas=asked, facts=facts))
    if advise:
        notes.append(ReasonNote(reason=Reason.ADVISE_ONLY, before_replicas=asked, after_replicas=asked))
    return tuple(notes)


def _remember(scene: Scene, pool: PoolPolicy, decision: PoolDecision) -> PoolMemory:
    past = scene.facts.memory.get(pool.key)
    observed = _seen(scene, pool.key)
    stale_after_s = scene.facts.policy.scaling.stale_after_s
    grown, shrunk = decision.verdict is Verdict.GROW, decision.verdict is Verdict.SHRINK
    return PoolMemory(
        key=pool.key,
        asked_replicas=decision.asked_replicas,
        last_grow_at_s=scene.facts.now_s if grown else past.last_grow_at_s if past else None,
        last_shrink_at_s=scene.facts.now_s if shrunk else past.last_shrink_at_s if past else None,
        wanted_history=scene.histories[pool.key],
        ever_observed=scene.ever_observed(pool.key),
        waiting_requests=queue_of(observed, now_s=scene.facts.now_s, stale_after_s=stale_after_s) if observed else None,
    )


def _seen(scene: Scene, key: PoolKey) -> PoolObservation | None:
    observed = scene.facts.observed
    return next((p for p in observed.pools if p.key == key), None) if observed is not None else None
