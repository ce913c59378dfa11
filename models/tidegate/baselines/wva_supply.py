"""What WVA V2 takes a replica to hold and to be asked for, in tokens.

A replica's capacity is the lower of two: 0.8 of its KV cache, and what it was seen to hold when requests queued (or, as
long as none did, what its batch limits allow). The second is a stock read at one moment, so a queue at low KV use is
learned as a tiny capacity; that is the behaviour as found.

Source: llm-d Workload Variant Autoscaler 0.9, saturation analyser V2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

KV_THRESHOLD = 0.80
QUEUE_THRESHOLD = 5.0
_ROLLING = 10  # samples of the mean of what was held while queueing
_SHORT_TOKENS, _MEDIUM_TOKENS = 100.0, 500.0  # answer lengths that share a history


class _Bucket(StrEnum):
    SHORT = "short"
    MEDIUM = "medium"
    LONG = "long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Mean tokens of a request, both > 0."""

    prompt: float
    output: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A replica's limits as its command line gives them."""

    token_budget: int = 8192
    max_sequences: int = 256
    kv_tokens: int | None = None  # for a variant nothing was ever read of


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Shares of supply at which variants are added and may be removed."""

    scale_up: float = 0.85
    scale_down: float = 0.70


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaReading:
    """One replica over the last minute."""

    kv_used_ratio: float
    queue: float
    kv_tokens: float | None  # its KV cache; None: not read


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantKept:
    """What was learned of a variant."""

    kv_tokens: float | None = None  # last KV cache read
    per_replica: int | None = None  # last capacity of a live replica
    held: tuple[tuple[str, tuple[float, ...]], ...] = ()  # per answer length: tokens held while queueing


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """One variant at one tick."""

    per_replica: int | None  # tokens, > 0; None: nothing known
    demand_tokens: float
    read: int  # replicas with a usable reading
    kept: VariantKept


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayQueue:
    """Requests held before any replica."""

    size: float
    lengths: Lengths | None


def supply_of(
    readings: Sequence[ReplicaReading],
    lengths: Lengths | None,
    limits: Limits,
    kept: VariantKept,
    thresholds: Thresholds,  # noqa: ARG001  (the shares apply to sums, not to one variant)
    *,
    prefill: bool,
) -> Supply:
    """Return a variant's capacity per replica and its demand, and what was learned."""
    held = dict(kept.held)
    bucket = _bucket(lengths)
    capacities: list[float] = []
    demand = 0.0
    for reading in readings:
        tokens = reading.kv_tokens
        stored = tokens is None
        if tokens is None:
            if kept.kv_tokens is None:
                continue  # nothing stored: the replica does not exist for this tick
            tokens = kept.kv_tokens * KV_THRESHOLD
        in_use = reading.kv_used_ratio * tokens
        by_memory = tokens if stored else tokens * KV_THRESHOLD
        if reading.queue >= QUEUE_THRESHOLD and in_use > 0.0:
            held[bucket] = (*held.get(bucket, ()), in_use)[-_ROLLING:]
            by_compute = in_use
        else:
            by_compute = _by_compute(held.get(bucket, ()), lengths, limits, by_memory)
        capacities.append(min(by_memory, by_compute))
        demand += in_use + reading.queue * _request_tokens(lengths, prefill=prefill)
    per_replica = int(median(capacities)) if capacities else None
    seen = [r.kv_tokens for r in readings if r.kv_tokens is not None]
    after = VariantKept(
        kv_tokens=seen[-1] if seen else kept.kv_tokens,
        per_replica=per_replica or kept.per_replica,
        held=tuple(sorted(held.items())),
    )
    known = per_replica or kept.per_replica or _derived(lengths, limits)
    return Supply(per_replica=known, demand_tokens=demand, read=len(capacities), kept=after)


def needs(
    demand_tokens: float, ready_tokens: float, anticipated_tokens: float, thresholds: Thresholds
) -> tuple[float, float]:
    """Return the tokens missing from ready and pending supply, and those that ready supply has to spare."""
    required = max(0.0, demand_tokens / thresholds.scale_up - anticipated_tokens)
    spare = max(0.0, ready_tokens - demand_tokens / thresholds.scale_down)
    return required, spare


def gateway_tokens(queue: GatewayQueue, *, prefill: bool) -> float:
    """Return the tokens that requests held at the gateway will need of one role; 0 when lengths are unknown."""
    return queue.size * _request_tokens(queue.lengths, prefill=prefill)


def _request_tokens(lengths: Lengths | None, *, prefill: bool) -> float:
    if lengths is None:
        return 0.0
    return lengths.prompt if prefill else lengths.prompt + lengths.output


def _bucket(lengths: Lengths | None) -> _Bucket:
    output = lengths.output if lengths else 0.0
    if output < _SHORT_TOKENS:
        return _Bucket.SHORT
    return _Bucket.MEDIUM if output < _MEDIUM_TOKENS else _Bucket.LONG


def _by_compute(held: Sequence[float], lengths: Lengths | None, limits: Limits, by_memory: float) -> float:
    mean = sum(held) / len(held) if held else 0.0
    if mean > 0.0:
        return mean
    return by_memory if lengths is None else _batch_tokens(lengths, limits)


def _batch_tokens(lengths: Lengths, limits: Limits) -> float:
    """Return the tokens of the largest batch whose prompts keep up with its answers."""
    batch = limits.token_budget * lengths.output / (lengths.prompt + lengths.output)
    return min(batch, float(limits.max_sequences)) * (lengths.prompt + lengths.output / 2.0)


def _derived(lengths: Lengths | None, limits: Limits) -> int | None:
    bounds = [limits.kv_tokens * KV_THRESHOLD] if limits.kv_tokens is not None else []
    if lengths is not None:
        bounds.append(_batch_tokens(lengths, limits))
    return int(min(bounds)) if bounds and min(bounds) >= 1.0 else None
