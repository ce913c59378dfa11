"""Matched attainment of one policy over all seeds: `baselines.search` on the median of their plays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegate.app.rehearse.document import FrontierPoint
from tidegate.app.rehearse.findings import Match, Play, median_of
from tidegate.baselines.search import Tried, place, search
from tidegate.sim.policies import Knob

PlayAt = Callable[[float], tuple[Play, ...]]  # a setting, under every seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """What a search came to."""

    match: Match
    frontier: tuple[FrontierPoint, ...]


def matched(knob: Knob, play: PlayAt, *, target_ratio: float, default: tuple[Play, ...]) -> Matching:
    """Return the cheapest setting whose median attainment over the seeds reaches the target.

    Args:
        knob: Its range and scale.
        play: Plays a setting.
        target_ratio: Share of requests, (0, 1).
        default: Plays of the default setting, where the search begins.
    """
    plays = {} if default[0].setting is None else {default[0].setting: default}

    def once(setting: float) -> Tried:
        if setting not in plays:
            plays[setting] = play(setting)
        figures = median_of([p.figures for p in plays[setting]])
        return Tried(setting=setting, attainment_ratio=figures.attainment_ratio, gpu_hours=figures.gpu_hours)

    found = search(once, knob, target_ratio=target_ratio, start=place(knob, knob.default))
    match = Match(reason=found.reason) if found.best is None else Match(plays=plays[found.best.setting])
    return Matching(match=match, frontier=tuple(_point(p) for p in plays.values()))


def unsearched(plays: Sequence[Play]) -> Matching:
    """Return what is known of a policy whose knob was not to be searched."""
    return Matching(match=Match(reason="its setting was not searched (--no-match)"), frontier=(_point(plays),))


def as_set(plays: Sequence[Play], *, target_ratio: float) -> Matching:
    """Return what a policy without a knob comes to: it reaches the target as it is, or not at all."""
    point = _point(plays)
    if point.attainment_ratio >= target_ratio:
        return Matching(match=Match(plays=tuple(plays)), frontier=(point,))
    said = f"it has no knob, and reaches {100 * point.attainment_ratio:.2f} %"
    return Matching(match=Match(reason=said), frontier=(point,))


def _point(plays: Sequence[Play]) -> FrontierPoint:
    figures = median_of([p.figures for p in plays])
    return FrontierPoint(
        setting=plays[0].setting, attainment_ratio=figures.attainment_ratio, gpu_hours=figures.gpu_hours
    )
