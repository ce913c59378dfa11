"""What a fleet and its load must be for a simulation to make sense."""

import math
from itertools import pairwise

import numpy as np

from tidegate.perf.profile import profile_problems
from tidegate.sim.setup import CacheSetup, FleetSetup, PoolSetup
from tidegate.sim.trace import Trace
from tidegate.terms.fleet import Role


def check_fleet(trace: Trace, setup: FleetSetup) -> None:
    """Return if a simulated fleet can be made of these.

    Raises:
        ValueError: The first thing that is wrong: what it is and what it must be.
    """
    _check_trace(trace)
    if not setup.pools:
        _refuse("setup", "pools", "at least one", setup.pools)
    if not (math.isfinite(setup.sweep_s) and setup.sweep_s > 0.0):
        _refuse("setup", "sweep_s", "> 0", setup.sweep_s)
    if setup.crash_retries < 0:
        _refuse("setup", "crash_retries", ">= 0", setup.crash_retries)
    for name in ("ttft_bounds_ps", "tpot_bounds_ps", "e2e_bounds_ps"):
        bounds = getattr(setup, name)
        if any(low >= high for low, high in pairwise(bounds)):
            _refuse("setup", name, "ascending", bounds)
    for pool in setup.pools:
        _check_pool(pool)
    _check_roles(setup)
    _check_caches(trace, setup)


def _check_trace(trace: Trace) -> None:
    count = len(trace)
    if count and (trace.arrival_ps[0] < 0 or np.any(np.diff(trace.arrival_ps) < 0)):
        _refuse(f"trace {trace.name}", "arrival_ps", ">= 0 and never falling", "times out of order")
    for name in ("prompt_tokens", "output_tokens"):
        column = getattr(trace, name)
        if len(column) != count or np.any(column < 1):
            _refuse(f"trace {trace.name}", name, f"{count} numbers >= 1", f"{len(column)} numbers")
    for name in ("reusable_tokens", "prefix_id"):
        if len(getattr(trace, name)) not in {0, count}:
            _refuse(f"trace {trace.name}", name, f"empty or {count} numbers", f"{len(getattr(trace, name))} numbers")
    if np.any(trace.reusable_tokens < 0):
        _refuse(f"trace {trace.name}", "reusable_tokens", ">= 0", int(trace.reusable_tokens.min()))


def _check_pool(pool: PoolSetup) -> None:
    where = f"pool {pool.key}"
    if pool.initial < 0:
        _refuse(where, "initial", ">= 0", pool.initial)
    if pool.weight < 1:
        _refuse(where, "weight", ">= 1", pool.weight)
    for name, must in profile_problems(pool.profile):
        _refuse(f"{where}: profile {pool.profile.name}", name, must, getattr(pool.profile, name))


def _check_roles(setup: FleetSetup) -> None:
    roles = {p.role for p in setup.pools}
    if Role.AGGREGATED in roles and len(roles) > 1:
        _refuse("setup", "pools", "all aggregated, or prefill and decode", sorted(roles))
    if roles != {Role.AGGREGATED}:
        if roles != {Role.PREFILL, Role.DECODE}:
            _refuse("setup", "pools", "prefill with decode pools behind them", sorted(roles))
        if setup.link is None or setup.link.base_ps < 0 or setup.link.ps_per_token < 0:
            _refuse("setup", "link", "a link with costs >= 0 between prefill and decode pools", setup.link)


def _check_caches(trace: Trace, setup: FleetSetup) -> None:
    remote = {p.cache.remote_blocks for p in setup.pools if p.cache is not None and p.cache.remote_blocks}
    if len(remote) > 1:
        _refuse("setup", "cache.remote_blocks", "equal in every pool that has a remote tier", sorted(remote))
    for pool in setup.pools:
        if pool.cache is None:
            continue
        where = f"pool {pool.key}"
        if pool.role is Role.DECODE:
            _refuse(where, "cache", "none in a decode pool", pool.cache)
        check_cache(pool.cache, block_tokens=pool.profile.block_tokens, where=where)
        if pool.cache.hash_block_tokens != trace.hash_block_tokens:
            _refuse(
                where,
                "cache.hash_block_tokens",
                f"that of the trace {trace.name} ({trace.hash_block_tokens})",
                pool.cache.hash_block_tokens,
            )


def check_cache(cache: CacheSetup, *, block_tokens: int, where: str = "cache") -> None:
    """Return if an engine with blocks of `block_tokens` can have this cache.

    Raises:
        ValueError: It cannot.
    """
    if cache.hash_block_tokens < 1 or cache.hash_block_tokens % block_tokens:
        must = f"a multiple of the engine's block of {block_tokens} tokens"
        _refuse(where, "cache.hash_block_tokens", must, cache.hash_block_tokens)
    for name in (
        "cpu_blocks",
        "cpu_load_ps_per_token",
        "remote_blocks",
        "remote_load_ps_per_token",
        "load_base_ps",
        "store_ps_per_token",
    ):
        if getattr(cache, name) < 0:
            _refuse(where, f"cache.{name}", ">= 0", getattr(cache, name))


def _refuse(where: str, name: str, must: str, got: object) -> None:
    msg = f"{where}: {name} must be {must}, got {got}"
    raise ValueError(msg)
