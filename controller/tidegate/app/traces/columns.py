"""Columns that grow while a file is read, and become a trace."""

from array import array

import numpy as np

from tidegate.app.traces.blocks import Blocks
from tidegate.app.traces.problem import MAX_REQUESTS
from tidegate.sim.trace import Int64Array, Trace

OPTIONAL = ("prefix_id", "reusable_tokens", "client")


class Columns:
    """A trace under construction; eight bytes a value."""

    def __init__(self, *, block_tokens: int, optional: tuple[str, ...] = (), hashed: bool = False) -> None:
        self.arrival_ps = array("q")
        self.prompt_tokens = array("q")
        self.output_tokens = array("q")
        self.optional = {name: array("q") for name in optional}
        self.blocks = Blocks(block_tokens) if hashed else None

    def __len__(self) -> int:
        return len(self.arrival_ps)

    @property
    def full(self) -> bool:
        """Whether the file holds more requests than can be rehearsed at once."""
        return len(self) > MAX_REQUESTS

    def extend(self, arrival_ps: Int64Array, prompt: Int64Array, output: Int64Array) -> None:
        """Append many rows of the required columns."""
        for into, values in (
            (self.arrival_ps, arrival_ps),
            (self.prompt_tokens, prompt),
            (self.output_tokens, output),
        ):
            into.frombytes(np.ascontiguousarray(values, dtype=np.int64).tobytes())

    def extend_optional(self, name: str, values: Int64Array) -> None:
        """Append many rows of one optional column."""
        self.optional[name].frombytes(np.ascontiguousarray(values, dtype=np.int64).tobytes())

    def trace(self, name: str) -> Trace:
        """Return the trace; shares memory with these columns, which must not grow afterwards."""
        more = {field: np.frombuffer(values, dtype=np.int64) for field, values in self.optional.items()}
        block_tokens = 0
        if self.blocks is not None:
            more["hash_start"], more["hashes"] = self.blocks.columns()
            block_tokens = self.blocks.block_tokens
        return Trace(
            name=name,
            arrival_ps=np.frombuffer(self.arrival_ps, dtype=np.int64),
            prompt_tokens=np.frombuffer(self.prompt_tokens, dtype=np.int64),
            output_tokens=np.frombuffer(self.output_tokens, dtype=np.int64),
            hash_block_tokens=block_tokens,
            **more,
        )
