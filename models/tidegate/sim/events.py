"""What goes into one simulated replica and what comes out of each step."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SimRequest:
    """One request. `key` is unique among the requests a replica holds."""

    key: int
    prompt_tokens: int  # >= 1
    output_tokens: int  # >= 1; the replica makes exactly this many
    cached_tokens: int = 0  # leading prompt tokens whose KV a prefix cache already holds; they still occupy KV
    hashes: tuple[int, ...] = ()  # hash blocks of the prompt from its first token on, for a replica with a prefix cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One finished iteration.

    Order in time: `preempted`, then `admitted` (both at `began_at_ps`, each in the order it happened), then `emitted`
    and `finished` (at `ended_at_ps`, oldest running sequence first, decodes before completed prompts).
    """

    began_at_ps: int
    ended_at_ps: int
    decode_tokens: int
    prefill_tokens: int
    preempted: tuple[int, ...]  # back to the head of the queue, KV lost
    admitted: tuple[int, ...]  # got KV and their first chunk, new or returning
    emitted: tuple[int, ...]  # one token each
    finished: tuple[int, ...]  # a part of `emitted`
    loaded_tokens: int = 0  # from tiers below HBM, for those admitted
    stored_tokens: int = 0  # to tiers below HBM, of prompts completed
