"""NVIDIA Dynamo's planner 1.6 in SLA mode: forecast demand, per-engine load, or both, under a budget.

Throughput: every 180 s the requests and mean lengths of the next window are forecast and divided by one engine's
capacity. Load: every 5 s one replica more or less from what each engine holds. Hybrid: the load loop acts and the
forecast is its floor. All three hold while replicas start, but may cancel those starting once the wish has lasted for
two decisions. A window without a request count is skipped; a mean length that cannot be read counts as 0 and makes the
model not ready, which holds. An engine that does not report stops the load loop.

Aggregated pools are planned one by one with equal shares of the load; a prefill and a decode pool are planned together.
Prefix hits are not read: no discount. The pass time is that of the believed profile, as after the planner's own
bootstrap benchmark; it does not learn from passes.

Source: NVIDIA Dynamo planner 1.6.1 (Apache-2.0), re-implemented and checked against values from running it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tidegate.baselines.dynamo_budget import Band, Side, fit_pair, guard_pair, guard_single
from tidegate.baselines.dynamo_decide import Engine, Expected, Limits, Shape, for_demand, for_load
from tidegate.baselines.dynamo_engine import EngineLoad
from tidegate.baselines.dynamo_forecast import Forecasting, Series, forecast, seen
from tidegate.baselines.law import PoolFacts, Proposal, ServiceRule, number_of, staged
from tidegate.terms.decision import Reason
from tidegate.terms.fleet import PoolKey, ReplicaState, Role
from tidegate.terms.observation import ReplicaObservation

THROUGHPUT_S = 180.0
LOAD_S = 5.0
_PERSISTS = 2  # decisions a wish to cancel starting replicas must last


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one planner is configured."""

    throughput: bool
    load: bool
    forecasting: Forecasting
    limits: Limits
    band: Band
    floor: int = 1  # min_endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What one planner remembers."""

    requests: Series
    prompt: Series
    output: Series
    last_prompt_tokens: float = 0.0
    last_output_tokens: float = 0.0
    next_forecast_s: float
    floors: tuple[int, ...] = ()  # by role, from the last forecast; empty before it
    cancelling: int = 0  # decisions in a row that wished to cancel


Kept = tuple[tuple[PoolKey, Planned], ...]  # by the planner's first pool


def planner_rule(settings: Settings, engines: Mapping[PoolKey, Engine]) -> ServiceRule[Kept]:
    """Return the law for one service; engines by pool."""

    def rule(pools: tuple[PoolFacts, ...], before: Kept | None) -> tuple[tuple[Proposal, ...], Kept]:
        known = dict(before or ())
        asked: dict[PoolKey, Proposal] = {}
        after: list[tuple[PoolKey, Planned]] = []
        planners = _planners(pools)
        for planner in planners:
            first = planner[0].pool.key
            share = 1.0 / len(planners)
            own = _Tick(settings, planner, [engines[f.pool.key] for f in planner], share)
            proposals, planned = own.run(known.get(first))
            asked |= {f.pool.key: p for f, p in zip(planner, proposals, strict=True)}
            after.append((first, planned))
        rest = Proposal(asked=0, wanted=None, notes=())
        return tuple(asked.get(f.pool.key, replace(rest, asked=f.asked)) for f in pools), tuple(after)

    return rule


def _planners(pools: Sequence[PoolFacts]) -> list[tuple[PoolFacts, ...]]:
    """Return the pools each planner owns: one aggregated, or a prefill with a decode pool; one left over has none."""
    alone: list[tuple[PoolFacts, ...]] = [(f,) for f in pools if f.pool.role is Role.AGGREGATED]
    prefill = [f for f in pools if f.pool.role is Role.PREFILL]
    decode = [f for f in pools if f.pool.role is Role.DECODE]
    return alone or list(zip(prefill, decode, strict=False))


