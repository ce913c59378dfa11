"""A rehearsal on the compiled fleet equals the one on the plain fleet, decision by decision."""

import functools
from dataclasses import fields, replace

import numpy as np
import pytest
from tests.policies import pool_policy
from tests.sim.stage import KEY, POLICY, PROFILE, WANTS, conditions, contender, pool_setup

from tidegate.app.sizing import pool_capacities
from tidegate.core.decide import decide
from tidegate.forecast.select import foresee
from tidegate.sim.arrivals import Arrival
from tidegate.sim.fast.fleet import FastFleet
from tidegate.sim.faults import fault
from tidegate.sim.fleet import FleetSim
from tidegate.sim.policies import Contender
from tidegate.sim.rehearse import Conditions, rehearse
from tidegate.sim.setup import FleetSetup, KvLink
from tidegate.sim.trace import trace_of
from tidegate.terms.fleet import PoolKey, Role
from tidegate.terms.slo import Indicator

pytestmark = pytest.mark.timeout(240)  # the first use compiles

_RNG = np.random.default_rng(7)
LOAD = trace_of(
    [
        Arrival(at_s=float(at), prompt_tokens=int(prompt), output_tokens=int(output))
        for at, prompt, output in zip(
            np.cumsum(_RNG.exponential(0.12, 900)), _RNG.geometric(1 / 900, 900), _RNG.geometric(1 / 150, 900),
            strict=True,
        )
    ]
)  # fmt: skip
LATENCIES = ((Indicator.TTFT, 0.9, 30.0), (Indicator.E2E, 0.5, 60.0))


def ours(**changes: object) -> Contender:
    profiles = {POLICY.pools[0].profile: PROFILE}
    plain = contender(
        decide,
        wants=replace(
            WANTS,
            replica_rates=True,
            engine_detail=True,
            latencies=((Indicator.TTFT, 0.9, 30.0), (Indicator.E2E, 0.5, 60.0)),
        ),
        forecaster=foresee,
        sizer=functools.partial(pool_capacities, profiles=profiles, elapsed_s=WANTS.period_s),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def assert_equal(world: Conditions, law: Contender) -> None:
    plain, compiled = (rehearse(LOAD, law, conditions=world, make_fleet=make) for make in (FleetSim, FastFleet))
    assert plain.decisions == compiled.decisions
    assert plain.asked_changes > 0
    assert plain.events == compiled.events
    assert plain.replica_seconds == compiled.replica_seconds
    for column in ("first_ps", "ended_ps", "member"):
        assert np.array_equal(getattr(plain.outcomes, column), getattr(compiled.outcomes, column)), column
    for one in fields(plain.replicas_over_time):
        assert np.array_equal(
            getattr(plain.replicas_over_time, one.name), getattr(compiled.replicas_over_time, one.name)
        )


def test_own_law_decides_alike_on_both_fleets() -> None:
    assert_equal(conditions(), ours())


def test_faults_hit_both_fleets_alike() -> None:
    names = ("counter-reset", "replica-unscraped", "spot-loss", "replica-crash", "pods-pending")
    faults = tuple(fault(name, LOAD, start_s=20.0 + 8.0 * i, duration_s=15.0) for i, name in enumerate(names))
    assert_equal(conditions(faults=faults), ours(initial_replicas=3))


def test_prefill_and_decode_pools_are_decided_alike_on_both_fleets() -> None:
    decode = PoolKey(service="chat", pool="decode")
    policy = replace(POLICY, pools=(pool_policy(KEY, role=Role.PREFILL), pool_policy(decode, role=Role.DECODE)))
    setup = FleetSetup(
        pools=(pool_setup(role=Role.PREFILL), pool_setup(decode, role=Role.DECODE)),
        link=KvLink(name="rdma", base_ps=10**9, ps_per_token=10**6),
    )
    assert_equal(conditions(policy=policy, setup=setup), ours())
