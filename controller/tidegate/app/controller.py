"""One controller process, wired: Prometheus in, Envoy and replicas out, journal and status page beside."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tidegate.actuate.local_rules import LocalPoolSpec
from tidegate.actuate.plan import plan
from tidegate.actuate.xds import AdsStatus
from tidegate.app import clock, outlets
from tidegate.app.alert_desk import AlertDesk, token_from
from tidegate.app.api import build_app
from tidegate.app.api_server import ApiServer
from tidegate.app.config import load_nodes, load_policy_set
from tidegate.app.config_profile import load_profile
from tidegate.app.journal import Journal
from tidegate.app.journal_read import last
from tidegate.app.loop import Loop, LoopSettings, LoopStatus, Planner
from tidegate.app.narrator import Narrator
from tidegate.app.self_metrics import SelfMetrics
from tidegate.app.state import LiveState, LiveView
from tidegate.app.tick import Ports, Ticked
from tidegate.gateway.envoy import ListenerSettings
from tidegate.observe.observer import Observer
from tidegate.observe.prometheus import PrometheusReader
from tidegate.observe.prometheus_config import PrometheusConfig
from tidegate.observe.settings import ObserveSettings
from tidegate.terms.fleet import PoolKey
from tidegate.terms.observation import NodeInventory
from tidegate.terms.policy import Mode, ServicePolicy, TargetKind

log = logging.getLogger("tidegate.controller")

JOURNAL_NAME = "journal.jsonl"
DRY_RUN_JOURNAL_NAME = "journal.dry-run.jsonl"
_JOURNAL_SEGMENT_BYTES = 64 << 20
_JOURNAL_SEGMENTS = 8
# Ticks that may be missed before the controller calls itself not ready.
_TICKS_MISSED = 4.0


@dataclass(frozen=True, slots=True)
class Address:
    """A host and port to listen on."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """The installation; what is promised and allowed stands in the policies."""

    policies: tuple[Path, ...]
    prometheus: PrometheusConfig
    scrape_interval_s: float
    rate_window_s: float
    decide_every_s: float
    state_dir: Path
    listen: Address
    ads_listen: Address
    gateway_listen: Address
    access_log: str
    nodes: Path | None = None
    alert_token_file: Path | None = None
    owner_pid: int | None = None  # None: replicas end with this process
    stop_grace_s: float = 30.0  # for running answers of replicas that end with this process
    end_unnamed: bool = False
    dry_run: bool = False

    @property
    def journal(self) -> Path:
        """The journal's newest file; a dry run has one of its own, so that it can be made beside a controller."""
        return self.state_dir / (DRY_RUN_JOURNAL_NAME if self.dry_run else JOURNAL_NAME)


async def control(
    options: ControllerOptions,
    stop: asyncio.Event,
    *,
    hurry: asyncio.Event | None = None,
    show: Callable[[Ticked, LoopStatus], None] | None = None,
) -> None:
    """Run until `stop` is set.

    Args:
        options: Where everything is.
        stop: Ends the run; replicas then finish their answers and end too, unless another process owns them.
        hurry: Ends that waiting.
        show: Called with every tick, e.g. to draw it.

    Raises:
        BadInputError: A file, address or setting that cannot be used; nothing was started then.
        RefusedError: Another controller holds the state folder, or replicas run whose pool no policy names.
    """
    policies = _policies(options)
    ports = _ports(options, policies)
    token = token_from(options.alert_token_file) if options.alert_token_file is not None else None
    async with contextlib.AsyncExitStack() as undo:
        journal = undo.enter_context(Journal(options.journal, max_bytes=_JOURNAL_SEGMENT_BYTES, keep=_JOURNAL_SEGMENTS))
        resumed = last(options.journal)
        outlet = await undo.enter_async_context(_outlets(options, policies, hurry or asyncio.Event()))
        started_at_s = clock.now_s()
        state = LiveState(
            started_at_s=started_at_s,
            stale_after_s=_TICKS_MISSED * options.decide_every_s + _longest_tick_s(options),
            rate_window_s=options.rate_window_s,
        )
        held = resumed.inputs.observation.interventions if resumed is not None else ()
        desk = AlertDesk(policies, token=token, resumed=held) if token is not None else None
        planner = _planner(policies, ports.nodes, outlet.unnamed)
        loop = Loop(
            policies=policies,
            ports=replace(ports, cold_starts=outlet.cold_starts),
            actuator=outlet.actuator,
            gateway=outlet.gateway,
            planner=outlets.as_if_acting(planner) if options.dry_run else planner,
            journal=journal,
            settings=LoopSettings(decide_every_s=options.decide_every_s),
            clock=clock.now_s,
            on_tick=partial(_publish, state, Narrator(outlet.gateways, started_at_s=started_at_s), show),
            interventions=desk.in_force if desk is not None else _none_in_force,
            resumed=resumed,
        )
        api = _api(options.listen, state, loop, desk=desk, gateways=outlet.gateways or _no_gateways)
        undo.push_async_callback(api.stop)
        await api.start()
        _tell_start(options, policies, api.url)
        if resumed is not None:
            log.info("resumed decision=%d", resumed.decision.sequence)
        await loop.run(stop)


