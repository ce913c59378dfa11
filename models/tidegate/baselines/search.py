"""Matched attainment: the cheapest setting of a law's knob that still reaches the target.

Policies of different courage cannot be compared by cost, nor by attainment; at one attainment they can, by cost alone.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from tidegate.sim.policies import Knob, KnobScale

# A knob is searched in few plays, since each may replay a day.
MOST_PLAYS = 7
# A whole-numbered knob is searched to the end: the best static size is what all others are measured by.
MOST_WHOLE_PLAYS = 16
# Two settings whose GPU time differs by less are the same.
CLOSE_RATIO = 0.007
_FIRST_STEP = 0.18  # of the knob's range
_LEAST_MISS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One setting that was played."""

    setting: float
    attainment_ratio: float
    gpu_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search came to: the cheapest setting that reaches the target, or why there is none."""

    tried: tuple[Tried, ...]  # in the order played
    best: Tried | None
    reason: str | None = None


def place(knob: Knob, setting: float) -> float:
    """Return where a setting lies in the knob's range: 0 at the safe end, 1 at the thrifty one."""
    if knob.scale is KnobScale.LOG:
        return math.log(setting / knob.safe) / math.log(knob.thrifty / knob.safe)
    return (setting - knob.safe) / (knob.thrifty - knob.safe)


def setting_at(knob: Knob, at: float) -> float:
    """Return the setting at a place of the range, 0 to 1."""
    if knob.scale is KnobScale.LOG:
        return float(knob.safe * (knob.thrifty / knob.safe) ** at)
    setting = knob.safe + (knob.thrifty - knob.safe) * at
    return float(round(setting)) if knob.scale is KnobScale.INTEGER else setting


def search(
    play: Callable[[float], Tried], knob: Knob, *, target_ratio: float, start: float, most_plays: int | None = None
) -> Found:
    """Return the cheapest setting found whose attainment is at least the target.

    From `start` (0 to 1 in the range) in steps that double until the target is crossed, then between the two by
    interpolating the logarithm of the share of misses. A law need not be monotonic: the answer is the cheapest of all
    that was played and reached the target.

    Args:
        play: Plays one setting.
        knob: The knob; its ends must differ.
        target_ratio: Attainment to reach, (0, 1].
        start: Where to begin.
        most_plays: Plays at most, >= 2; None: `MOST_PLAYS`, or `MOST_WHOLE_PLAYS` of a whole-numbered knob.
    """
    usual = MOST_WHOLE_PLAYS if knob.scale is KnobScale.INTEGER else MOST_PLAYS
    seen = _Seen(play, knob, target_ratio=target_ratio, most_plays=most_plays or usual)
    at = min(1.0, max(0.0, start))
    good = seen.at(at)
    # A whole number begins near its answer: a fleet of half the size would drown, and take long to play.
    step = 1.0 / abs(knob.thrifty - knob.safe) if knob.scale is KnobScale.INTEGER else _FIRST_STEP
    edge = at
    while not seen.full and (edge < 1.0 if good else edge > 0.0):
        at, edge = edge, min(1.0, edge + step) if good else max(0.0, edge - step)
        step *= 2.0
        if seen.at(edge) is not good:
            seen.narrow(*((at, edge) if good else (edge, at)))
            break
    return seen.found()


class _Seen:
    """The plays so far."""

    def __init__(self, play: Callable[[float], Tried], knob: Knob, *, target_ratio: float, most_plays: int) -> None:
        self._play = play
        self._knob = knob
        self._target = target_ratio
        self._most = most_plays
        self._by_setting: dict[float, Tried] = {}

    @property
    def full(self) -> bool:
        return len(self._by_setting) >= self._most

    def _at(self, at: float) -> Tried:
        setting = setting_at(self._knob, at)
        if setting not in self._by_setting:
            self._by_setting[setting] = self._play(setting)
        return self._by_setting[setting]

    def at(self, at: float) -> bool:
        """Return whether the setting at a place reaches the target."""
        return self._at(at).attainment_ratio >= self._target

    def narrow(self, safe: float, thrifty: float) -> None:
        """Close in between a place that reaches the target and one beyond it that does not.

        By false position, the Illinois way: an end that stays twice counts half (Dowell and Jarratt, "A modified regula
        falsi method for computing the root of an equation", 1971).
        """
        above, below = self._over(safe), self._over(thrifty)
        last: bool | None = None
        while not self.full:
            good, bad = self._at(safe), self._at(thrifty)
            if abs(good.gpu_hours - bad.gpu_hours) <= CLOSE_RATIO * good.gpu_hours:
                return
            middle = safe + (thrifty - safe) * _share(above, below)
            if setting_at(self._knob, middle) in (good.setting, bad.setting):
                middle = (safe + thrifty) / 2.0
                if setting_at(self._knob, middle) in (good.setting, bad.setting):
                    return  # neighbours of a whole-numbered knob
            reached = self.at(middle)
            if reached:
                safe, above, below = middle, self._over(middle), below / 2.0 if last is True else below
            else:
                thrifty, above, below = middle, above / 2.0 if last is False else above, self._over(middle)
            last = reached

    def _over(self, at: float) -> float:
        """Return how far a place lies over the target, in logarithms of the share of misses; under it: negative."""
        have, want = (max(_LEAST_MISS, 1.0 - r) for r in (self._at(at).attainment_ratio, self._target))
        return math.log(want / have)

    def found(self) -> Found:
        """Return what came of it."""
        tried = tuple(self._by_setting.values())
        reached = [t for t in tried if t.attainment_ratio >= self._target]
        if reached:
            return Found(tried=tried, best=min(reached, key=lambda t: (t.gpu_hours, t.setting)))
        best = max(tried, key=lambda t: t.attainment_ratio)
        why = (
            f"{self._knob.name} {best.setting:.4g} attains {100.0 * best.attainment_ratio:.2f} %, the most of all tried"
        )
        return Found(tried=tried, best=None, reason=f"out of reach: {why}")


def _share(above: float, below: float) -> float:
    """Return where between two places to play next, of which one is over the target and one under it.

    Never so near an end that a play teaches nothing, and a little on the good side of the guess: an answer has to reach
    the target, so a play on the other side is only half as good.
    """
    guess = above / (above - below) if above > below else 0.5
    return min(0.9, max(0.1, 0.95 * guess))
