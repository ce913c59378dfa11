"""What a replica still knows of earlier prompts: hash blocks in HBM, and the tiers below."""

from collections import OrderedDict
from collections.abc import Sequence

from tidegate.sim.kvtier import KvTier
from tidegate.sim.setup import CacheSetup
from tidegate.sim.soundness import check_cache


class PrefixCache:
    """The prefix cache of one replica.

    Blocks in HBM are shared by reference. Those without references stay until their memory is needed, the least
    recently released first. The tiers are written through when a prompt is computed and read when one is admitted;
    what HBM forgets does not touch them.

    Args:
        setup: Sizes and costs.
        block_tokens: Of the engine; a hash block is a whole number of its blocks.
        remote: The fleet's shared pool; None: this replica has none.

    Raises:
        ValueError: A hash block that is no multiple of the engine's, or a size or cost under 0.
    """

    def __init__(self, setup: CacheSetup, *, block_tokens: int, remote: KvTier | None) -> None:
        check_cache(setup, block_tokens=block_tokens)
        self._setup = setup
        self.engine_blocks = setup.hash_block_tokens // block_tokens  # of one hash block
        self._references: dict[int, int] = {}
        self._unused: OrderedDict[int, None] = OrderedDict()  # oldest first
        # Nearest first, each with its cost per token.
        self._tiers: list[tuple[KvTier, int]] = []
        if setup.cpu_blocks:
            self._tiers.append((KvTier(setup.cpu_blocks), setup.cpu_load_ps_per_token))
        if remote is not None:
            self._tiers.append((remote, setup.remote_load_ps_per_token))

    @property
    def unused(self) -> tuple[int, ...]:
        """Blocks in HBM that no sequence refers to, the one to go first first."""
        return tuple(self._unused)

    @property
    def resident(self) -> dict[int, int]:
        """References of each block in HBM."""
        return dict(self._references)

    @property
    def unused_engine_blocks(self) -> int:
        """KV blocks of the engine that unused hash blocks occupy."""
        return self.engine_blocks * len(self._unused)

    def hits(self, hashes: Sequence[int], prompt_tokens: int) -> tuple[int, int]:
        """Return how many leading blocks of a prompt are in HBM, and how many of these are unused.

        The block of the last prompt token never counts: that token is always computed.
        """
        found = idle = 0
        for block in hashes[: self._whole_blocks(prompt_tokens - 1)]:
            if block not in self._references:
                break
            found += 1
            idle += block in self._unused
        return found, idle

    def refer(self, blocks: Sequence[int]) -> None:
        """Hold blocks that are in HBM."""
        for block in blocks:
            self._references[block] += 1
            self._unused.pop(block, None)

    def release(self, blocks: Sequence[int]) -> None:
        """Let go of blocks, the last first; those nobody holds any more are unused from now on, the first the newest.

        So the end of a prompt is forgotten before its beginning, which more prompts share.
        """
        for block in reversed(blocks):
            self._references[block] -= 1
            if not self._references[block]:
                self._unused[block] = None

    def forget_oldest(self) -> int:
        """Drop the unused block released longest ago, of which there must be one; return the engine blocks freed."""
        block, _ = self._unused.popitem(last=False)
        del self._references[block]
        return self.engine_blocks

    def load(self, hashes: Sequence[int], prompt_tokens: int, hits: int) -> tuple[int, int]:
        """Return the tokens found below HBM right after the hits, and what loading them costs in picoseconds."""
        found = cost_ps = 0
        size = self._setup.hash_block_tokens
        for block in hashes[hits : self._whole_blocks(prompt_tokens - 1)]:
            load_ps = next((ps for tier, ps in self._tiers if tier.find(block)), None)
            if load_ps is None:
                break
            found += size
            cost_ps += size * load_ps
        return found, cost_ps + (self._setup.load_base_ps if found else 0)

    def enrol(self, hashes: Sequence[int], prompt_tokens: int, hits: int) -> list[int]:
        """Make the blocks of a computed prompt findable in HBM and return those that were new, held once each.

        A block that came into HBM since the admission stays as it is: the sequence keeps its own copy of it.
        """
        new = []
        for block in hashes[hits : self._whole_blocks(prompt_tokens)]:
            if block not in self._references:
                self._references[block] = 1
                new.append(block)
        return new

    def store(self, hashes: Sequence[int], prompt_tokens: int) -> int:
        """Write the blocks of a computed prompt to every tier; return the tokens of those that were new to any."""
        written = 0
        for block in hashes[: self._whole_blocks(prompt_tokens)]:
            was_new = [tier.keep(block) for tier, _ in self._tiers]  # each is written, whatever the nearer ones say
            written += any(was_new)
        return written * self._setup.hash_block_tokens

    def hit_tokens(self, hits: int) -> int:
        """Return the prompt tokens of so many hits."""
        return hits * self._setup.hash_block_tokens

    def store_ps(self, tokens: int) -> int:
        """Return what writing so many tokens costs in picoseconds."""
        return tokens * self._setup.store_ps_per_token

    def _whole_blocks(self, tokens: int) -> int:
        return tokens // self._setup.hash_block_tokens
