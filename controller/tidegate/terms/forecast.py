"""What is expected: demand quantiles over the horizon."""

from dataclasses import dataclass
from enum import StrEnum


class Quantity(StrEnum):
    """What is forecast."""

    REQUESTS_PER_S = "requests_per_s"
    PROMPT_TOKENS_PER_S = "prompt_tokens_per_s"
    OUTPUT_TOKENS_PER_S = "output_tokens_per_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Quantiles of one quantity of one service over the next `horizon_s`.

    `values[i][j]` is level `levels[i]` at `step_s * (j + 1)` seconds after `made_at_s`; levels ascend and values
    are non-negative, finite and non-decreasing in i.
    """

    service: str
    quantity: Quantity
    made_at_s: float
    step_s: float
    levels: tuple[float, ...]
    values: tuple[tuple[float, ...], ...]
    method: str  # e.g. "trend+residuals", "last_value"
    reason: str  # why this method, with the sample counts

    @property
    def horizon_s(self) -> float:
        """Seconds covered."""
        return self.step_s * (len(self.values[0]) if self.values else 0)

    def peak(self, level: float) -> float:
        """Return the highest value over the horizon of the lowest level >= `level` (else the highest level)."""
        index = next((i for i, have in enumerate(self.levels) if have >= level), len(self.levels) - 1)
        return max(self.values[index])
