"""The clairvoyant: it knows every arrival and pays the real cold start and drain, as anybody must.

Its schedule is found by search on the simulator that judges the policies. First the size that a perfect forecast asks
for, with the headroom searched; then replicas are taken out for ten minutes at a time, wherever a simulation of the
surroundings says that it costs the fewest misses, until no more can go without falling under the target. The shares
of requests that may miss are thus spent where they save most. A better schedule may exist; how far the found one is
from the instant bound, which knows no cold start, says how much better at most.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tidegate.baselines.schedule import Schedule
from tidegate.baselines.search import Found, Tried, search
from tidegate.perf.profile import PS_PER_S
from tidegate.sim.policies import Knob, KnobScale
from tidegate.sim.score import BoolArray
from tidegate.sim.trace import Int64Array, Trace
from tidegate.terms.fleet import PoolKey

# A replica is taken out for this long.
BLOCK_S = 600.0
# Load is averaged over this long when a size is asked for; shorter bursts are the queue's business.
SMOOTH_S = 60.0
# Of the believed capacity; the simulator may carry more or less than the formula says.
_HEADROOM = Knob(name="load per replica over its believed capacity", unit="ratio", safe=0.3, thrifty=3.0, default=0.9,
                 scale=KnobScale.LOG)  # fmt: skip
_MOST_PASSES = 24
# A window is played from a block before to two blocks after: queues that a block leaves are gone by then.
_BEFORE, _AFTER = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class OraclePlay:
    """One schedule played."""

    met: BoolArray  # (n,) requests that met every objective
    gpu_hours: float

    @property
    def attainment_ratio(self) -> float:
        """Share of requests that met every objective; 1.0 of none."""
        return float(self.met.mean()) if len(self.met) else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What an oracle stands on: the load, its one pool, and the simulator."""

    trace: Trace
    key: PoolKey
    min_replicas: int
    max_replicas: int
    capacity_per_s: float  # believed, of one replica
    lead_s: float  # the longest cold start
    target_ratio: float
    play: Callable[[Trace, Schedule], OraclePlay]
    step_s: float = 15.0

    def schedule(self, needed: Int64Array) -> Schedule:
        """Return the schedule that has `needed` replicas ready in each step: each ordered a cold start ahead."""
        ahead = int(np.ceil(self.lead_s / self.step_s - 1e-9))
        asked = needed.copy()
        for k in range(1, ahead + 1):
            asked[:-k] = np.maximum(asked[:-k], needed[k:])
        return Schedule(step_s=self.step_s, counts={self.key: tuple(int(n) for n in asked)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """A schedule that reaches the target, and what it took to find it; `schedule` None: out of reach."""

    schedule: Schedule | None
    gpu_hours: float | None
    attainment_ratio: float
    tried: tuple[Tried, ...]
    passes: int = 0
    reason: str | None = None


def sized(ground: Ground, load_ratio: float) -> Int64Array:
    """Return the replicas each step needs when one carries `load_ratio` of its believed capacity, (steps,)."""
    steps = max(1, int(np.ceil((ground.trace.seconds + 1e-9) / ground.step_s)))
    index = np.minimum(ground.trace.arrival_ps // round(ground.step_s * PS_PER_S), steps - 1)
    per_step = np.bincount(index, minlength=steps).astype(np.float64)
    width = max(1, round(SMOOTH_S / ground.step_s))
    smooth = np.convolve(np.pad(per_step, (width // 2, width - 1 - width // 2), mode="edge"), np.ones(width) / width)
    rate = smooth[width - 1 : width - 1 + steps] / ground.step_s
    wanted = np.ceil(rate / (ground.capacity_per_s * load_ratio) - 1e-9).astype(np.int64)
    return np.clip(wanted, max(1, ground.min_replicas), ground.max_replicas)


def perfect_forecast(ground: Ground) -> tuple[Found, Int64Array | None]:
    """Return the search for the load per replica at which a perfect forecast reaches the target, and its sizes."""

    def play(load_ratio: float) -> Tried:
        played = ground.play(ground.trace, ground.schedule(sized(ground, load_ratio)))
        return Tried(setting=load_ratio, attainment_ratio=played.attainment_ratio, gpu_hours=played.gpu_hours)

    found = search(play, _HEADROOM, target_ratio=ground.target_ratio, start=0.5)
    return found, None if found.best is None else sized(ground, found.best.setting)


def clairvoyant(ground: Ground, *, told: Callable[[int], None] = lambda _: None) -> Oracle:
    """Return the cheapest schedule found that reaches the target.

    Args:
        ground: Load, pool and simulator.
        told: Called with the number of each pass of pruning as it begins.
    """
    found, needed = perfect_forecast(ground)
    if needed is None:
        best = max(t.attainment_ratio for t in found.tried)
        return Oracle(schedule=None, gpu_hours=None, attainment_ratio=best, tried=found.tried, reason=found.reason)
    pruner = _Pruner(ground, needed)
    passes = 0
    while passes < _MOST_PASSES:
        told(passes)
        passes += 1
        if not pruner.once():
            break
    return Oracle(
        schedule=ground.schedule(pruner.needed),
        gpu_hours=pruner.played.gpu_hours,
        attainment_ratio=pruner.played.attainment_ratio,
        tried=found.tried,
        passes=passes,
    )


class _Pruner:
    """Takes replicas out, block by block."""

    def __init__(self, ground: Ground, needed: Int64Array) -> None:
        self._ground = ground
        self.needed = needed
        self.played = ground.play(ground.trace, ground.schedule(needed))
        self._per_block = max(1, round(BLOCK_S / ground.step_s))
        self._blocks = -(-len(needed) // self._per_block)
        self._allowed = int((1.0 - ground.target_ratio) * len(ground.trace) + 1e-9)
        self._cost: dict[int, int] = {}  # block -> misses that taking a replica out there adds; gone when it may differ

    def once(self) -> bool:
        """Take out what the misses left allow, the cheapest first; return whether anything went."""
        for block in range(self._blocks):
            if block not in self._cost and (self._without((block,)) != self.needed).any():
                self._cost[block] = self._misses_added(block)
        while chosen := self._choice():
            if self._take(chosen):
                return True
        return False

    def _choice(self) -> list[int]:
        """Return the cheapest blocks that together stay within the misses left."""
        left = self._allowed - int((~self.played.met).sum())
        chosen: list[int] = []
        spent = 0
        for block in sorted(self._cost, key=lambda b: (self._cost[b], b)):
            apart = all(abs(block - other) > 1 for other in chosen)  # neighbours share their queues
            if apart and spent + max(0, self._cost[block]) <= left:
                chosen.append(block)
                spent += max(0, self._cost[block])
        return chosen

    def _take(self, chosen: list[int]) -> bool:
        """Take out the longest beginning of `chosen` that a play of the whole confirms, by halving."""
        while chosen:
            needed = self._without(tuple(chosen))
            played = self._ground.play(self._ground.trace, self._ground.schedule(needed))
            if played.attainment_ratio >= self._ground.target_ratio and played.gpu_hours < self.played.gpu_hours:
                self.needed, self.played = needed, played
                for block in chosen:
                    for near in range(block - _BEFORE - 1, block + _AFTER + 1):
                        self._cost.pop(near, None)
                return True
            if len(chosen) == 1:
                self._cost[chosen[0]] = len(self._ground.trace) + 1  # the whole says no
            chosen = chosen[: len(chosen) // 2]
        return False

    def _without(self, blocks: tuple[int, ...]) -> Int64Array:
        needed = self.needed.copy()
        for block in blocks:
            part = slice(block * self._per_block, (block + 1) * self._per_block)
            needed[part] = np.maximum(needed[part] - 1, max(1, self._ground.min_replicas))
        return needed

    def _misses_added(self, block: int) -> int:
        first = max(0, block - _BEFORE) * self._per_block
        last = min(self._blocks, block + _AFTER + 1) * self._per_block
        part = cut(self._ground.trace, first * self._ground.step_s, last * self._ground.step_s)
        if not len(part):
            return 0
        before, after = (
            int((~self._ground.play(part, self._ground.schedule(needed[first:last])).met).sum())
            for needed in (self.needed, self._without((block,)))
        )
        return after - before


def cut(trace: Trace, from_s: float, to_s: float) -> Trace:
    """Return the requests that arrive in [from_s, to_s), times counted from `from_s`."""
    start_ps, end_ps = round(from_s * PS_PER_S), round(to_s * PS_PER_S)
    a, b = (int(i) for i in np.searchsorted(trace.arrival_ps, [start_ps, end_ps]))
    hashed = trace.hash_block_tokens > 0
    return Trace(
        name=trace.name,
        arrival_ps=trace.arrival_ps[a:b] - start_ps,
        prompt_tokens=trace.prompt_tokens[a:b],
        output_tokens=trace.output_tokens[a:b],
        hash_block_tokens=trace.hash_block_tokens,
        hash_start=trace.hash_start[a : b + 1] - trace.hash_start[a] if hashed else trace.hash_start,
        hashes=trace.hashes[trace.hash_start[a] : trace.hash_start[b]] if hashed else trace.hashes,
        reusable_tokens=trace.reusable_tokens[a:b],
        prefix_id=trace.prefix_id[a:b],
        client=trace.client[a:b],
    )
