"""One tick as data: what the journal writes, the page shows and a replay reads."""

from dataclasses import dataclass

from tidegate.terms.capacity import PoolCapacity
from tidegate.terms.decision import Decision, Memory
from tidegate.terms.forecast import Forecast
from tidegate.terms.observation import Observation
from tidegate.terms.plan import Receipt
from tidegate.terms.policy import ServicePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class TickInputs:
    """All arguments of `core.decide`, in its order."""

    observation: Observation
    forecasts: tuple[Forecast, ...]
    capacity: tuple[PoolCapacity, ...]
    policies: tuple[ServicePolicy, ...]
    memory: Memory
    now_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TickRecord:
    """A decision with everything it was made from and what came of it."""

    inputs: TickInputs
    decision: Decision
    memory_after: Memory
    receipts: tuple[Receipt, ...] = ()  # of the steps carried out since the decision before