def _policies(options: ControllerOptions) -> tuple[ServicePolicy, ...]:
    """Return the policies; in a dry run they advise only, so that all that is shown says so."""
    found = load_policy_set(options.policies)
    for warning in found.warnings:
        log.warning("policy %s", warning)
    if options.dry_run:
        return tuple(replace(policy, mode=Mode.ADVISE) for policy in found.policies)
    return found.policies


def _outlets(
    options: ControllerOptions, policies: tuple[ServicePolicy, ...], hurry: asyncio.Event
) -> contextlib.AbstractAsyncContextManager[outlets.Outlets]:
    if options.dry_run:
        return outlets.dry(options.state_dir)
    return outlets.local(
        options.state_dir,
        _pool_specs(policies),
        own_pid=os.getpid(),
        ending=outlets.Ending(
            grace_s=options.stop_grace_s, hurry=hurry, owner_pid=options.owner_pid, unnamed=options.end_unnamed
        ),
        ads_at=(options.ads_listen.host, options.ads_listen.port),
        listening=_listener(options),
    )


def _tell_start(options: ControllerOptions, policies: tuple[ServicePolicy, ...], url: str) -> None:
    if options.dry_run:
        log.info("started url=%s dry run: no replica is touched and no gateway served", url)
        return
    log.info("started url=%s ads=%s:%d", url, options.ads_listen.host, options.ads_listen.port)
    twins = [str(pool.key) for policy in policies for pool in policy.pools if pool.target.kind is TargetKind.LOCAL]
    if twins:
        log.warning("scaleTarget Local runs engine twins: their answers are synthetic text pools=%s", ",".join(twins))


def _ports(options: ControllerOptions, policies: tuple[ServicePolicy, ...]) -> Ports:
    """Return what a tick reads; cold starts are added once there is a fleet that measures them."""
    return Ports(
        sight=Observer(PrometheusReader(options.prometheus), settings=_observe_settings(options, policies)),
        profiles={pool.profile: load_profile(pool.profile) for policy in policies for pool in policy.pools},
        cold_starts=_none_measured,
        nodes=load_nodes(options.nodes) if options.nodes is not None else None,
        scrape_interval_s=options.scrape_interval_s,
        decide_every_s=options.decide_every_s,
    )


def _none_measured(key: PoolKey) -> tuple[float, ...]:  # noqa: ARG001  (the port's signature)
    return ()


def _listener(options: ControllerOptions) -> ListenerSettings:
    return ListenerSettings(
        host=options.gateway_listen.host, port=options.gateway_listen.port, access_log_path=options.access_log
    )


def _no_gateways() -> AdsStatus:
    return AdsStatus(version=None, gateways=())


def _api(
    listen: Address, state: LiveState, loop: Loop, *, desk: AlertDesk | None, gateways: Callable[[], AdsStatus]
) -> ApiServer:
    metrics = SelfMetrics(state, journal_writable=lambda: not loop.status.journal_error, desk=desk)
    app = build_app(state, clock=clock.now_s, metrics=metrics, desk=desk, faults=loop.ready_reasons, gateways=gateways)
    return ApiServer(app, host=listen.host, port=listen.port)


def _publish(
    state: LiveState,
    narrator: Narrator,
    show: Callable[[Ticked, LoopStatus], None] | None,
    ticked: Ticked,
    status: LoopStatus,
) -> None:
    state.publish(
        ticked.record,
        LiveView(
            membership=status.membership,
            histories=ticked.histories,
            tick_duration_s=status.last_tick_duration_s,
            gateway_acked=status.gateway_acked,
            journal_error=status.journal_error,
        ),
    )
    narrator.tick(ticked.record)
    if show is not None:
        show(ticked, status)


def _none_in_force(now_s: float) -> tuple[()]:  # noqa: ARG001  (the loop's signature)
    return ()


def _planner(
    policies: tuple[ServicePolicy, ...], nodes: tuple[NodeInventory, ...] | None, unnamed: tuple[PoolKey, ...]
) -> Planner:
    pools = [pool for policy in policies for pool in policy.pools]
    return partial(
        plan,
        nodes=nodes,
        gpus_per_replica={p.key: p.gpus_per_replica for p in pools},
        accelerators={p.key: p.accelerator for p in pools},
        unnamed=unnamed,
    )


def _pool_specs(policies: tuple[ServicePolicy, ...]) -> Mapping[PoolKey, LocalPoolSpec]:
    return {
        pool.key: LocalPoolSpec(
            key=pool.key, profile=pool.profile, served_model=policy.model, cold_start_s=pool.cold_start_prior_s
        )
        for policy in policies
        for pool in policy.pools
    }


def _observe_settings(options: ControllerOptions, policies: tuple[ServicePolicy, ...]) -> ObserveSettings:
    return ObserveSettings(
        rate_window_s=options.rate_window_s,
        scrape_interval_s=options.scrape_interval_s,
        # The strictest service's limit: one reader serves them all.
        stale_after_s=min(policy.scaling.stale_after_s for policy in policies),
    )


def _longest_tick_s(options: ControllerOptions) -> float:
    """Return how long a tick may take while Prometheus hangs, before that alone makes us not ready."""
    return 2.0 * options.prometheus.total_timeout_s
