"""Where everything lies in the memory of a compiled fleet."""

import numpy as np

from tidegate.perf.steptime import dense_table_ps
from tidegate.sim.fast import pool, rep, routing, store, tot
from tidegate.sim.fast.state import BOARD_PARTS, NEVER, NEXT_AT, READY, WINNER, Int64s, State
from tidegate.sim.setup import FleetSetup, PoolSetup
from tidegate.terms.fleet import Role

_ROLES = {Role.AGGREGATED: pool.AGGREGATED, Role.PREFILL: pool.PREFILL, Role.DECODE: pool.DECODE}
_WRAP = 1 << 64


def new_memory(setup: FleetSetup, *, requests: int, hash_tokens: int) -> Int64s:
    """Return the memory of a fleet without room for replicas."""
    remote = max((p.cache.remote_blocks for p in setup.pools if p.cache), default=0)
    parts: list[list[int]] = [[0] * tot.WIDTH, [0] * (pool.WIDTH * len(setup.pools))]
    totals, pools = parts
    end = len(totals) + len(pools)
    for i, one in enumerate(setup.pools):
        dense = dense_table_ps(one.profile)
        pools[i * pool.WIDTH : (i + 1) * pool.WIDTH] = _pool(one, end)
        parts.append(list(dense))
        end += len(dense)
    bounds = ((tot.TTFT, setup.ttft_bounds_ps), (tot.TPOT, setup.tpot_bounds_ps), (tot.E2E, setup.e2e_bounds_ps))
    for cell, values in bounds:
        totals[cell] = end
        parts.append([len(values), *values, *[0] * (len(values) + 1)])
        end += len(parts[-1])
    totals[tot.REMOTE] = end
    totals[tot.REPLICAS] = end + store.cells(remote)
    totals[tot.REPLICA_WIDTH] = rep.WIDTH + sum(_tables(setup).values())
    totals[tot.POOLS] = tot.WIDTH
    totals[tot.POOL_COUNT] = len(setup.pools)
    totals[tot.REQUESTS] = requests
    totals[tot.HASH_TOKENS] = hash_tokens
    totals[tot.ROUTING] = routing.RULES[setup.routing]
    seed = setup.seed % _WRAP
    totals[tot.SEED] = seed - _WRAP if seed >= _WRAP // 2 else seed
    totals[tot.DISAGGREGATED] = int(any(p.role is Role.PREFILL for p in setup.pools))
    if setup.link is not None:
        totals[tot.LINK_BASE], totals[tot.LINK_TOKEN] = setup.link.base_ps, setup.link.ps_per_token
    memory = np.zeros(totals[tot.REPLICAS], dtype=np.int64)
    memory[:end] = [cell for part in parts for cell in part]
    store.lay_out(memory, end, remote)
    return memory


def hash_places(setup: PoolSetup) -> int:
    """Return how many hash blocks the HBM of a replica of this pool can hold."""
    if setup.cache is None:
        return 0
    return setup.profile.kv_blocks // (setup.cache.hash_block_tokens // setup.profile.block_tokens)


def with_slots(state: State, slots: int) -> State:
    """Return the state with room for `slots` replicas, a power of two."""
    have = int(state.memory[tot.SLOTS])
    width = int(state.memory[tot.REPLICA_WIDTH])
    memory = np.concatenate([state.memory, np.zeros((slots - have) * width, dtype=np.int64)])
    memory[tot.SLOTS] = slots
    board = np.zeros((BOARD_PARTS, slots), dtype=np.int64)
    board[NEXT_AT] = NEVER
    board[:, :have] = state.board.reshape(BOARD_PARTS, have)
    for slot in range(have, slots):
        memory[memory[tot.REPLICAS] + slot * width + rep.SLOT] = slot
    members = memory[memory[tot.REPLICAS] + np.arange(slots) * width + rep.MEMBER]
    best = [0] * slots + list(range(slots))  # the tournament; its leaves are the slots
    for node in range(slots - 1, 0, -1):
        best[node] = min(best[2 * node : 2 * node + 2], key=lambda s: (board[NEXT_AT, s], members[s]))
    board[WINNER] = best[:slots]
    return state._replace(memory=memory, board=board.reshape(-1))


