"""The robust rule: replicas for the highest load of the last half hour, at a target utilisation.

Grows at once, shrinks half an hour after a peak. An unknown load adds nothing to the window; with nothing in the
window it holds.
"""

from dataclasses import dataclass

from tidegate.baselines.figures import HEADROOM
from tidegate.baselines.last_value import PERIOD_S, arrivals_of, for_load, per_replica_of, utilisation_knob
from tidegate.baselines.law import LawMemory, PoolFacts, Proposal, held, pool_law
from tidegate.sim.policies import Contender, Rival, Wants, World

WINDOW_S = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """The samples (time, requests/s) that are or may become the window's highest: oldest first, ever lower."""

    samples: tuple[tuple[float, float], ...] = ()

    def with_sample(self, load_per_s: float | None, *, now_s: float) -> "Peaks":
        """Return the peaks after a sample, None when there was none; those a window old are dropped."""
        recent = [s for s in self.samples if s[0] > now_s - WINDOW_S]
        if load_per_s is not None:
            while recent and recent[-1][1] <= load_per_s:
                recent.pop()
            recent.append((now_s, load_per_s))
        return Peaks(samples=tuple(recent))


def _make(world: World, setting: float | None) -> Contender:
    chosen = HEADROOM if setting is None else setting
    per_replica = per_replica_of(world, chosen)

    def rule(facts: PoolFacts, kept: Peaks | None) -> tuple[Proposal, Peaks]:
        peaks = (kept or Peaks()).with_sample(arrivals_of(facts), now_s=facts.now_s)
        if not peaks.samples:
            return held(facts), peaks
        return for_load(peaks.samples[0][1], per_replica[facts.pool.key]), peaks

    return Contender(
        name="window-max", law=pool_law(rule), start=LawMemory(), wants=Wants(period_s=PERIOD_S), setting=chosen
    )


RIVALS = (
    Rival(
        name="window-max",
        summary="replicas for the highest requests/s of the last 30 minutes, at a target utilisation",
        source="a moving maximum; N = ceil(max load / (utilisation * capacity))",
        knob=utilisation_knob,
        make=_make,
    ),
)
