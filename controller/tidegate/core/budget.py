"""How far each pool may go so that the service's caps on GPUs and cost hold, whatever the later guards do."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.terms.fleet import PoolKey
from tidegate.terms.policy import BudgetPolicy, PoolPolicy

# Sums of prices such as 0.1 + 0.2 overshoot by rounding; a cap of exactly that must still admit them.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One pool's part in the budget: what it has, what it must keep and what it asks for."""

    pool: PoolPolicy
    least_replicas: int  # certain: never cut below
    held_replicas: int  # what it may go on holding if a later guard says so
    asked_replicas: int  # what it would like


def caps_of(budget: BudgetPolicy, claims: Sequence[Claim]) -> dict[PoolKey, int]:
    """Return the highest replica count of each pool within the budget.

    What pools hold now is reserved first, so that a hold can never break the cap; when even that is too much, the
    dearest pools are cut first, down to their least. What is left goes to growth, the cheapest pool first. The least
    of all pools is kept even when it breaks the cap: the minimum is a promise too, and the note says so.
    """
    ordered = sorted(claims, key=lambda c: (c.pool.cost_usd_per_h, c.pool.key))
    caps = {c.pool.key: max(c.least_replicas, c.held_replicas) for c in ordered}
    for claim in reversed(ordered):
        over = _replicas_over(budget, ordered, caps, claim.pool)
        caps[claim.pool.key] = max(claim.least_replicas, caps[claim.pool.key] - over)
    for claim in ordered:
        more = max(0, claim.asked_replicas - caps[claim.pool.key])
        caps[claim.pool.key] += min(more, _replicas_left(budget, ordered, caps, claim.pool))
    return caps


def _spent(claims: Sequence[Claim], caps: Mapping[PoolKey, int]) -> tuple[float, float]:
    gpus = sum(caps[c.pool.key] * c.pool.gpus_per_replica for c in claims)
    usd_per_h = sum(caps[c.pool.key] * c.pool.cost_usd_per_h for c in claims)
    return float(gpus), usd_per_h


def _replicas_over(budget: BudgetPolicy, claims: Sequence[Claim], caps: Mapping[PoolKey, int], pool: PoolPolicy) -> int:
    """Return how many replicas of `pool` must go for both caps to hold."""
    gpus, usd_per_h = _spent(claims, caps)
    over = 0
    if budget.max_gpus is not None and gpus > budget.max_gpus:
        over = math.ceil((gpus - budget.max_gpus) / max(1, pool.gpus_per_replica))
    too_dear = budget.max_cost_usd_per_h is not None and usd_per_h > budget.max_cost_usd_per_h + _ROUNDING
    if too_dear and budget.max_cost_usd_per_h is not None and pool.cost_usd_per_h > 0.0:
        over = max(over, math.ceil((usd_per_h - budget.max_cost_usd_per_h) / pool.cost_usd_per_h - _ROUNDING))
    return over


def _replicas_left(budget: BudgetPolicy, claims: Sequence[Claim], caps: Mapping[PoolKey, int], pool: PoolPolicy) -> int:
    """Return how many more replicas of `pool` both caps admit."""
    gpus, usd_per_h = _spent(claims, caps)
    left = 1_000_000
    if budget.max_gpus is not None:
        left = min(left, math.floor((budget.max_gpus - gpus) / max(1, pool.gpus_per_replica)))
    if budget.max_cost_usd_per_h is not None and pool.cost_usd_per_h > 0.0:
        spare = budget.max_cost_usd_per_h - usd_per_h
        left = min(left, math.floor(spare / pool.cost_usd_per_h + _ROUNDING))
    return max(0, left)
