"""Ordered, idempotent steps that carry a decision out: warm, shift, drain, shrink."""

from dataclasses import dataclass
from enum import StrEnum

from tidegate.terms.fleet import PoolKey


class StepKind(StrEnum):
    """Kinds of step, in the only order they may appear for one pool."""

    WARM = "warm"  # start one replica
    SHIFT = "shift"  # take the replica out of the gateway's endpoints
    DRAIN = "drain"  # let it finish what it has
    SHRINK = "shrink"  # remove it
    CLEAR = "clear"  # remove what is left of a failed replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step on one replica. Doing it twice does no more than once."""

    kind: StepKind
    pool: PoolKey
    replica: str
    node: str = ""  # for WARM: where placement put it


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What came of a step. A refusal is retried by the next plan, never inside the core."""

    step: Step
    accepted: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps in the order they must be started; `refused` holds what was wanted and has no place, with the reason."""

    decision_sequence: int
    steps: tuple[Step, ...]
    refused: tuple[Receipt, ...] = ()
