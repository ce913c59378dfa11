"""A case's arrivals, replayed by the fleet simulator with a given profile."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tidegate.app.profiles.cases import Case
from tidegate.app.profiles.log import FloatArray
from tidegate.app.profiles.reuse import Reuse
from tidegate.perf.profile import PS_PER_S, EngineProfile
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.fleet_protocol import Fleet
from tidegate.sim.setup import FleetSetup, PoolSetup, Routing
from tidegate.sim.trace import Trace
from tidegate.terms.fleet import PoolKey, Role

MakeFleet = Callable[[Trace, FleetSetup], Fleet]
_CHUNK_PS = 600 * PS_PER_S  # the fleet is run on by this
_MOST_CHUNKS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replayed:
    """Latencies per request, in seconds, NaN where the engine refused it; shape (n,)."""

    ttft_s: FloatArray
    decode_s: FloatArray


def plain_setup(profile: EngineProfile, replicas: int, routing: Routing = Routing.ROUND_ROBIN) -> FleetSetup:
    """Return a fleet of equal replicas, all ready from the start."""
    pool = PoolSetup(
        key=PoolKey(service="log", pool="all"),
        role=Role.AGGREGATED,
        profile=profile,
        cold_start=ColdStart(samples_s=(0.0,)),
        initial=replicas,
    )
    return FleetSetup(pools=(pool,), routing=routing)


def trace_of_case(case: Case, profile: EngineProfile, reuse: Reuse) -> Trace:
    """Return the case's requests as a trace, with the prompt tokens that the prefix cache is taken to hold."""
    return Trace(
        name=case.name,
        arrival_ps=np.round(case.arrival_s * PS_PER_S).astype(np.int64),
        prompt_tokens=case.prompt_tokens,
        output_tokens=case.output_tokens,
        reusable_tokens=reuse.cached_tokens(case.prompt_tokens, block_tokens=profile.block_tokens),
    )


def replayed(case: Case, profile: EngineProfile, reuse: Reuse, *, make_fleet: MakeFleet) -> Replayed:
    """Return what the model makes of the case; requests go to the replicas in turn."""
    trace = trace_of_case(case, profile, reuse)
    return ended(make_fleet(trace, plain_setup(profile, case.replicas)))


def ended(fleet: Fleet) -> Replayed:
    """Run a fleet until it is idle and return the latencies.

    Raises:
        ValueError: It does not come to rest within weeks.
    """
    for _ in range(_MOST_CHUNKS):
        if fleet.idle:
            break
        fleet.run_until(fleet.now_ps + _CHUNK_PS)
    else:
        msg = f"{fleet.trace.name}: the simulated fleet is never done"
        raise ValueError(msg)
    out = fleet.outcomes()
    answered = out.ended_ps >= 0
    ttft = np.where(answered, (out.first_ps - out.trace.arrival_ps) / PS_PER_S, np.nan)
    decode = np.where(answered, (out.ended_ps - out.first_ps) / PS_PER_S, np.nan)
    return Replayed(ttft_s=ttft, decode_s=decode)
