"""Pools, replicas and their states: who is in the fleet, not how it feels."""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a pool's replicas do with a request."""

    AGGREGATED = "aggregated"  # prefill and decode in one engine
    PREFILL = "prefill"
    DECODE = "decode"


class EngineKind(StrEnum):
    """The engine software; decides metric aliases."""

    VLLM = "vllm"
    SGLANG = "sglang"


class ReplicaState(StrEnum):
    """Life of one replica. Only `READY` receives new requests."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    ASLEEP = "asleep"
    FAILED = "failed"  # process or pod is gone, or never became ready


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PoolKey:
    """Names one pool in the whole fleet."""

    service: str
    pool: str

    def __str__(self) -> str:
        return f"{self.service}/{self.pool}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica as the actuator knows it.

    `address` is `host:port`; empty until known. `ordered_at_s` starts the cold start, `ready_at_s` ends it.
    """

    name: str
    pool: PoolKey
    state: ReplicaState
    address: str = ""
    node: str = ""
    ordered_at_s: float
    ready_at_s: float | None = None
    draining_since_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Every replica that exists now, by name, ascending; the join key of all per-replica series."""

    taken_at_s: float
    replicas: tuple[Replica, ...]

    def of(self, pool: PoolKey, *states: ReplicaState) -> tuple[Replica, ...]:
        """Return the pool's replicas in any of `states` (all states when none is given)."""
        return tuple(r for r in self.replicas if r.pool == pool and (not states or r.state in states))
