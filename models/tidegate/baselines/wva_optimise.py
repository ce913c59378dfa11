"""WVA's cost-aware optimiser without a limit on accelerators: cheapest capacity in, dearest replicas out.

With prefill and decode the roles grow together, each by the part of its need that the tightest role can meet. The loop
ends as soon as any role has no variant with room, even a role that needs nothing: a prefill pool at its maximum freezes
decode. That is the behaviour as found.

Source: llm-d Workload Variant Autoscaler 0.9, CostAware optimiser.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.terms.fleet import PoolKey, Role

_ROUNDS = 64  # each takes at least one replica; a variant with more room takes many at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One pool as the optimiser sees it."""

    key: PoolKey
    role: Role
    per_replica: int  # tokens, > 0
    cost: float  # per replica
    current: int  # ready and pending
    least: int
    most: int


def optimised(variants: Sequence[Variant], required: dict[str, float], spare: dict[str, float]) -> dict[PoolKey, int]:
    """Return the count of each variant; tokens required and spare are by role."""
    targets = {v.key: v.current for v in variants}
    if any(tokens > 0.0 for tokens in required.values()):
        _grow(variants, dict(required), targets)
    for role, tokens in spare.items():
        if required.get(role, 0.0) <= 0.0 and tokens > 0.0:
            _shrink([v for v in variants if v.role == role], tokens, targets)
    return targets


def _grow(variants: Sequence[Variant], remaining: dict[str, float], targets: dict[PoolKey, int]) -> None:
    for _ in range(_ROUNDS):
        if all(tokens <= 0.0 for tokens in remaining.values()):
            return
        picked: dict[str, Variant] = {}
        for role in remaining:
            room = [v for v in variants if v.role == role and targets[v.key] < v.most]
            if not room:
                return
            picked[role] = min(room, key=lambda v: (v.cost / v.per_replica, v.key))
        wanted = {
            role: min(math.ceil(remaining[role] / v.per_replica), v.most - targets[v.key])
            for role, v in picked.items()
            if remaining[role] > 0.0
        }
        part = min(n * picked[role].per_replica / remaining[role] for role, n in wanted.items())
        for role, n in wanted.items():
            variant = picked[role]
            together = math.floor(part * remaining[role] / variant.per_replica) if len(remaining) > 1 else n
            taken = min(n, max(1, together))
            targets[variant.key] += taken
            remaining[role] -= taken * variant.per_replica


def _shrink(variants: Sequence[Variant], spare: float, targets: dict[PoolKey, int]) -> None:
    """Remove whole replicas from the dearest variant on; the cheapest keeps one when it is the last to have any."""
    dearest_first = sorted(variants, key=lambda v: (-v.cost, v.key))
    for variant in dearest_first:
        least = variant.least
        if variant is dearest_first[-1] and not any(targets[v.key] for v in dearest_first[:-1]):
            least = max(1, least)
        removed = max(0, min(math.floor(spare / variant.per_replica), targets[variant.key] - least))
        targets[variant.key] -= removed
        spare -= removed * variant.per_replica
