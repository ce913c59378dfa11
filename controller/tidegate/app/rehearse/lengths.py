"""Token counts drawn from what a metrics backend keeps of them: bucket counts, or no more than a mean."""

from dataclasses import dataclass

import numpy as np

from tidegate.app.traces.problem import MAX_TOKENS
from tidegate.sim.trace import FloatArray, Int64Array

# A stretch with fewer requests than this says less about its lengths than the whole span does.
LEAST_REQUESTS = 50.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenCounts:
    """Requests per stretch of time and token bucket.

    Bucket j holds requests of more than `bounds[j - 1]` and at most `bounds[j]` tokens; the last one is unbounded.
    """

    bounds: FloatArray  # (m,) ascending, finite
    counts: FloatArray  # (stretches, m + 1) >= 0
    mean_tokens: float | None = None  # of the whole span, from sum and count; None: not known

    @property
    def beyond_ratio(self) -> float:
        """Share of requests longer than the last bound, whose length is not known."""
        total = float(self.counts.sum())
        return float(self.counts[:, -1].sum()) / total if total else 0.0

    def draw(self, stretch: Int64Array, rng: np.random.Generator) -> Int64Array:
        """Return one token count per entry of `stretch`, the stretch it belongs to.

        Inside a bucket counts lie as low or as high as it takes for the mean to come out right, evenly when it is not
        known; beyond the last bound they are that bound.

        Args:
            stretch: (n,) row of `counts`.
            rng: Draws buckets and places inside them.
        """
        low = np.concatenate([[0.0], self.bounds])
        high = np.concatenate([self.bounds, self.bounds[-1:]])
        power = _power(self, low, high)
        whole = self.counts.sum(axis=0)
        out = np.empty(len(stretch), dtype=np.float64)
        for row in np.unique(stretch):
            here = np.flatnonzero(stretch == row)
            mine = self.counts[row]
            share = mine if mine.sum() >= LEAST_REQUESTS else whole
            bucket = rng.choice(len(share), size=len(here), p=share / share.sum())
            out[here] = low[bucket] + (high - low)[bucket] * rng.random(len(here)) ** power
        return np.clip(np.ceil(out), 1, MAX_TOKENS).astype(np.int64)


def _power(of: TokenCounts, low: FloatArray, high: FloatArray) -> float:
    """Return k such that places u**k inside the buckets, u even in 0..1, give the known mean: E[u**k] = 1 / (k + 1)."""
    share = of.counts.sum(axis=0) / of.counts.sum()
    span = float(share @ (high - low))
    if of.mean_tokens is None or span <= 0.0:
        return 1.0
    # Half a token: counts are rounded up.
    place = (of.mean_tokens - 0.5 - float(share @ low)) / span
    return 1.0 / min(0.95, max(0.05, place)) - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanOnly:
    """A mean is all that is known: counts are drawn exponentially, whose spread is about that of real lengths."""

    mean_tokens: float  # >= 1

    @property
    def beyond_ratio(self) -> float:
        """No length is cut off."""
        return 0.0

    def draw(self, stretch: Int64Array, rng: np.random.Generator) -> Int64Array:
        """Return one token count per entry of `stretch`."""
        # Rounded up, an exponential gains half a token on average.
        drawn = rng.exponential(max(0.5, self.mean_tokens - 0.5), len(stretch))
        return np.clip(np.ceil(drawn), 1, MAX_TOKENS).astype(np.int64)


Lengths = TokenCounts | MeanOnly
