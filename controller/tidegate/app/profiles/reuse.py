"""Which prompt tokens a prefix cache already held, guessed from a log that does not say.

A benchmark of conversations sends each one's history again. What is new is the last turn, and its length does not grow
with the prompt; a request whose history is not where it is sent to (other replica, evicted) computes all of it. So two
numbers describe a load: the tokens of a turn, and the share of requests that find nothing. A flat share of every prompt
(`share_ratio`) is the cruder description; both may be 0.
"""

from dataclasses import dataclass

import numpy as np

from tidegate.app.profiles.log import Int64Array

# Steps of the golden ratio spread any share evenly over a log, without chance (Knuth, TAOCP vol. 3, section 6.4).
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """How much of the prompts is found in the cache."""

    share_ratio: float = 0.0  # of every prompt; 0..1
    turn_tokens: float | None = None  # new tokens of a prompt whose history is found; None: `share_ratio` counts
    miss_ratio: float = 0.0  # of requests find nothing; 0..1

    def cached_tokens(self, prompt_tokens: Int64Array, *, block_tokens: int) -> Int64Array:
        """Return the tokens found per request, in whole blocks, shape (n,)."""
        if self.turn_tokens is None:
            found = np.floor(prompt_tokens * self.share_ratio)
        else:
            found = np.maximum(0.0, prompt_tokens - self.turn_tokens)
        place = (np.arange(1, len(prompt_tokens) + 1) * _GOLDEN) % 1.0
        whole = np.floor(found / block_tokens) * block_tokens
        return np.where(place < self.miss_ratio, 0.0, whole).astype(np.int64)

    def hit_ratio(self, prompt_tokens: Int64Array, *, block_tokens: int) -> float:
        """Return the share of all prompt tokens that is found."""
        total = int(prompt_tokens.sum())
        return float(self.cached_tokens(prompt_tokens, block_tokens=block_tokens).sum()) / total if total else 0.0

    def __str__(self) -> str:
        """Say it in words."""
        if self.turn_tokens is not None:
            return f"a turn of {self.turn_tokens:.0f} new tokens, {self.miss_ratio:.0%} of requests find nothing"
        return f"{self.share_ratio:.0%} of every prompt" if self.share_ratio else "none"