class _Tick:
    """One planner at one moment."""

    def __init__(self, settings: Settings, pools: tuple[PoolFacts, ...], engines: list[Engine], share: float) -> None:
        self._settings = settings
        self._pools = pools
        self._engines = engines
        self._share = share
        self._ready = tuple(f.ready for f in pools)
        self._starting = tuple(f.starting for f in pools)
        self._sides = tuple(Side(gpus=f.pool.gpus_per_replica, least=settings.floor) for f in pools)
        self._now_s = pools[0].now_s
        self._wanted: tuple[int | None, ...] = tuple(None for _ in pools)

    def run(self, before: Planned | None) -> tuple[list[Proposal], Planned]:
        kept = before or self._fresh()
        targets: tuple[int, ...] | None = None
        if self._settings.throughput and self._now_s >= kept.next_forecast_s - 1e-6:
            kept, targets = self._forecast(replace(kept, next_forecast_s=kept.next_forecast_s + THROUGHPUT_S))
        if self._settings.load:
            kept = self._remember_lengths(kept)
            targets = self._by_load(kept)
        if any(self._starting):
            targets, kept = self._while_starting(targets, kept)
        else:
            kept = replace(kept, cancelling=0)
        return self._proposals(targets), kept

    def _fresh(self) -> Planned:
        empty = Series(kind=self._settings.forecasting)
        # Alone it is called once a window, the first time at the end of one.
        first_s = self._now_s + (THROUGHPUT_S if self._settings.load else 0.0)
        return Planned(requests=empty, prompt=empty, output=empty, next_forecast_s=first_s)

    def _forecast(self, kept: Planned) -> tuple[Planned, tuple[int, ...] | None]:
        """Return the forecasts with one more window, and the counts they call for; None when nothing is to be done."""
        served = self._pools[0].served
        per_s = number_of(served.arrivals_per_s) if served else None
        if served is None or per_s is None:
            return kept, None
        requests = per_s * self._share * THROUGHPUT_S
        kept = self._remember_lengths(kept)
        prompt, output = number_of(served.prompt_tokens_mean) or 0.0, number_of(served.output_tokens_mean) or 0.0
        if requests == 0.0 and kept.requests.count:  # an idle window has no lengths: the last ones stand
            prompt, output = kept.last_prompt_tokens, kept.last_output_tokens
        kept = replace(
            kept,
            requests=seen(kept.requests, requests),
            prompt=seen(kept.prompt, prompt),
            output=seen(kept.output, output),
        )
        expected = Expected(
            requests_per_s=forecast(kept.requests) / THROUGHPUT_S,
            prompt_tokens=forecast(kept.prompt),
            output_tokens=forecast(kept.output),
        )
        counts, ready = for_demand(
            self._engines, expected, self._settings.limits, ready=self._ready, floor=self._settings.floor
        )
        if ready:
            self._wanted = counts
        if self._settings.load:
            return replace(kept, floors=self._under_ceiling(counts)), None
        return kept, counts if any(self._starting) else self._guarded(self._under_ceiling(counts))

    def _remember_lengths(self, kept: Planned) -> Planned:
        served = self._pools[0].served
        prompt = number_of(served.prompt_tokens_mean) if served else None
        output = number_of(served.output_tokens_mean) if served else None
        return replace(
            kept,
            last_prompt_tokens=prompt or kept.last_prompt_tokens,
            last_output_tokens=output or kept.last_output_tokens,
        )

    def _by_load(self, kept: Planned) -> tuple[int, ...] | None:
        """Return the counts the engines' loads call for; None when a replica does not report or nothing changes."""
        loads = [_loads(facts) for facts in self._pools]
        if any(found is None for found in loads) or not any(self._ready):
            return None
        shape = Shape(prompt_tokens=kept.last_prompt_tokens, output_tokens=kept.last_output_tokens)
        counts: list[int] = []
        idle = True
        for engine, found, ready, starting in zip(self._engines, loads, self._ready, self._starting, strict=True):
            wanted = None
            if found:
                wanted = for_load(
                    engine, found, shape, self._settings.limits, floor=self._settings.floor, pending=starting
                )
            if starting and wanted is not None and wanted > ready:
                wanted = None  # what starts is on its way; an up is no reason to cancel it either
            idle = idle and wanted is None
            counts.append(ready if wanted is None else wanted)
        if any(self._starting) and idle:
            return None
        lifted = tuple(max(c, f) for c, f in zip(counts, kept.floors or (0,) * len(counts), strict=True))
        floored = tuple(max(self._settings.floor, c) for c in lifted)
        self._wanted = floored
        if any(self._starting):
            return floored
        if lifted != tuple(counts):
            floored = self._under_ceiling(floored)
        return self._guarded(floored)

    def _while_starting(self, targets: tuple[int, ...] | None, kept: Planned) -> tuple[tuple[int, ...] | None, Planned]:
        """Return only reductions that end replicas still starting, once wished for long enough."""
        cut = [
            f.existing if t > f.ready or t >= f.existing else t
            for f, t in zip(self._pools, targets or tuple(f.existing for f in self._pools), strict=True)
        ]
        if all(c == f.existing for c, f in zip(cut, self._pools, strict=True)):
            return None, replace(kept, cancelling=0)
        lasted = kept.cancelling + 1
        return (tuple(cut) if lasted >= _PERSISTS else None), replace(kept, cancelling=lasted)

    def _under_ceiling(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        band = Band(most=self._settings.band.most)
        if len(counts) == 1:
            return (guard_single(self._ready[0], counts[0], self._sides[0], band),)
        now, proposed = (self._ready[0], self._ready[1]), (counts[0], counts[1])
        return fit_pair(now, proposed, self._sides[0], self._sides[1], band)

    def _guarded(self, counts: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the counts under the budget; None when nothing changes."""
        band = self._settings.band
        if len(counts) == 1:
            final: tuple[int, ...] = (guard_single(self._ready[0], counts[0], self._sides[0], band),)
        else:
            now, proposed = (self._ready[0], self._ready[1]), (counts[0], counts[1])
            final = guard_pair(now, proposed, self._sides[0], self._sides[1], band)
        return None if final == self._ready else final

    def _proposals(self, targets: tuple[int, ...] | None) -> list[Proposal]:
        made = []
        for index, facts in enumerate(self._pools):
            asked = facts.asked if targets is None else targets[index]
            wanted = self._wanted[index]
            notes = staged((Reason.DEMAND_NOW if wanted is not None else Reason.STEADY, asked))
            made.append(Proposal(asked=asked, wanted=wanted, notes=notes))
        return made


def _loads(facts: PoolFacts) -> list[EngineLoad] | None:
    """Return what each ready engine holds; None as soon as one does not report."""
    members = facts.seen.replicas if facts.seen else ()
    found = [_load(facts, r) for r in members if r.replica.state is ReplicaState.READY]
    known = [load for load in found if load is not None]
    return known if len(known) == len(found) == facts.ready else None


def _load(facts: PoolFacts, replica: ReplicaObservation) -> EngineLoad | None:
    if replica.engine is None:
        return None
    prompts, context = number_of(replica.engine.waiting_prompt_tokens), number_of(replica.engine.context_tokens)
    running, waiting = number_of(replica.running_requests), number_of(replica.waiting_requests)
    if prompts is None or context is None or running is None or waiting is None:
        return None
    if facts.pool.role is Role.PREFILL:
        return EngineLoad(queued_prompt_tokens=prompts)
    if facts.pool.role is Role.AGGREGATED:
        return EngineLoad(queued_prompt_tokens=prompts, decoding=running, context_tokens=context)
    # What waits to decode has its prompt's KV already; its size is that of those that run.
    each = context / running if running > 0.0 else 0.0
    return EngineLoad(
        decoding=running, context_tokens=context, queued_decodes=waiting, queued_context_tokens=waiting * each
    )
