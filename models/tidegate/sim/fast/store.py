"""Hash blocks by id, and the order in which unused ones are forgotten: HBM, CPU and remote pool are each one of these.

A store is some cells of memory, named by where they begin: its books, its buckets, its entries. An entry, too, is named
by where it begins. Those with references are in no order; the others form a list from the oldest to the newest.
"""

from tidegate.sim.fast.compiled import compiled, inlined
from tidegate.sim.fast.state import Int64s

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
def find(m: Int64s, store: int, block: int) -> int:
    """Return the entry of a block, -1 if it is not there."""
    entry: int = m[store + BUCKETS + (block & m[store + MASK])]
    while entry >= 0 and m[entry + ID] != block:
        entry = m[entry + CHAIN]
    return entry


@inlined
def put(m: Int64s, store: int, block: int, references: int) -> int:
    """Add a block that is not there, for which there must be room; return its entry. It is in no order yet."""
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


@inlined
def append(m: Int64s, store: int, entry: int) -> None:
    """Put an entry at the new end of the order."""
    newest = m[store + NEWEST]
    m[entry + BEFORE] = newest
    m[entry + NEXT] = -1
    if newest < 0:
        m[store + OLDEST] = entry
    else:
        m[newest + NEXT] = entry
    m[store + NEWEST] = entry
    m[store + UNUSED] += 1


@inlined
def withdraw(m: Int64s, store: int, entry: int) -> None:
    """Take an entry out of the order."""
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
def forget_oldest(m: Int64s, store: int) -> None:
    """Drop the oldest unused block; there must be one."""
    entry = m[store + OLDEST]
    withdraw(m, store, entry)
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


@inlined
def touch(m: Int64s, store: int, entry: int) -> None:
    """Make an unused entry the newest."""
    if m[store + NEWEST] != entry:
        withdraw(m, store, entry)
        append(m, store, entry)


@compiled
def keep(m: Int64s, store: int, block: int) -> bool:
    """Make a block the newest of a tier; return whether it had to be written, the oldest going if there is no room."""
    entry = find(m, store, block)
    if entry >= 0:
        touch(m, store, entry)
        return False
    if m[store + FREE] < 0 and m[store + FRESH] >= m[store + END]:
        forget_oldest(m, store)
    append(m, store, put(m, store, block, 0))
    return True
