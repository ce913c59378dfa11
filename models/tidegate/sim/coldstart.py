"""How long a replica takes from its order until it is ready."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_P95_SIGMAS = 1.6448536269514722  # 95 % quantile of the standard normal distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStart:
    """Start-up times in seconds, taken in turn and from the beginning again: a distribution without chance.

    One sample is a fixed cold start; measured ones make the rehearsal start its replicas as the fleet did.
    """

    samples_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.samples_s or any(not math.isfinite(s) or s < 0.0 for s in self.samples_s):
            msg = f"cold start: samples_s must hold at least one finite time >= 0, got {self.samples_s}"
            raise ValueError(msg)

    def of(self, index: int) -> float:
        """Return the cold start of the `index`-th replica ordered (from 0)."""
        return self.samples_s[index % len(self.samples_s)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LognormalPart:
    """A part of a cold start that is known by two quantiles; equal ones make it a constant."""

    name: str  # "image", "weights", "warm-up"
    median_s: float  # > 0
    p95_s: float  # >= median_s

    def __post_init__(self) -> None:
        if not 0.0 < self.median_s <= self.p95_s < math.inf:
            msg = f"cold start part {self.name}: need 0 < median_s <= p95_s, got {self.median_s} and {self.p95_s}"
            raise ValueError(msg)

    def draw_s(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
        """Return `count` times in seconds."""
        sigma = math.log(self.p95_s / self.median_s) / _P95_SIGMAS
        return rng.lognormal(math.log(self.median_s), sigma, count)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmpiricalPart:
    """A part of a cold start that was measured: every time seen is as likely as any other."""

    name: str
    seen_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.seen_s or any(not math.isfinite(s) or s < 0.0 for s in self.seen_s):
            msg = f"cold start part {self.name}: seen_s must hold at least one finite time >= 0, got {self.seen_s}"
            raise ValueError(msg)

    def draw_s(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
        """Return `count` times in seconds."""
        return rng.choice(np.array(self.seen_s, dtype=np.float64), count)


ColdStartPart = LognormalPart | EmpiricalPart


def cold_starts(parts: Sequence[ColdStartPart], rng: np.random.Generator, count: int) -> ColdStart:
    """Return `count` cold starts, each the sum of one draw of every part: the parts follow each other independently.

    Args:
        parts: At least one; draws are made part by part in this order.
        rng: The only source of chance: an equal generator gives equal cold starts.
        count: >= 1.

    Raises:
        ValueError: No part, or a count under 1.
    """
    if not parts or count < 1:
        msg = f"cold start: need at least one part and a count >= 1, got {len(parts)} parts and {count}"
        raise ValueError(msg)
    total_s = np.sum([part.draw_s(rng, count) for part in parts], axis=0)
    return ColdStart(samples_s=tuple(total_s.tolist()))
