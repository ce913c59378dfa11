"""A law that knows beforehand what it will ask for: what oracles and histories are played by."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.baselines.law import LawMemory, PoolFacts, Proposal, pool_law, staged
from tidegate.sim.policies import Contender, PolicyFn, Wants
from tidegate.terms.decision import Reason
from tidegate.terms.fleet import PoolKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Replica counts by time, one row a pool: count i is asked for from `i * step_s` on, the last one for good."""

    step_s: float
    counts: Mapping[PoolKey, tuple[int, ...]]

    def at(self, key: PoolKey, now_s: float) -> int:
        """Return the pool's count at a moment."""
        counts = self.counts[key]
        return counts[min(len(counts) - 1, max(0, int(now_s / self.step_s + 1e-9)))]


def scheduled(schedule: Schedule) -> PolicyFn[LawMemory[int]]:
    """Return the law that asks for what the schedule says, within each pool's bounds."""

    def rule(facts: PoolFacts, kept: int | None) -> tuple[Proposal, int]:
        asked = schedule.at(facts.pool.key, facts.now_s)
        before = facts.asked if kept is None else kept
        notes = staged((Reason.STEADY, before), (Reason.DEMAND_NOW, asked))
        return Proposal(asked=asked, wanted=asked, notes=notes), asked

    return pool_law(rule)


def schedule_contender(name: str, schedule: Schedule, setting: float | None = None) -> Contender:
    """Return the schedule ready to run; it reads nothing, and acts at each of its steps."""
    first = max(counts[0] for counts in schedule.counts.values())
    step_s = max(15.0, schedule.step_s)
    return Contender(
        name=name,
        law=scheduled(schedule),
        start=LawMemory(),
        wants=Wants(period_s=schedule.step_s, scrape_interval_s=step_s, rate_window_s=4.0 * step_s, rates=False),
        setting=setting,
        initial_replicas=first,
    )
