"""The two decisions of NVIDIA's planner in its SLA mode: what forecast demand needs, and what each engine shows.

The first divides demand by a capacity at full utilisation; backlog is no part of it. The second adds one replica only
when every engine would miss the limit, and takes one away only when the survivors, given its work, would stay under
`sensitivity` of it. Counts are ready replicas throughout.

Source: NVIDIA Dynamo planner 1.6.1, throughput and load scaling (Apache-2.0), re-implemented.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.baselines.dynamo_engine import (
    EngineCapacity,
    EngineLimits,
    EngineLoad,
    ForwardPass,
    aggregated_capacity,
    decode_capacity,
    next_itl_s,
    next_ttft_s,
    prefill_capacity,
)
from tidegate.terms.fleet import Role

MAX_STEP = 8  # replicas one forecast may add or take


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The SLA, as means."""

    ttft_s: float = 0.5
    itl_s: float = 0.05
    sensitivity_ratio: float = 0.8  # of a limit, that survivors must stay under


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The next window's load; a length of 0 is one never seen."""

    requests_per_s: float
    prompt_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One role's engine: believed pass time and limits."""

    role: Role
    forward: ForwardPass
    limits: EngineLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Mean lengths of the next request; 0 when none was ever seen."""

    prompt_tokens: float
    output_tokens: float


def capacity_of(engine: Engine, expected: Expected, limits: Limits) -> EngineCapacity | None:
    """Return what one engine carries at the expected lengths; None when the model is not ready."""
    forward, bounds, prompt, output = engine.forward, engine.limits, expected.prompt_tokens, expected.output_tokens
    if engine.role is Role.PREFILL:
        return prefill_capacity(forward, bounds, prompt_tokens=prompt, ttft_s=limits.ttft_s)
    if engine.role is Role.DECODE:
        return decode_capacity(forward, bounds, prompt_tokens=prompt, output_tokens=output, itl_s=limits.itl_s)
    return aggregated_capacity(
        forward, bounds, prompt_tokens=prompt, output_tokens=output, ttft_s=limits.ttft_s, itl_s=limits.itl_s
    )


def for_demand(
    engines: Sequence[Engine], expected: Expected, limits: Limits, *, ready: Sequence[int], floor: int
) -> tuple[tuple[int, ...], bool]:
    """Return the count of each role for the expected load, before the budget, and whether the model was ready.

    If one role's engine cannot be sized, all stay. A move is at most MAX_STEP; the floor comes last.
    """
    found = [capacity_of(engine, expected, limits) for engine in engines]
    counts = list(ready)
    is_ready = all(capacity is not None for capacity in found)
    if is_ready:
        counts = [
            max(floor, math.ceil(expected.requests_per_s / capacity.requests_per_s))
            for capacity in found
            if capacity is not None
        ]
    bounded = [min(max(want, 0, now - MAX_STEP), now + MAX_STEP) for want, now in zip(counts, ready, strict=True)]
    return tuple(max(floor, want) for want in bounded), is_ready


def for_load(
    engine: Engine, loads: Sequence[EngineLoad], shape: Shape, limits: Limits, *, floor: int, pending: int = 0
) -> int | None:
    """Return one role's count from what each of its ready engines holds; None for no change.

    `loads` has one entry per ready replica, >= 1.
    """
    if engine.role is Role.PREFILL:
        return _plus_minus(_prefill_view(engine, loads, shape, limits), len(loads), floor=floor, pending=pending)
    if engine.role is Role.DECODE:
        return _plus_minus(_decode_view(engine, loads, shape, limits), len(loads), floor=floor, pending=pending)
    return _aggregated(engine, loads, shape, limits, floor=floor, pending=pending)


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """What one limit says: whether all engines miss it, and whether the survivors of a removal would keep it."""

    all_over: bool
    removable: bool


def _plus_minus(view: _View, ready: int, *, floor: int, pending: int) -> int | None:
    if view.all_over:
        return ready + 1
    if view.removable and (ready > 1 or pending > 0):
        return max(ready - 1, floor)
    return None


def _aggregated(
    engine: Engine, loads: Sequence[EngineLoad], shape: Shape, limits: Limits, *, floor: int, pending: int
) -> int | None:
    """Up when either limit says up, down only when both do."""
    views = (_aggregated_ttft(engine, loads, shape, limits), _aggregated_itl(engine, loads, shape, limits))
    wanted = [_plus_minus(view, len(loads), floor=floor, pending=pending) for view in views]
    if any(view.all_over for view in views):
        return len(loads) + 1
    known = [w for w in wanted if w is not None]
    return max(known) if len(known) == len(views) else None


def _prefill_view(engine: Engine, loads: Sequence[EngineLoad], shape: Shape, limits: Limits) -> _View:
    def ttft(load: EngineLoad, factor: float) -> float:
        return next_ttft_s(engine.forward, engine.limits, load, prompt_tokens=shape.prompt_tokens, queue_factor=factor)

    fewer = _consolidation(len(loads))
    removable = True
    for load in loads:
        own = ttft(load, 0.0)
        room = (limits.ttft_s - own) * limits.sensitivity_ratio
        removable = removable and room > 0.0 and ttft(load, fewer) - own < room
    return _View(all_over=all(ttft(load, 1.0) > limits.ttft_s for load in loads), removable=removable)


def _decode_view(engine: Engine, loads: Sequence[EngineLoad], shape: Shape, limits: Limits) -> _View:
    fewer = _consolidation(len(loads))
    now, after, fits = [], [], []
    for load in loads:
        context = _mean_context(load, shape)
        now.append(next_itl_s(engine.forward, load, context_tokens=context))
        after.append(next_itl_s(engine.forward, load, context_tokens=context, decode_factor=fewer))
        held = load.context_tokens + load.queued_context_tokens
        fits.append(int(held * fewer) < engine.limits.kv_tokens)
    under = all(itl < limits.itl_s * limits.sensitivity_ratio for itl in after)
    return _View(all_over=all(itl > limits.itl_s for itl in now), removable=under and all(fits))


def _aggregated_ttft(engine: Engine, loads: Sequence[EngineLoad], shape: Shape, limits: Limits) -> _View:
    def ttft(load: EngineLoad, *, queue: float, decode: float, queued: bool) -> float:
        return next_ttft_s(
            engine.forward,
            engine.limits,
            load,
            prompt_tokens=shape.prompt_tokens,
            queue_factor=queue,
            decode_factor=decode,
            beside_decodes=True,
            queued_decodes=queued,
        )

    fewer = _consolidation(len(loads))
    removable = True
    for load in loads:
        own = ttft(load, queue=0.0, decode=fewer, queued=True)
        room = (limits.ttft_s - own) * limits.sensitivity_ratio
        removable = removable and room > 0.0 and ttft(load, queue=fewer, decode=fewer, queued=True) - own < room
    over = all(ttft(load, queue=1.0, decode=1.0, queued=False) > limits.ttft_s for load in loads)
    return _View(all_over=over, removable=removable)


def _aggregated_itl(engine: Engine, loads: Sequence[EngineLoad], shape: Shape, limits: Limits) -> _View:
    fewer = _consolidation(len(loads))
    now, after, fits = [], [], []
    for load in loads:
        context, beside = _mean_context(load, shape), _beside(engine, load, shape)
        now.append(next_itl_s(engine.forward, load, context_tokens=context, prefill_tokens=beside))
        after.append(
            next_itl_s(
                engine.forward,
                load,
                context_tokens=context,
                decode_factor=fewer,
                prefill_tokens=beside,
                queued_prompts=True,
            )
        )
        held = load.context_tokens + load.queued_context_tokens + load.queued_prompt_tokens
        fits.append(int(held * fewer) < engine.limits.kv_tokens)
    under = all(itl < limits.itl_s * limits.sensitivity_ratio for itl in after)
    return _View(all_over=all(itl > limits.itl_s for itl in now), removable=under and all(fits))


def _beside(engine: Engine, load: EngineLoad, shape: Shape) -> int:
    """Return the prompt tokens of a typical pass: in balance with the answers, as no per-pass record is kept here."""
    if shape.output_tokens <= 0.0:
        return 0
    balanced = math.ceil(load.decoding * shape.prompt_tokens / shape.output_tokens)
    return min(engine.limits.token_budget, balanced)


def _mean_context(load: EngineLoad, shape: Shape) -> float:
    """Return the KV of a mean decoding request: of those in the engine, else by the mean lengths."""
    if load.decoding > 0.0:
        return load.context_tokens / load.decoding
    return shape.prompt_tokens + shape.output_tokens / 2.0 if shape.prompt_tokens > 0.0 else 0.0


def _consolidation(ready: int) -> float:
    return ready / (ready - 1) if ready > 1 else 1.0
