"""What an operator reads in the log of a running controller: one line per change, none while nothing changes."""

import logging
from collections.abc import Callable, Iterator

from tidegate.actuate.xds import AdsStatus
from tidegate.app.record import TickRecord
from tidegate.core.explain import sentence
from tidegate.terms.decision import Reason
from tidegate.terms.fleet import PoolKey, ReplicaState
from tidegate.terms.observation import Observation, PoolObservation, ServiceObservation
from tidegate.terms.signal import Signal, Unknown, UnknownReason

log = logging.getLogger("tidegate.controller")

NO_GATEWAY_AFTER_S = 30.0

# Prometheus itself, not one series of it.
_SERVER = {
    UnknownReason.UNREACHABLE,
    UnknownReason.BREAKER_OPEN,
    UnknownReason.REJECTED,
    UnknownReason.PARTIAL,
}
# What passes by itself or was never promised.
_EXPECTED = {UnknownReason.TOO_YOUNG, UnknownReason.NOT_OFFERED, UnknownReason.NOT_CONFIGURED}

_PROMETHEUS = "Prometheus"


class Narrator:
    """Logs what changed from tick to tick.

    Args:
        gateways: What is known of each Envoy; None: none is served.
        started_at_s: Unix time from which on a gateway is waited for.
    """

    def __init__(self, gateways: Callable[[], AdsStatus] | None, *, started_at_s: float) -> None:
        self._gateways = gateways
        self._connected_at_s = started_at_s
        self._alone = False
        self._told: dict[PoolKey, tuple[int, str]] = {}
        self._unknown: dict[str, str] = {}

    def tick(self, record: TickRecord) -> None:
        """Tell what the newest tick changed."""
        self._pools(record)
        self._sources(record.inputs.observation)
        if self._gateways is not None:
            self._connected(self._gateways(), record.inputs.now_s)

    def _pools(self, record: TickRecord) -> None:
        for pool in record.decision.pools:
            # Which of the two demands is larger may change each tick, and changes nothing.
            bound = Reason.DEMAND_NOW if pool.binding is Reason.DEMAND_FORECAST else pool.binding
            new = (pool.asked_replicas, bound)
            if self._told.get(pool.key) != new:
                log.info("decision=%d %s", record.decision.sequence, sentence(pool))
            self._told[pool.key] = new

    def _sources(self, observation: Observation) -> None:
        found = dict(_unknowns(observation))
        if _PROMETHEUS in found:
            # All else is unknown for the same reason, and says nothing new until it answers again.
            found = {**self._unknown, _PROMETHEUS: found[_PROMETHEUS]}
        for name in found.keys() - self._unknown.keys():
            log.warning("%s unknown: %s", name, found[name])
        for name in self._unknown.keys() - found.keys():
            log.info("%s known again", name)
        self._unknown = found

    def _connected(self, status: AdsStatus, now_s: float) -> None:
        if any(g.connected for g in status.gateways):
            if self._alone:
                log.info("a gateway is connected again")
            self._alone, self._connected_at_s = False, now_s
        elif not self._alone and now_s - self._connected_at_s >= NO_GATEWAY_AFTER_S:
            self._alone = True
            log.warning("no gateway has been connected for %.0f s: nobody is sent to", now_s - self._connected_at_s)


def _unknowns(observation: Observation) -> Iterator[tuple[str, str]]:
    """Yield each source that gives no number, and why; Prometheus itself first."""
    for service in observation.services:
        for signal in _required(service):
            if isinstance(signal, Unknown) and signal.reason in _SERVER:
                yield _PROMETHEUS, _why(signal)
                return
    for service in observation.services:
        if _lost(service.arrivals_per_s):
            yield f"load of {service.service} at the gateway", _why(service.arrivals_per_s)
        for pool in service.pools:
            if _has_ready(pool) and _lost(pool.running_requests):
                yield f"engine metrics of {pool.key}", _why(pool.running_requests)


def _required(service: ServiceObservation) -> Iterator[Signal]:
    yield service.arrivals_per_s
    for pool in service.pools:
        yield pool.running_requests


def _has_ready(pool: PoolObservation) -> bool:
    return any(r.replica.state is ReplicaState.READY for r in pool.replicas)


def _lost(signal: Signal) -> bool:
    return isinstance(signal, Unknown) and signal.reason not in _EXPECTED


def _why(signal: Signal) -> str:
    if not isinstance(signal, Unknown):
        return ""
    return f"{signal.reason} ({signal.detail})" if signal.detail else str(signal.reason)
