"""What every rival law shares: one pool's facts out of an observation, and a decision out of what a law proposes.

A law is a rule, pure in (facts, what it remembers). `pool_law` runs a rule on each pool alone, `service_law` on all
pools of a service together; both give the signature of `core.decide`, keep what was asked for, and apply the pool's
bounds last. The first memory of either is `LawMemory()`.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidegate.sim.policies import PolicyFn, World
from tidegate.terms.capacity import PoolCapacity
from tidegate.terms.decision import Decision, PoolDecision, Reason, ReasonNote, Verdict
from tidegate.terms.fleet import PoolKey, ReplicaState
from tidegate.terms.forecast import Forecast
from tidegate.terms.observation import Observation, PoolObservation, ServiceObservation
from tidegate.terms.policy import Mode, PoolPolicy, ServicePolicy
from tidegate.terms.signal import Signal, Unknown, UnknownReason

KeptT = TypeVar("KeptT")

# Reasons that mean the question was not answered. All others are an answer without a usable number: no series, NaN.
_ERRORS = frozenset(
    {UnknownReason.UNREACHABLE, UnknownReason.REJECTED, UnknownReason.BREAKER_OPEN, UnknownReason.PARTIAL}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """One pool as a law may see it at one moment."""

    now_s: float
    pool: PoolPolicy
    service: ServicePolicy
    seen: PoolObservation | None  # None: not observed
    served: ServiceObservation | None  # the service it belongs to
    capacity: PoolCapacity | None
    ready: int
    starting: int
    draining: int
    asked: int  # what was asked for last; at first what exists. Kubernetes' spec.replicas

    @property
    def existing(self) -> int:
        """Replicas ready or starting: Kubernetes' status.replicas, which leaves terminating pods out."""
        return self.ready + self.starting

    @property
    def in_engines(self) -> float | None:
        """Requests running + waiting in the ready replicas that reported; None when either sum is unknown."""
        if self.seen is None:
            return None
        running, waiting = number_of(self.seen.running_requests), number_of(self.seen.waiting_requests)
        return None if running is None or waiting is None else running + waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What a rule asks for in one pool, before the pool's bounds."""

    asked: int
    wanted: int | None  # what the load alone calls for; None: nothing known to size on
    notes: tuple[ReasonNote, ...]  # in order; the last that moved the number binds


@dataclass(frozen=True, slots=True, kw_only=True)
class LawMemory(Generic[KeptT]):
    """What a law carries from call to call: its counter, what it asked for, and what its rule keeps."""

    sequence: int = 0
    asked: tuple[tuple[PoolKey, int], ...] = ()
    kept: tuple[tuple[Hashable, KeptT], ...] = ()  # by pool key, or by service name


PoolRule = Callable[[PoolFacts, KeptT | None], tuple[Proposal, KeptT]]
ServiceRule = Callable[[tuple[PoolFacts, ...], KeptT | None], tuple[tuple[Proposal, ...], KeptT]]


def pool_law(rule: PoolRule[KeptT]) -> PolicyFn[LawMemory[KeptT]]:
    """Return the law that decides each pool alone; `rule(facts, kept)` gets None as `kept` at first."""

    def apart(pools: tuple[PoolFacts, ...], kept: dict[Hashable, KeptT]) -> list[tuple[Hashable, KeptT, list[_Made]]]:
        found: list[tuple[Hashable, KeptT, list[_Made]]] = []
        for facts in pools:
            proposal, after = rule(facts, kept.get(facts.pool.key))
            found.append((facts.pool.key, after, [(facts, proposal)]))
        return found

    return _law(apart)


def service_law(rule: ServiceRule[KeptT]) -> PolicyFn[LawMemory[KeptT]]:
    """Return the law that decides a service's pools together; the rule answers in the order it was given."""

    def together(
        pools: tuple[PoolFacts, ...], kept: dict[Hashable, KeptT]
    ) -> list[tuple[Hashable, KeptT, list[_Made]]]:
        name = pools[0].service.name
        proposals, after = rule(pools, kept.get(name))
        return [(name, after, list(zip(pools, proposals, strict=True)))]

    return _law(together)


def number_of(signal: Signal | None) -> float | None:
    """Return the number read, or None when it is unknown; coverage is not looked at, as a plain sum would not."""
    return None if signal is None or isinstance(signal, Unknown) else signal.number


def failed(signal: Signal | None) -> bool:
    """Return whether the question itself failed (backend unreachable, error), not just the answer was empty."""
    return signal is None or (isinstance(signal, Unknown) and signal.reason in _ERRORS)


def held(facts: PoolFacts, reason: Reason = Reason.STALE_METRICS, text: str = "") -> Proposal:
    """Return the proposal to leave the pool as it is, because nothing is known to size on."""
    note = ReasonNote(reason=reason, before_replicas=facts.asked, after_replicas=facts.asked, text=text)
    return Proposal(asked=facts.asked, wanted=None, notes=(note,))


