"""What a simulated fleet is made of: pools, caches, links and the rule that routes."""

from dataclasses import dataclass
from enum import StrEnum

from tidegate.perf.profile import EngineProfile
from tidegate.sim.coldstart import ColdStart
from tidegate.terms.fleet import PoolKey, Role


class Routing(StrEnum):
    """Which ready replica gets the next request."""

    RANDOM = "random"
    ROUND_ROBIN = "round_robin"
    LEAST_REQUEST = "least_request"
    PREFIX_HASH = "prefix_hash"  # highest random weight by prefix, with bounded load
    KV_AWARE = "kv_aware"  # queue and KV use as last scraped, plus what was sent since
    WEIGHTED = "weighted"  # least requests per weight
    LENGTH_SPLIT = "length_split"  # by prompt length to a pool, least request inside it


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSetup:
    """Prefix cache and KV tiers of one replica, in hash blocks of `hash_block_tokens` tokens.

    A tier with 0 blocks does not exist. The remote pool is shared by all replicas of the fleet that have one.
    """

    hash_block_tokens: int  # a multiple of the engine's block_tokens
    cpu_blocks: int = 0
    cpu_load_ps_per_token: int = 0
    remote_blocks: int = 0  # equal in every pool that has it
    remote_load_ps_per_token: int = 0
    load_base_ps: int = 0  # once per request that loads anything
    store_ps_per_token: int = 0  # per prompt token newly written to any tier below HBM


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLink:
    """How KV gets from a prefill to a decode replica."""

    name: str  # "nvlink", "pcie", "rdma"
    base_ps: int
    ps_per_token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSetup:
    """One pool of equal replicas."""

    key: PoolKey
    role: Role
    profile: EngineProfile
    cold_start: ColdStart
    initial: int  # replicas ready at 0, >= 0
    cache: CacheSetup | None = None  # None: no prefix cache; a trace's `reusable_tokens` then count as known hits
    weight: int = 1  # for WEIGHTED
    longest_prompt_tokens: int | None = None  # for LENGTH_SPLIT: takes prompts up to this; None: any


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSetup:
    """A fleet that serves one model: aggregated pools, or prefill pools with decode pools behind them."""

    pools: tuple[PoolSetup, ...]
    routing: Routing = Routing.LEAST_REQUEST  # aggregated and prefill stage; decode is always by least request
    link: KvLink | None = None  # needed with prefill pools
    seed: int = 0  # of RANDOM and PREFIX_HASH
    sweep_s: float = 1.0  # readiness is noticed at multiples of this
    crash_retries: int = 1  # a request without a first token is routed again this often
    # Upper bounds of the latency histograms in picoseconds, ascending; an implicit last bucket is unbounded.
    ttft_bounds_ps: tuple[int, ...] = ()
    tpot_bounds_ps: tuple[int, ...] = ()
    e2e_bounds_ps: tuple[int, ...] = ()
