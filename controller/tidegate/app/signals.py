"""Every signal of an observation by name, for whoever lists them: the page and our own metrics."""

from collections.abc import Iterator
from dataclasses import fields
from typing import NamedTuple

from tidegate.terms.observation import Observation, PoolObservation, ReplicaObservation, ServiceObservation
from tidegate.terms.signal import Signal, TrueZero, Unknown, UnknownReason, Value

# The server, not the series, is what failed.
SERVER_TROUBLE = frozenset({UnknownReason.UNREACHABLE, UnknownReason.REJECTED, UnknownReason.BREAKER_OPEN})


class NamedSignal(NamedTuple):
    """One signal and whose it is; `pool` is empty for a service's own."""

    service: str
    pool: str
    name: str
    signal: Signal


def named(of: ServiceObservation | PoolObservation | ReplicaObservation) -> Iterator[tuple[str, Signal]]:
    """Yield the signals that are fields of `of`, in the order of the class."""
    for field in fields(of):
        value = getattr(of, field.name)
        if isinstance(value, Value | TrueZero | Unknown):
            yield field.name, value


def service_signals(service: ServiceObservation) -> Iterator[NamedSignal]:
    """Yield the signals of a service, its objectives and its pools; not those of single replicas."""
    for name, signal in named(service):
        yield NamedSignal(service.service, "", name, signal)
    for sli in service.slis:
        yield NamedSignal(service.service, "", f"slo_{sli.slo}", sli.attained_ratio)
    for pool in service.pools:
        for name, signal in named(pool):
            yield NamedSignal(service.service, pool.key.pool, name, signal)


def server_trouble(observation: Observation) -> str:
    """Return why the metrics server gave no arrivals for any service, or an empty text when it gave some."""
    arrivals = [s.arrivals_per_s for s in observation.services]
    lost = [a for a in arrivals if isinstance(a, Unknown) and a.reason in SERVER_TROUBLE]
    if not arrivals or len(lost) < len(arrivals):
        return ""
    return f"{lost[0].reason}: {lost[0].detail}" if lost[0].detail else str(lost[0].reason)
