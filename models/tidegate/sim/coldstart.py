"""How long a replica takes from its order until it is ready."""

import math
from dataclasses import dataclass


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
