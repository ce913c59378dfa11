"""Where decisions go: to the replicas and gateways of this machine, or, in a dry run, nowhere."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.actuate.dry_run import DryRun
from tidegate.actuate.local import LocalFleet
from tidegate.actuate.local_glance import FleetGlance
from tidegate.actuate.local_rules import LocalPoolSpec
from tidegate.actuate.xds import AdsServer, AdsStatus
from tidegate.app import clock
from tidegate.app.endpoints import EnvoyGateway, NoGateway
from tidegate.app.loop import Actuator, GatewayPort, Planner
from tidegate.gateway.envoy import ListenerSettings
from tidegate.terms.decision import Decision
from tidegate.terms.errors import RefusedError
from tidegate.terms.fleet import Membership, PoolKey
from tidegate.terms.plan import Plan

log = logging.getLogger("tidegate.controller")

# What is left after the grace is told once more, which ends its running answers, and killed after so long.
_END_WAIT_S = 5.0
_LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How replicas end with the controller.

    Attributes:
        grace_s: How long running answers may go on, seconds, >= 0.
        hurry: Set to end them at once.
        owner_pid: The process that replicas end with, or None: with the controller.
        unnamed: Whether replicas whose pool no policy names are drained and ended, instead of refusing to start.
    """

    grace_s: float
    hurry: asyncio.Event
    owner_pid: int | None
    unnamed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlets:
    """The two places a decision has an effect, and what is known of them."""

    actuator: Actuator
    gateway: GatewayPort
    cold_starts: Callable[[PoolKey], tuple[float, ...]]
    gateways: Callable[[], AdsStatus] | None = None  # None: no gateway is served
    unnamed: tuple[PoolKey, ...] = ()  # pools without a policy whose replicas are to end


@contextlib.asynccontextmanager
async def local(
    state_dir: Path,
    pools: Mapping[PoolKey, LocalPoolSpec],
    *,
    own_pid: int,
    ending: Ending,
    ads_at: tuple[str, int],
    listening: ListenerSettings,
) -> AsyncIterator[Outlets]:
    """Hold the local fleet and serve xDS.

    Raises:
        RefusedError: Another controller holds the state folder, or replicas run whose pool nobody names.
        BadInputError: The state or the address cannot be used.
    """
    owner_pid = ending.owner_pid
    with LocalFleet(state_dir, pools, owner_pid=own_pid if owner_pid is None else owner_pid) as fleet:
        unnamed = fleet.unnamed()
        if unnamed and not ending.unnamed:
            raise RefusedError(_unnamed_told(unnamed))
        for key, names in unnamed.items():
            log.info("ending replicas=%s: no policy names their pool %s", ",".join(names), key)
        ads = AdsServer(*ads_at)
        await ads.start()
        try:
            yield Outlets(
                actuator=fleet,
                gateway=EnvoyGateway(ads, listening),
                cold_starts=fleet.cold_starts,
                gateways=ads.status,
                unnamed=tuple(unnamed),
            )
            if owner_pid is None:
                # The gateways stay connected meanwhile, and keep what they have.
                await _finished(fleet, ending)
        finally:
            await ads.stop()
            if owner_pid is None:
                fleet.stop_all(_END_WAIT_S)


def _unnamed_told(unnamed: Mapping[PoolKey, tuple[str, ...]]) -> str:
    pools = "; ".join(f"{key} ({', '.join(names)})" for key, names in unnamed.items())
    return (
        f"replicas run whose pool no policy names: {pools}; put the pool back into a policy, "
        "or give --end-unnamed to drain and end them"
    )


async def _finished(fleet: LocalFleet, ending: Ending) -> None:
    """Tell every replica to end and wait for their running answers."""
    living = await asyncio.to_thread(fleet.drain_all, clock.now_s())
    if not living:
        return
    log.info(
        "stopping: waiting up to %g s for running answers of replicas=%s; a second signal ends them at once",
        ending.grace_s,
        ",".join(living),
    )
    now_s = asyncio.get_running_loop().time
    ends_s = now_s() + ending.grace_s
    while living and not ending.hurry.is_set() and now_s() < ends_s:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ending.hurry.wait(), _LOOK_EVERY_S)
        living = await asyncio.to_thread(fleet.living)
    if living:
        why = "told to hurry" if ending.hurry.is_set() else f"not done after {ending.grace_s:g} s"
        log.warning("stopping: %s, cutting the answers of replicas=%s", why, ",".join(living))


@contextlib.asynccontextmanager
async def dry(state_dir: Path) -> AsyncIterator[Outlets]:
    """Look at the fleet of a state folder, also one that another controller holds, and change nothing.

    Raises:
        BadInputError: The state cannot be read.
    """
    seen = FleetGlance(state_dir)
    yield Outlets(
        actuator=DryRun(seen, tell=lambda line: log.info("dry run: %s", line)),
        gateway=NoGateway(),
        cold_starts=seen.cold_starts,
    )


def as_if_acting(planner: Planner) -> Planner:
    """Return a planner that gives the steps of advice too, for an actuator that only tells them."""

    def plan(decision: Decision, membership: Membership, *, gateway_acked: bool, now_s: float) -> Plan:
        acting = replace(decision, pools=tuple(replace(p, writes=True) for p in decision.pools))
        return planner(acting, membership, gateway_acked=gateway_acked, now_s=now_s)

    return plan
