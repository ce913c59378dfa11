"""A load series as pulled from Prometheus: samples on a step grid, gaps simply missing."""

from dataclasses import dataclass

from tidegate.terms.forecast import Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Past values of one quantity of one service.

    `samples` are (Unix time, value), oldest first, on multiples of `step_s`; a step without a valid sample is absent
    from the tuple (a gap is unknown, never zero load). Values are finite and >= 0.
    """

    service: str
    quantity: Quantity
    step_s: float
    samples: tuple[tuple[float, float], ...]
    source: str
