"""The load of a rehearsal: who asks for what, and when."""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One request reaching the gateway `at_s` seconds after the start."""

    at_s: float
    prompt_tokens: int  # >= 1
    output_tokens: int  # >= 1


def in_order(arrivals: Iterable[Arrival]) -> tuple[Arrival, ...]:
    """Return the arrivals by time, those of one instant in the order given.

    Raises:
        ValueError: A time that is negative or not finite, or a token count under 1.
    """
    every = list(arrivals)
    for index, one in enumerate(every):
        if not math.isfinite(one.at_s) or one.at_s < 0.0 or one.prompt_tokens < 1 or one.output_tokens < 1:
            msg = f"arrival {index}: at_s must be finite and >= 0, tokens >= 1, got {one}"
            raise ValueError(msg)
    return tuple(sorted(every, key=lambda a: a.at_s))


def steady(*, requests_per_s: float, seconds: float, prompt_tokens: int, output_tokens: int) -> tuple[Arrival, ...]:
    """Return evenly spaced requests of one size: the simplest load whose answer can be worked out by hand."""
    count = int(requests_per_s * seconds)
    return tuple(
        Arrival(at_s=i / requests_per_s, prompt_tokens=prompt_tokens, output_tokens=output_tokens) for i in range(count)
    )
