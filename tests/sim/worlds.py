"""Small loads and fleets for tests, in picoseconds: an engine's step takes some hundreds."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tidegate.perf.profile import EngineProfile
from tidegate.sim.coldstart import ColdStart
from tidegate.sim.fleet import FleetSim
from tidegate.sim.setup import FleetSetup, KvLink, PoolSetup
from tidegate.sim.trace import Trace
from tidegate.terms.fleet import PoolKey, ReplicaState, Role

Engine = Callable[..., EngineProfile]
FAR_PS = 1 << 50
PS = 1e-12  # seconds
LINK = KvLink(name="rdma", base_ps=100, ps_per_token=3)


def load(*requests: tuple[int, int, int], **columns: Sequence[int]) -> Trace:
    """Return requests of (arrival in picoseconds, prompt, output)."""
    arrival, prompt, output = np.array(requests, dtype=np.int64).reshape(-1, 3).T
    more: dict[str, Any] = {name: np.array(column, dtype=np.int64) for name, column in columns.items()}
    return Trace(name="load", arrival_ps=arrival, prompt_tokens=prompt, output_tokens=output, **more)


def hashed(trace: Trace, hash_block_tokens: int, *hashes: Sequence[int]) -> Trace:
    """Return the trace with hash blocks, one sequence per request."""
    return replace(
        trace,
        hash_block_tokens=hash_block_tokens,
        hash_start=np.cumsum([0, *[len(h) for h in hashes]]),
        hashes=np.array([block for h in hashes for block in h], dtype=np.int64),
    )


def pool(profile: EngineProfile, initial: int = 1, **changes: Any) -> PoolSetup:  # noqa: ANN401  (any field)
    """Return an aggregated pool whose replicas need 5000 picoseconds to start, with `changes`."""
    plain = PoolSetup(
        key=PoolKey(service="chat", pool="main"),
        role=Role.AGGREGATED,
        profile=profile,
        cold_start=ColdStart(samples_s=(5000 * PS,)),
        initial=initial,
    )
    return replace(plain, **changes)


def setup(*pools: PoolSetup, **changes: Any) -> FleetSetup:  # noqa: ANN401  (any field)
    """Return a fleet that looks for ready replicas every 1000 picoseconds, with `changes`."""
    return FleetSetup(pools=pools, **({"sweep_s": 1000 * PS} | changes))


def kinds(fleet: FleetSim) -> list[tuple[int, str, int]]:
    """Return what happened to replicas."""
    return [(e.at_ps, e.kind, e.member) for e in fleet.events()]


def states(fleet: FleetSim) -> dict[int, ReplicaState]:
    """Return the state of each replica that exists."""
    return {m.index: m.state for m in fleet.members()}
