"""Hash blocks by id, and the order in which unused ones are forgotten: HBM, CPU and remote pool are each one of these.

A store is some cells of memory, named by where they begin: its books, its buckets, its entries. An entry, too, is named
by where it begins. Those with references are in no order; the others form a list from the oldest to the newest.
"""

from tidegate.sim.fast.compiled import compiled, inlined
from tidegate.sim.fast.state import Int64s, State

OLDEST, NEWEST, UNUSED, FREE, FRESH, END, MASK = range(7)  # UNUSED: entries without references; FRESH … END: never used
BUCKETS = 7  # where they begin
ID, REFERENCES, BEFORE, NEXT, CHAIN = range(5)  # of an entry; CHAIN: next of the same bucket, or next free
ENTRY_WIDTH = 5


def cells(blocks: int) -> int:
    """Return how many cells a store of so many blocks takes."""
    return BUCKETS + _buckets(blocks) + ENTRY_WIDTH * blocks


def _buckets(blocks: int) -> int:
    count = 1
    while count < 2 * blocks:
        count *= 2
    return count


def lay_out(memory: Int64s, store: int, blocks: int) -> None:
    """Make an empty store of `blocks` blocks out of the cells from `store` on."""
    entries = store + BUCKETS + _buckets(blocks)
    memory[store : store + BUCKETS] = (-1, -1, 0, -1, entries, entries + ENTRY_WIDTH * blocks, _buckets(blocks) - 1)
    memory[store + BUCKETS : entries] = -1


@compiled
def find(st: State, store: int, block: int) -> int:
    """Return the entry of a block, -1 if it is not there."""
    m = st.memory
    entry: int = m[store + BUCKETS + (block & m[store + MASK])]
    while entry >= 0 and m[entry + ID] != block:
        entry = m[entry + CHAIN]
    return entry


@compiled
def put(st: State, store: int, block: int, references: int) -> int:
    """Add a block that is not there, for which there must be room; return its entry. It is in no order yet."""
    m = st.memory
    entry: int = m[store + FREE]
    if entry >= 0:
        m[store + FREE] = m[entry + CHAIN]
    else:
        entry = m[store + FRESH]
        m[store + FRESH] += ENTRY_WIDTH
    bucket = store + BUCKETS + (block & m[store + MASK])
    m[entry + ID] = block
    m[entry + REFERENCES] = references
    m[entry + CHAIN] = m[bucket]
    m[bucket] = entry
    return entry


@compiled
def append(st: State, store: int, entry: int) -> None:
    """Put an entry at the new end of the order."""
    m = st.memory
    newest = m[store + NEWEST]
    m[entry + BEFORE] = newest
    m[entry + NEXT] = -1
    if newest < 0:
        m[store + OLDEST] = entry
    else:
        m[newest + NEXT] = entry
    m[store + NEWEST] = entry
    m[store + UNUSED] += 1


@compiled
def withdraw(st: State, store: int, entry: int) -> None:
    """Take an entry out of the order."""
    m = st.memory
    before, after = m[entry + BEFORE], m[entry + NEXT]
    if before < 0:
        m[store + OLDEST] = after
    else:
        m[before + NEXT] = after
    if after < 0:
        m[store + NEWEST] = before
    else:
        m[after + BEFORE] = before
    m[store + UNUSED] -= 1


@inlined
def forget_oldest(st: State, store: int) -> None:
    """Drop the oldest unused block; there must be one."""
    m = st.memory
    entry = m[store + OLDEST]
    withdraw(st, store, entry)
    bucket = store + BUCKETS + (m[entry + ID] & m[store + MASK])
    at = m[bucket]
    if at == entry:
        m[bucket] = m[entry + CHAIN]
    else:
        while m[at + CHAIN] != entry:
            at = m[at + CHAIN]
        m[at + CHAIN] = m[entry + CHAIN]
    m[entry + CHAIN] = m[store + FREE]
    m[store + FREE] = entry


@compiled
def touch(st: State, store: int, entry: int) -> None:
    """Make an unused entry the newest."""
    if st.memory[store + NEWEST] != entry:
        withdraw(st, store, entry)
        append(st, store, entry)


@compiled
def keep(st: State, store: int, block: int) -> bool:
    """Make a block the newest of a tier; return whether it had to be written, the oldest going if there is no room."""
    entry = find(st, store, block)
    if entry >= 0:
        touch(st, store, entry)
        return False
    m = st.memory
    if m[store + FREE] < 0 and m[store + FRESH] >= m[store + END]:
        forget_oldest(st, store)
    append(st, store, put(st, store, block, 0))
    return True
