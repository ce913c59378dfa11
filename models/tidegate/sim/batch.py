"""What a replica works on: its sequences, the step being planned and the step in progress. All change in place."""

from dataclasses import dataclass

from tidegate.sim.events import SimRequest


class Sequence:
    """A request in the replica. Mutable: it changes every step."""

    __slots__ = ("blocks", "generated", "gone", "held", "hits", "prefill_left", "request", "shared")

    def __init__(self, request: SimRequest) -> None:
        self.request = request
        self.generated = 0
        self.held = 0  # tokens whose KV is in memory
        self.blocks = 0  # shared ones included
        self.hits = 0  # hash blocks found in HBM at admission
        self.shared: list[int] = []  # hash blocks it refers to
        self.prefill_left = 0  # tokens still to compute before the next one can be emitted
        self.gone = False  # finished or aborted


@dataclass(slots=True, kw_only=True)
class Flight:
    """The step in progress."""

    began_at_ps: int
    ends_at_ps: int
    decodes: int
    prefill_tokens: int
    preempted: tuple[int, ...]
    admitted: tuple[int, ...]
    emitters: list[Sequence]
    loaded_tokens: int
    stored_tokens: int


class Plan:
    """The step being planned."""

    __slots__ = (
        "admitted",
        "budget",
        "chunks",
        "double_pairs",
        "emitters",
        "loaded_tokens",
        "preempted",
        "stored_tokens",
        "tiers_ps",
    )

    def __init__(self, budget: int) -> None:
        self.budget = budget  # tokens left
        self.emitters: list[Sequence] = []
        self.preempted: list[int] = []
        self.admitted: list[int] = []
        self.chunks = 0
        self.double_pairs = 0
        self.loaded_tokens = 0
        self.stored_tokens = 0
        self.tiers_ps = 0  # loads and stores
