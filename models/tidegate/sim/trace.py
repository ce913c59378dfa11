"""A recorded or generated load, as columns: a day of requests is some arrays, not a million objects."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidegate.perf.profile import PS_PER_S
from tidegate.sim.arrivals import Arrival, in_order

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]


def _none64() -> Int64Array:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Requests in order of arrival; row i of every column is request i.

    Prefix identity is a list of hash blocks per request: equal ids are equal text at equal depth, each standing for
    `hash_block_tokens` prompt tokens. `hashes[hash_start[i]:hash_start[i + 1]]` are those of request i, from its first
    token on; a prompt may end with a part of a block that has no id. Without hashes both arrays are empty.
    """

    name: str
    arrival_ps: Int64Array  # (n,) >= 0, never falling
    prompt_tokens: Int64Array  # (n,) >= 1
    output_tokens: Int64Array  # (n,) >= 1
    hash_block_tokens: int = 0  # 0: no hashes
    hash_start: Int64Array = field(default_factory=_none64)  # (n + 1,), or (0,) without hashes
    hashes: Int64Array = field(default_factory=_none64)
    reusable_tokens: Int64Array = field(default_factory=_none64)  # (n,) known hits when there are no hashes, or (0,)
    prefix_id: Int64Array = field(default_factory=_none64)  # (n,) affinity key, or (0,)
    client: Int64Array = field(default_factory=_none64)  # (n,) tenant number, or (0,)

    def __len__(self) -> int:
        return len(self.arrival_ps)

    @property
    def seconds(self) -> float:
        """Time of the last arrival; 0 of none."""
        return float(self.arrival_ps[-1]) / PS_PER_S if len(self) else 0.0

    def hashes_of(self, index: int) -> tuple[int, ...]:
        """Return the hash blocks of one request, from its first token on."""
        if not self.hash_block_tokens:
            return ()
        return tuple(self.hashes[self.hash_start[index] : self.hash_start[index + 1]].tolist())


def trace_of(arrivals: tuple[Arrival, ...] | list[Arrival], *, name: str = "arrivals") -> Trace:
    """Return the arrivals as columns, by time.

    Raises:
        ValueError: A time that is negative or not finite, or a token count under 1.
    """
    ordered = in_order(arrivals)
    return Trace(
        name=name,
        arrival_ps=np.array([round(a.at_s * PS_PER_S) for a in ordered], dtype=np.int64),
        prompt_tokens=np.array([a.prompt_tokens for a in ordered], dtype=np.int64),
        output_tokens=np.array([a.output_tokens for a in ordered], dtype=np.int64),
    )