def staged(*stages: tuple[Reason, int]) -> tuple[ReasonNote, ...]:
    """Return a note for the first stage and for each later one that changed the number."""
    reason, number = stages[0]
    notes = [ReasonNote(reason=reason, before_replicas=number, after_replicas=number)]
    for reason, after in stages[1:]:
        if after != number:
            notes.append(ReasonNote(reason=reason, before_replicas=number, after_replicas=after))
            number = after
    return tuple(notes)


def inside(pool: PoolPolicy, replicas: int) -> int:
    """Return `replicas` within the pool's bounds."""
    return max(pool.min_replicas, min(pool.max_replicas, replicas))


def ceil_div(load: float, per_replica: float) -> int:
    """Return the replicas that `load` needs, without one more for a rounding error of the division.

    Raises:
        ValueError: A load that is not finite, or a size per replica that is not > 0.
    """
    if not (math.isfinite(load) and per_replica > 0.0):
        msg = f"need a finite load and a size per replica > 0, got {load} and {per_replica}"
        raise ValueError(msg)
    return math.ceil(load / per_replica - 1e-9)


def share_of(world: World, key: PoolKey) -> float:
    """Return the part of the service's requests that one pool answers for.

    Every request passes each role once, and pools of the same role are taken to carry equal parts.
    """
    role = next(p.role for p in world.policy.pools if p.key == key)
    return 1.0 / sum(p.role is role for p in world.policy.pools)


_Made = tuple[PoolFacts, Proposal]
_Apply = Callable[[tuple[PoolFacts, ...], dict[Hashable, KeptT]], list[tuple[Hashable, KeptT, list[_Made]]]]


def _law(apply: _Apply[KeptT]) -> PolicyFn[LawMemory[KeptT]]:
    def decide(
        obs: Observation,
        forecasts: Sequence[Forecast],  # noqa: ARG001  (rivals make their own, if any)
        capacity: Sequence[PoolCapacity],
        policies: Sequence[ServicePolicy],
        memory: LawMemory[KeptT],
        *,
        now_s: float,
    ) -> tuple[Decision, LawMemory[KeptT]]:
        asked, kept = dict(memory.asked), dict(memory.kept)
        pools: list[PoolDecision] = []
        after: list[tuple[Hashable, KeptT]] = []
        for policy in policies:
            facts = facts_of(obs, policy, capacity, asked, now_s=now_s)
            for name, remembered, made in apply(facts, kept) if facts else ():
                after.append((name, remembered))
                pools += [settled(f, p) for f, p in made]
        sequence = memory.sequence + 1
        remembers = LawMemory(
            sequence=sequence, asked=tuple((p.key, p.asked_replicas) for p in pools), kept=tuple(after)
        )
        return Decision(decided_at_s=now_s, sequence=sequence, pools=tuple(pools)), remembers

    return decide


def facts_of(
    obs: Observation,
    policy: ServicePolicy,
    capacity: Sequence[PoolCapacity],
    asked: dict[PoolKey, int],
    *,
    now_s: float,
) -> tuple[PoolFacts, ...]:
    """Return the facts of each pool of one service; `asked` is what was asked for last, empty at first."""
    served = next((s for s in obs.services if s.service == policy.name), None)
    seen = {p.key: p for p in served.pools} if served else {}
    sized = {c.key: c for c in capacity}
    found = []
    for pool in policy.pools:
        observed = seen.get(pool.key)
        states = [r.replica.state for r in observed.replicas] if observed else []
        ready, starting = states.count(ReplicaState.READY), states.count(ReplicaState.STARTING)
        found.append(
            PoolFacts(
                now_s=now_s,
                pool=pool,
                service=policy,
                seen=observed,
                served=served,
                capacity=sized.get(pool.key),
                ready=ready,
                starting=starting,
                draining=states.count(ReplicaState.DRAINING),
                asked=asked.get(pool.key, ready + starting),
            )
        )
    return tuple(found)


def settled(facts: PoolFacts, proposal: Proposal) -> PoolDecision:
    """Return the pool's decision: the proposal inside the bounds."""
    asked = inside(facts.pool, proposal.asked)
    notes = proposal.notes
    if asked != proposal.asked:
        border = Reason.AT_MAXIMUM if proposal.asked > asked else Reason.AT_MINIMUM
        notes = (*notes, ReasonNote(reason=border, before_replicas=proposal.asked, after_replicas=asked))
    moved = asked - facts.asked
    return PoolDecision(
        key=facts.pool.key,
        role=facts.pool.role,
        verdict=Verdict.GROW if moved > 0 else Verdict.SHRINK if moved < 0 else Verdict.HOLD,
        ready_replicas=facts.ready,
        starting_replicas=facts.starting,
        draining_replicas=facts.draining,
        asked_before_replicas=facts.asked,
        wanted_replicas=proposal.wanted,
        asked_replicas=asked,
        binding=notes[-1].reason if notes else Reason.STEADY,
        notes=notes,
        writes=facts.service.mode is Mode.ACT,
    )
