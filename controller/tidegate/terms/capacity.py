"""What one replica can carry, and how long it takes to get one."""

from dataclasses import dataclass
from enum import StrEnum

from tidegate.terms.fleet import PoolKey


class CapacitySource(StrEnum):
    """Where a capacity figure comes from."""

    PROFILE = "profile"  # engine model and the current mean lengths
    MEASURED = "measured"  # profile corrected by what the fleet really carried


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCapacity:
    """Capacity of one replica of a pool at the present request lengths.

    `requests_per_s` is the highest arrival rate at which the service's latency objectives hold.
    `cold_start_p95_s` is measured once enough starts were seen, else the policy's prior.
    """

    key: PoolKey
    requests_per_s: float  # > 0
    source: CapacitySource
    correction_ratio: float = 1.0  # measured over modelled capacity
    prompt_tokens: float  # the mean lengths it was computed for
    output_tokens: float
    lengths_weight: float = 0.0  # requests those means stand on; old ones fade
    binding: str  # which limit binds: "tpot", "ttft", "kv", "sequences", "compute"; "ttft out of reach" when none helps
    cold_start_p50_s: float
    cold_start_p95_s: float
    cold_starts_seen: int