def open_slot(state: State, setup: FleetSetup, slot: int, *, member: int, pool_index: int) -> None:
    """Put a new, idle replica into a slot that nothing happens in."""
    m = state.memory
    at = int(m[tot.REPLICAS] + slot * m[tot.REPLICA_WIDTH])
    m[at : at + int(m[tot.REPLICA_WIDTH])] = 0
    for column in (rep.RUN_HEAD, rep.RUN_TAIL, rep.PARTIAL, rep.COMPLETING, rep.QUEUE_HEAD, rep.QUEUE_TAIL):
        m[at + column] = -1
    one = setup.pools[pool_index]
    m[at + rep.MEMBER] = member
    m[at + rep.SLOT] = slot
    m[at + rep.POOL] = m[tot.POOLS] + pool_index * pool.WIDTH
    m[at + rep.FREE] = one.profile.kv_blocks
    where = at + rep.WIDTH
    for column, cells in _tables(setup).items():
        m[at + column] = where
        where += cells
    if one.cache is not None:
        store.lay_out(m, int(m[at + rep.HBM]), hash_places(one))
        store.lay_out(m, int(m[at + rep.CPU]), one.cache.cpu_blocks)
    state.board[slot] = 0


def list_slots(state: State, part: int, slots: list[int]) -> None:
    """Say which slots take new requests (READY) or hand-offs (DECODER)."""
    count = int(state.memory[tot.SLOTS])
    state.board[part * count : part * count + len(slots)] = slots
    state.memory[tot.READY if part == READY else tot.DECODERS] = len(slots)


def _tables(setup: FleetSetup) -> dict[int, int]:
    """Return how many cells each table of a replica takes, in order, by the cell that says where it begins."""
    sequences = max(p.profile.max_sequences for p in setup.pools)
    return {
        rep.GROWING: max(p.profile.block_tokens for p in setup.pools),
        rep.END_KEYS: sequences,
        rep.END_ROWS: sequences,
        rep.HBM: max(store.cells(hash_places(p)) for p in setup.pools),
        rep.CPU: max(store.cells(p.cache.cpu_blocks if p.cache else 0) for p in setup.pools),
    }


def _pool(one: PoolSetup, dense: int) -> list[int]:
    """Return the cells of a pool whose table of step times begins at `dense`."""
    p, cache = one.profile, one.cache
    cells = [0] * pool.WIDTH
    cells[pool.ROLE] = _ROLES[one.role]
    cells[pool.DENSE] = dense
    cells[pool.KV_READ] = p.kv_read_ps_per_token
    cells[pool.ATTENTION] = p.attention_ps_per_pair
    cells[pool.HOST] = p.host_ps_per_sequence
    cells[pool.FRONT_END] = p.front_end_ps
    cells[pool.FRONT_END_LIVE] = p.front_end_ps_per_live
    cells[pool.BLOCKS] = p.kv_blocks
    cells[pool.BLOCK_TOKENS] = p.block_tokens
    cells[pool.BUDGET] = p.token_budget
    cells[pool.SEQUENCES] = p.max_sequences
    cells[pool.LONGEST] = p.longest_request_tokens
    cells[pool.WEIGHT] = one.weight
    cells[pool.LONGEST_PROMPT] = NEVER if one.longest_prompt_tokens is None else one.longest_prompt_tokens
    if cache is not None:
        cells[pool.CACHE] = cache.hash_block_tokens // p.block_tokens
        cells[pool.CPU] = cache.cpu_blocks
        cells[pool.CPU_LOAD] = cache.cpu_load_ps_per_token
        cells[pool.REMOTE] = int(cache.remote_blocks > 0)
        cells[pool.REMOTE_LOAD] = cache.remote_load_ps_per_token
        cells[pool.LOAD_BASE] = cache.load_base_ps
        cells[pool.STORE] = cache.store_ps_per_token
    return cells
