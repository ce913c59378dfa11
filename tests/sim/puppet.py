"""A fleet whose counters and members are set by hand, for tests of what is made of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tests.sim.stage import LOAD, POLICY, contender, pool_setup

from tidegate.sim.metric_faults import MetricFaults
from tidegate.sim.policies import Wants
from tidegate.sim.rehearse import Conditions, setup_for
from tidegate.sim.sample import FleetSample, MemberEvent, MemberView, Outcomes
from tidegate.sim.setup import FleetSetup, PoolSetup
from tidegate.sim.sight import Sight
from tidegate.sim.trace import Trace
from tidegate.terms.fleet import ReplicaState
from tidegate.terms.policy import ServicePolicy

S = 10**12  # picoseconds


def view(index: int, *, pool: int = 0, state: ReplicaState = ReplicaState.READY, live: int = 0) -> MemberView:
    """Return a replica that was ordered and became ready at 0."""
    ready_ps = None if state is ReplicaState.STARTING else 0
    draining_ps = 0 if state is ReplicaState.DRAINING else None
    return MemberView(
        index=index, pool=pool, state=state, live=live, ordered_ps=0, ready_ps=ready_ps, draining_since_ps=draining_ps
    )


@dataclass(kw_only=True)
class Puppet:
    """Implements `Fleet`. `rows` holds a dict of columns per replica that can be scraped; absent ones are 0."""

    setup: FleetSetup
    trace: Trace = LOAD
    now_ps: int = 0
    views: list[MemberView] = field(default_factory=lambda: [view(0)])
    rows: dict[int, dict[str, int]] = field(default_factory=lambda: {0: {}})
    counters: dict[str, Any] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        return False

    def run_until(self, until_ps: int) -> None:
        self.now_ps = until_ps

    def scale_to(self, pool: int, asked: int, drain_first: Sequence[int] = ()) -> None:
        raise NotImplementedError

    def drain(self, member: int) -> None:
        raise NotImplementedError

    def crash(self, member: int) -> None:
        raise NotImplementedError

    def members(self) -> tuple[MemberView, ...]:
        return tuple(self.views)

    def events(self) -> tuple[MemberEvent, ...]:
        return ()

    def outcomes(self) -> Outcomes:
        raise NotImplementedError

    def replica_ps(self, pool: int, until_ps: int) -> int:
        raise NotImplementedError

    def sample(self) -> FleetSample:
        def column(name: str) -> Any:  # noqa: ANN401
            return np.array([self.rows[m].get(name, 0) for m in sorted(self.rows)], dtype=np.int64)

        def counts(name: str, bounds: tuple[int, ...]) -> Any:  # noqa: ANN401
            return np.array(self.counters.get(name, [0] * (len(bounds) + 1)), dtype=np.int64)

        number = self.counters.get
        return FleetSample(
            at_ps=self.now_ps,
            arrived=number("arrived", 0), refused=number("refused", 0), lost=number("lost", 0),
            answered=number("answered", 0), prompt_tokens=number("prompt_tokens", 0),
            output_tokens=number("output_tokens", 0), pending_prompt_tokens=number("pending_prompt_tokens", 0),
            in_flight=number("in_flight", 0),
            ttft_counts=counts("ttft_counts", self.setup.ttft_bounds_ps),
            tpot_counts=counts("tpot_counts", self.setup.tpot_bounds_ps),
            e2e_counts=counts("e2e_counts", self.setup.e2e_bounds_ps),
            member=np.array(sorted(self.rows), dtype=np.int64),
            live=column("live"), running=column("running"), waiting=column("waiting"),
            kv_used_blocks=column("kv_used_blocks"), waiting_prompt_tokens=column("waiting_prompt_tokens"),
            context_tokens=column("context_tokens"), finished=column("finished"),
            prompt_done_tokens=column("prompt_done_tokens"), output_done_tokens=column("output_done_tokens"),
            preemptions=column("preemptions"), hit_tokens=column("hit_tokens"),
            looked_up_tokens=column("looked_up_tokens"),
        )  # fmt: skip


def puppet(*pools: PoolSetup, policy: ServicePolicy = POLICY) -> Puppet:
    """Return a puppet of one ready replica, its histograms with the policy's thresholds among their bounds."""
    setup = FleetSetup(pools=pools or (pool_setup(),))
    law = contender(None)
    return Puppet(setup=setup_for(law, Conditions(policy=policy, setup=setup)))


def sight(fleet: Puppet, wants: Wants, *, policy: ServicePolicy = POLICY, **more: Any) -> Sight:  # noqa: ANN401
    """Return what a law that wants `wants` sees of a puppet."""
    return Sight(fleet, policy=policy, wants=wants, **{"faults": MetricFaults(faults=()), **more})
