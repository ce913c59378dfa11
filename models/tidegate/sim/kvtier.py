"""A store of KV below HBM: hash blocks by id, the least recently used going first."""

from collections import OrderedDict


class KvTier:
    """The CPU memory of one replica, or the pool all replicas of a fleet share.

    Args:
        blocks: Most hash blocks it holds, >= 1.

    Raises:
        ValueError: Fewer than one block.
    """

    def __init__(self, blocks: int) -> None:
        if blocks < 1:
            msg = f"KV tier: blocks must be >= 1, got {blocks}"
            raise ValueError(msg)
        self._blocks = blocks
        self._kept: OrderedDict[int, None] = OrderedDict()  # oldest first

    @property
    def kept(self) -> tuple[int, ...]:
        """The blocks it holds, least recently used first."""
        return tuple(self._kept)

    def find(self, block: int) -> bool:
        """Return whether a block is here, and make it the most recently used."""
        if block not in self._kept:
            return False
        self._kept.move_to_end(block)
        return True

    def keep(self, block: int) -> bool:
        """Make a block the most recently used; return whether it had to be written."""
        if self.find(block):
            return False
        if len(self._kept) == self._blocks:
            self._kept.popitem(last=False)
        self._kept[block] = None
        return True
