"""What an operator would work out beforehand for a world: replicas for a load, targets per pool, ranges of knobs."""

from collections.abc import Mapping

from tidegate.baselines.law import ceil_div, inside, share_of
from tidegate.sim.policies import Knob, KnobScale, World
from tidegate.terms.fleet import PoolKey, Role

# A target an eighth of what a replica carries asks for eight times the replicas; four times it leaves a quarter.
_SAFE, _THRIFTY = 1.0 / 8.0, 4.0
HEADROOM = 0.8  # of what a replica carries; the usual first guess where a product ships no default


def replicas_for(world: World, load_per_s: float) -> dict[PoolKey, int]:
    """Return the replicas of each pool that carry `load_per_s` requests/s of the whole service, within bounds, >= 1."""
    return {
        p.key: max(1, inside(p, ceil_div(load_per_s * share_of(world, p.key), world.capacity_per_s[p.key])))
        for p in world.policy.pools
    }


def apportioned(world: World, total: int) -> dict[PoolKey, int]:
    """Return `total` replicas dealt to the pools in proportion to their need at the peak, each at least its minimum.

    One at a time to the pool that is shortest of its share, so that more in total never means fewer in any pool.
    """
    weights = replicas_for(world, world.peak_per_s)
    dealt = {p.key: max(1, p.min_replicas) for p in world.policy.pools}
    for _ in range(total - sum(dealt.values())):
        shortest = min(dealt, key=lambda key: dealt[key] / weights[key])
        dealt[shortest] += 1
    return dealt


def replica_knob(world: World, default: int) -> Knob:
    """Return the knob of a law that is given its replicas in total over all pools."""
    return Knob(
        name="replicas",
        unit="replicas over all pools",
        safe=float(sum(p.max_replicas for p in world.policy.pools)),
        thrifty=float(sum(max(1, p.min_replicas) for p in world.policy.pools)),
        default=float(default),
        scale=KnobScale.INTEGER,
    )


def targets(world: World, figures: Mapping[PoolKey, float], setting: float) -> dict[PoolKey, float]:
    """Return one target per pool: `setting` for the first, in proportion to `figures` for the others."""
    first = figures[world.policy.pools[0].key]
    return {p.key: setting * figures[p.key] / first for p in world.policy.pools}


def load_knob(world: World, figures: Mapping[PoolKey, float], *, name: str, unit: str, default: float | None) -> Knob:
    """Return the knob of a law that is given a load per replica, around what the first pool's replica carries.

    Args:
        world: The world.
        figures: What a replica of each pool carries inside its objectives, in the knob's unit.
        name: The product's word for it.
        unit: Of the setting.
        default: As shipped; None where the product ships none: `HEADROOM` of what a replica carries.
    """
    carries = figures[world.policy.pools[0].key]
    usual = carries * HEADROOM if default is None else default
    return Knob(
        name=name,
        unit=unit,
        safe=min(carries * _SAFE, usual),
        thrifty=max(carries * _THRIFTY, usual),
        default=usual,
        scale=KnobScale.LOG,
    )


def kv_at_capacity(world: World) -> dict[PoolKey, float]:
    """Return the share of KV that a replica of each pool uses at the load it carries, (0, 1].

    A request holds its prompt and, on average over its life, half of its answer; in a prefill pool its prompt only.
    """
    found = {}
    for pool in world.policy.pools:
        answer = 0.0 if pool.role is Role.PREFILL else world.output_tokens / 2.0
        tokens = world.concurrency[pool.key] * (world.prompt_tokens + answer)
        found[pool.key] = min(1.0, tokens / world.profiles[pool.profile].kv_capacity_tokens)
    return found
