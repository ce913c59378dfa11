"""From a decision to the steps that are still missing: warm, shift, drain, shrink, clear.

Pure and idempotent. It is called every second with the newest decision and the membership as it is now, so a step that
was refused, lost or half done is simply planned again; a step that was done is not.

What may never happen, whatever the interleaving of plans, starts and failures: a replica taken from the gateway while
the replicas that are ready would then be fewer than asked for. Starting replicas count as supply (nothing is ordered
twice) and never as cover for a removal (they may still fail).
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from tidegate.placement.cluster import Request, cluster_of
from tidegate.placement.schedule import fill
from tidegate.placement.score import Strategy
from tidegate.terms.decision import Decision, PoolDecision, Reason, Verdict
from tidegate.terms.errors import IllegalPlanError
from tidegate.terms.fleet import Membership, PoolKey, Replica, ReplicaState
from tidegate.terms.observation import NodeInventory
from tidegate.terms.plan import Plan, Receipt, Step, StepKind

# Far above any decision interval (10-30 s): deciding has stopped, so what it knew of the load is no longer true.
DECISION_VALID_S = 120.0

# A hold for one of these is doubt or an order to stand still: even a removal decided before waits until it is over.
_STAND_STILL = frozenset(
    {
        Reason.STALE_METRICS,
        Reason.PARTIAL_COVERAGE,
        Reason.NO_OBSERVATION_YET,
        Reason.CONTRACT_VIOLATION,
        Reason.FROZEN,
    }
)


def plan(
    decision: Decision,
    membership: Membership,
    *,
    nodes: tuple[NodeInventory, ...] | None,
    gpus_per_replica: Mapping[PoolKey, int],
    gateway_acked: bool,
    now_s: float,
    accelerators: Mapping[PoolKey, str] | None = None,
    strategy: Strategy = Strategy.SPREAD,
    unnamed: Collection[PoolKey] = (),
) -> Plan:
    """Return the steps that carry `decision` on from `membership`.

    Args:
        decision: The newest one. Pools it does not name, and pools in advise mode, get no step.
        membership: The fleet now. A draining replica without an address has ended and may be forgotten.
        nodes: Inventory; None: unknown, so nothing is refused for lack of room and steps name no node.
        gpus_per_replica: GPUs each replica of a pool takes, >= 1.
        gateway_acked: Whether every gateway runs the endpoints made from this very `membership`. Only then may a
            draining replica be told to end.
        now_s: Unix time; a decision older than `DECISION_VALID_S` takes no further replica out of service.
        accelerators: What a pool's node must carry; absent or empty: any.
        strategy: How to choose among nodes that fit.
        unnamed: Pools that no policy names any more; all of their replicas leave.

    Raises:
        IllegalPlanError: The decision contradicts itself or the membership; a bug.
    """
    _check(decision, membership, gpus_per_replica)
    acting = [p for p in decision.pools if p.writes]
    requests = _missing(decision.sequence, acting, membership, gpus_per_replica, accelerators or {})
    warm, refused = _placed(requests, membership, nodes, gpus_per_replica, strategy)
    steps = list(warm)
    fresh = now_s - decision.decided_at_s <= DECISION_VALID_S
    for pool in acting:
        if fresh:
            steps += [_step(StepKind.SHIFT, r) for r in _to_shift(pool, membership)]
        steps += _leaving(pool.key, membership, gateway_acked=gateway_acked)
    for key in sorted(unnamed):
        serving = membership.of(key, ReplicaState.READY, ReplicaState.STARTING)
        steps += [_step(StepKind.SHIFT, r) for r in serving]
        steps += _leaving(key, membership, gateway_acked=gateway_acked)
    return Plan(decision_sequence=decision.sequence, steps=_in_order(steps), refused=refused)


def replica_name(key: PoolKey, sequence: int, index: int) -> str:
    """Return the name of a replica ordered by decision `sequence`.

    Service and pool are RFC 1123 labels, which hold no dot, so two pools never make the same name.
    """
    return f"{key.service}.{key.pool}.{sequence}.{index}"


def _missing(
    sequence: int,
    acting: list[PoolDecision],
    membership: Membership,
    gpus_per_replica: Mapping[PoolKey, int],
    accelerators: Mapping[PoolKey, str],
) -> list[Request]:
    requests: list[Request] = []
    for pool in acting:
        supply = len(membership.of(pool.key, ReplicaState.READY, ReplicaState.STARTING))
        first = _next_index(pool.key, sequence, membership)
        requests += [
            Request(
                replica=replica_name(pool.key, sequence, first + i),
                pool=pool.key,
                gpus=gpus_per_replica[pool.key],
                accelerator=accelerators.get(pool.key, ""),
            )
            for i in range(max(0, pool.asked_replicas - supply))
        ]
    return requests


def _placed(
    requests: list[Request],
    membership: Membership,
    nodes: tuple[NodeInventory, ...] | None,
    gpus_per_replica: Mapping[PoolKey, int],
    strategy: Strategy,
) -> tuple[list[Step], tuple[Receipt, ...]]:
    """Return a WARM step for each request that has a place, and a refusal for each that has none."""
    unplaced = {r.replica: Step(kind=StepKind.WARM, pool=r.pool, replica=r.replica) for r in requests}
    if nodes is None:
        return list(unplaced.values()), ()
    filling = fill(requests, cluster_of(nodes, membership, gpus_per_replica), strategy)
    where = filling.nodes()
    why = {name: refusal.reason for refusal in filling.refusals for name in refusal.replicas}
    steps = [replace(step, node=where[name]) for name, step in unplaced.items() if name in where]
    refused = tuple(
        Receipt(step=step, accepted=False, detail=f"not placed: {why[name]}")
        for name, step in unplaced.items()
        if name in why
    )
    return steps, refused


def _leaving(key: PoolKey, membership: Membership, *, gateway_acked: bool) -> list[Step]:
    draining = membership.of(key, ReplicaState.DRAINING)
    steps = [_step(StepKind.DRAIN, r) for r in draining if r.address and gateway_acked]
    steps += [_step(StepKind.SHRINK, r) for r in draining if not r.address]
    return steps + [_step(StepKind.CLEAR, r) for r in membership.of(key, ReplicaState.FAILED)]


def _next_index(key: PoolKey, sequence: int, membership: Membership) -> int:
    # After the highest that still exists: a failed replica keeps its name until cleared, its replacement needs another.
    stem = replica_name(key, sequence, 0)[:-1]
    tails = [r.name.removeprefix(stem) for r in membership.of(key) if r.name.startswith(stem)]
    return 1 + max((int(t) for t in tails if t.isdecimal()), default=-1)


def _to_shift(pool: PoolDecision, membership: Membership) -> list[Replica]:
    if pool.verdict is Verdict.HOLD and pool.binding in _STAND_STILL:
        return []
    ready = membership.of(pool.key, ReplicaState.READY)
    spare = max(0, len(ready) - pool.asked_replicas)
    place = {name: i for i, name in enumerate(pool.drain_first)}
    # Those the decision does not name come last, the youngest first: it has the least cache to lose.
    ordered = sorted(ready, key=lambda r: (place.get(r.name, len(place)), -(r.ready_at_s or r.ordered_at_s), r.name))
    return ordered[:spare]


def _step(kind: StepKind, replica: Replica) -> Step:
    return Step(kind=kind, pool=replica.pool, replica=replica.name, node=replica.node)


def _in_order(steps: list[Step]) -> tuple[Step, ...]:
    rank = {kind: i for i, kind in enumerate(StepKind)}
    return tuple(sorted(steps, key=lambda s: rank[s.kind]))  # stable: within a kind, as planned


def _check(decision: Decision, membership: Membership, gpus_per_replica: Mapping[PoolKey, int]) -> None:
    problems: list[str] = []
    keys = [p.key for p in decision.pools]
    problems += [f"{key}: decided twice" for key in sorted(set(keys)) if keys.count(key) > 1]
    names = [r.name for r in membership.replicas]
    problems += [f"replica {name}: exists twice" for name in sorted(set(names)) if names.count(name) > 1]
    home = {r.name: r.pool for r in membership.replicas}
    for pool in decision.pools:
        if pool.asked_replicas < 0:
            problems.append(f"{pool.key}: asked_replicas must be >= 0, got {pool.asked_replicas}")
        if gpus_per_replica.get(pool.key, 0) < 1:
            problems.append(f"{pool.key}: gpus_per_replica must be >= 1, got {gpus_per_replica.get(pool.key)}")
        wrong_way = (pool.verdict is Verdict.GROW and pool.asked_replicas < pool.asked_before_replicas) or (
            pool.verdict is Verdict.SHRINK and pool.asked_replicas > pool.asked_before_replicas
        )
        if wrong_way:
            move = f"{pool.asked_before_replicas} -> {pool.asked_replicas}"
            problems.append(f"{pool.key}: verdict {pool.verdict} moves {move}")
        strangers = [n for n in pool.drain_first if home.get(n, pool.key) != pool.key]
        problems += [f"{pool.key}: drain_first names {n} of {home[n]}" for n in strangers]
    if problems:
        msg = f"decision {decision.sequence}: {'; '.join(problems)}"
        raise IllegalPlanError(msg)
