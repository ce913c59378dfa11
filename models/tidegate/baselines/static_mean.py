"""The rival that never scales, sized for the mean: what saves most and serves peaks worst."""

from tidegate.baselines.figures import replica_knob, replicas_for
from tidegate.baselines.static_peak import sized
from tidegate.sim.policies import Contender, Knob, Rival, World


def _knob(world: World) -> Knob:
    return replica_knob(world, sum(replicas_for(world, world.mean_per_s).values()))


def _make(world: World, setting: float | None) -> Contender:
    return sized("static-mean", world, replicas_for(world, world.mean_per_s), setting)


RIVALS = (
    Rival(
        name="static-mean",
        summary="one size for the whole run, by default the mean load over a replica's capacity",
        source="common practice; N = ceil(mean requests/s / requests/s of a replica)",
        knob=_knob,
        make=_make,
    ),
)
