"""The naive rule: replicas for the load as it is now, at a target utilisation; no memory, no forecast, no hysteresis.

Every forecaster has to beat it. An unknown load holds.
"""

from collections.abc import Mapping

from tidegate.baselines.figures import HEADROOM
from tidegate.baselines.law import LawMemory, PoolFacts, Proposal, ceil_div, held, number_of, pool_law, share_of
from tidegate.sim.policies import Contender, Knob, KnobScale, Rival, Wants, World
from tidegate.terms.decision import Reason, ReasonNote
from tidegate.terms.fleet import PoolKey

PERIOD_S = 15.0


def arrivals_of(facts: PoolFacts) -> float | None:
    """Return the service's requests/s as last read, or None."""
    return number_of(facts.served.arrivals_per_s) if facts.served else None


def for_load(load_per_s: float, per_replica: float) -> Proposal:
    """Return the proposal for a load of the whole service, requests/s, at `per_replica` of it for each replica."""
    wanted = ceil_div(load_per_s, per_replica)
    note = ReasonNote(
        reason=Reason.DEMAND_NOW,
        before_replicas=wanted,
        after_replicas=wanted,
        facts=(("requests_per_s", load_per_s), ("per_replica_per_s", per_replica)),
    )
    return Proposal(asked=wanted, wanted=wanted, notes=(note,))


def utilisation_knob(_: World) -> Knob:
    """Return the knob of a law that is given a share of a replica's believed capacity to fill."""
    return Knob(
        name="utilisation",
        unit="share of a replica's capacity",
        safe=0.125,
        thrifty=4.0,
        default=HEADROOM,
        scale=KnobScale.LOG,
    )


def per_replica_of(world: World, utilisation: float) -> Mapping[PoolKey, float]:
    """Return the requests/s of the whole service for which one replica of each pool is wanted."""
    return {key: utilisation * capacity / share_of(world, key) for key, capacity in world.capacity_per_s.items()}


def _make(world: World, setting: float | None) -> Contender:
    chosen = HEADROOM if setting is None else setting
    per_replica = per_replica_of(world, chosen)

    def rule(facts: PoolFacts, _: None) -> tuple[Proposal, None]:
        load = arrivals_of(facts)
        return (held(facts) if load is None else for_load(load, per_replica[facts.pool.key])), None

    return Contender(
        name="last-value", law=pool_law(rule), start=LawMemory(), wants=Wants(period_s=PERIOD_S), setting=chosen
    )


RIVALS = (
    Rival(
        name="last-value",
        summary="replicas for the requests/s of the last minute, at a target utilisation",
        source="the naive forecast; N = ceil(load / (utilisation * capacity))",
        knob=utilisation_knob,
        make=_make,
    ),
)
