"""Hash blocks as written in a trace: `0-13`, `0 14-27`, or a list of ids."""

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tidegate.app.traces.problem import MAX_ID
from tidegate.sim.trace import Int64Array

DEFAULT_BLOCK_TOKENS = 512  # of the Mooncake traces


class Blocks:
    """Hash ids of many requests, growing; ids that stand for less than a whole block of the prompt are left out."""

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._firsts = array("q")
        self._lengths = array("q")
        self._counts = array("q", [0])

    def add_text(self, text: str, prompt_tokens: int) -> None:
        """Add a request whose ids are written as runs.

        Raises:
            ValueError: Not ids or runs, or more than the prompt has blocks; its text says what it must be.
        """
        self._add([_run(word) for word in text.split()], prompt_tokens)

    def add_ids(self, ids: Sequence[Any], prompt_tokens: int) -> None:
        """Add a request whose ids are listed.

        Raises:
            ValueError: Not whole numbers, or more than the prompt has blocks; its text says what it must be.
        """
        # Whole lists at a time: a trace has twenty ids a request.
        try:
            given = array("q", ids)  # what is no whole number of 64 bits raises
        except (TypeError, OverflowError):
            given = array("q", [-1])
        if len(given) and min(given) < 0:
            msg = f"whole numbers from 0 to {MAX_ID}"
            raise ValueError(msg)
        left = self._room(len(given), prompt_tokens)
        self._counts.append(left)
        self._firsts.extend(given[:left])
        self._lengths.extend(array("q", [1]) * left)

    def _add(self, runs: list[tuple[int, int]], prompt_tokens: int) -> None:
        left = self._room(sum(last - first + 1 for first, last in runs), prompt_tokens)
        self._counts.append(left)
        for first, last in runs:
            length = min(left, last - first + 1)
            if length:
                self._firsts.append(first)
                self._lengths.append(length)
            left -= length

    def _room(self, ids: int, prompt_tokens: int) -> int:
        """Return how many of a request's ids stand for a whole block."""
        most = -(-prompt_tokens // self.block_tokens)
        if ids > most:
            msg = f"at most {most} ids for {prompt_tokens} prompt tokens in blocks of {self.block_tokens}"
            raise ValueError(msg)
        # A prompt that ends inside a block may still have an id for it: no cache can use it.
        return min(ids, prompt_tokens // self.block_tokens)

    def columns(self) -> tuple[Int64Array, Int64Array]:
        """Return `hash_start` and `hashes` of the trace."""
        start = np.cumsum(np.frombuffer(self._counts, dtype=np.int64))
        if not self._firsts:
            return start, np.zeros(0, dtype=np.int64)
        firsts = np.frombuffer(self._firsts, dtype=np.int64)
        lengths = np.frombuffer(self._lengths, dtype=np.int64)
        before = np.cumsum(lengths) - lengths
        return start, np.repeat(firsts - before, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)


def _run(word: str) -> tuple[int, int]:
    first, dash, last = word.partition("-")
    ends = (first, last if dash else first)
    if not all(end.isascii() and end.isdecimal() and int(end[:20]) <= MAX_ID for end in ends):
        msg = "ids or runs of ids such as 0-13, separated by spaces"
        raise ValueError(msg)
    pair = (int(ends[0]), int(ends[1]))
    if pair[1] < pair[0]:
        msg = f"runs that ascend, such as {pair[1]}-{pair[0]}"
        raise ValueError(msg)
    return pair


def runs_text(ids: Sequence[int]) -> str:
    """Return ids as they are written in a CSV: runs `a-b` where they ascend by one."""
    cuts = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(ids)) if b != a + 1), len(ids)]
    runs = [(ids[a], ids[b - 1]) for a, b in pairwise(cuts) if b > a]
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
