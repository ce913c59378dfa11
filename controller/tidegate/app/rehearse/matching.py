"""The setting of a policy's knob that reaches the target at the least GPU time, found by playing it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidegate.app.rehearse.document import FrontierPoint
from tidegate.app.rehearse.findings import Match, Play, median_of
from tidegate.sim.policies import Knob, KnobScale

# Settings from the safest to the thriftiest end that are always played, and halvings of the stretch that matters.
COARSE = 6
REFINEMENTS = 4

PlayAt = Callable[[float], tuple[Play, ...]]  # a setting, under every seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search came to."""

    match: Match
    frontier: tuple[FrontierPoint, ...]


@dataclass(slots=True, kw_only=True)
class _Tried:
    """Plays by place on the knob: 0 is the safe end, 1 the thrifty one."""

    knob: Knob
    play: PlayAt
    target_ratio: float
    plays: dict[float, tuple[Play, ...]] = field(default_factory=dict)  # by setting

    def at(self, place: float) -> float:
        """Play the setting at a place, unless it was played; return the setting."""
        setting = setting_at(self.knob, place)
        if setting not in self.plays:
            self.plays[setting] = self.play(setting)
        return setting

    def reaches(self, setting: float) -> bool:
        return median_of([p.figures for p in self.plays[setting]]).attainment_ratio >= self.target_ratio

    def gpu_hours(self, setting: float) -> float:
        return median_of([p.figures for p in self.plays[setting]]).gpu_hours


def search(knob: Knob, play: PlayAt, *, target_ratio: float, default: tuple[Play, ...] = ()) -> Found:
    """Return the cheapest setting whose median attainment over the seeds reaches the target.

    Evenly spread settings are played first, since attainment need not fall evenly along a knob; then the stretch
    between the cheapest one that reaches the target and its thriftier neighbour is halved.

    Args:
        knob: Its range and scale.
        play: Plays a setting.
        target_ratio: Share of requests, (0, 1).
        default: Plays of the default setting, when there are any: a point more.
    """
    tried = _Tried(knob=knob, play=play, target_ratio=target_ratio)
    if default and default[0].setting is not None:
        tried.plays[default[0].setting] = default
    places = {place: tried.at(place) for place in (i / (COARSE - 1) for i in range(COARSE))}
    good = [p for p, s in places.items() if tried.reaches(s)]
    if good:
        low = min(good, key=lambda p: tried.gpu_hours(places[p]))
        high = min((p for p in places if p > low), default=low)
        for _ in range(REFINEMENTS):
            middle = (low + high) / 2
            low, high = (middle, high) if tried.reaches(tried.at(middle)) else (low, middle)
    return Found(match=_match(tried), frontier=_frontier(tried))


def _match(tried: _Tried) -> Match:
    reaching = [s for s in tried.plays if tried.reaches(s)]
    if reaching:
        return Match(plays=tried.plays[min(reaching, key=tried.gpu_hours)])
    most = max(median_of([p.figures for p in plays]).attainment_ratio for plays in tried.plays.values())
    knob = tried.knob
    return Match(
        reason=f"{100 * most:.2f} % is the most its {knob.name} reaches between {knob.safe:g} and {knob.thrifty:g}"
    )


def _frontier(tried: _Tried) -> tuple[FrontierPoint, ...]:
    return tuple(_point(plays) for plays in tried.plays.values())


def setting_at(knob: Knob, place: float) -> float:
    """Return the setting at a place from 0 (safe) to 1 (thrifty)."""
    if knob.scale is KnobScale.LOG:
        low, high = math.log(knob.safe), math.log(knob.thrifty)
        return math.exp(low + place * (high - low))
    setting = knob.safe + place * (knob.thrifty - knob.safe)
    return float(round(setting)) if knob.scale is KnobScale.INTEGER else setting


def unsearched(plays: Sequence[Play]) -> Found:
    """Return what is known of a policy whose knob was not to be searched."""
    return Found(match=Match(reason="its setting was not searched (--no-match)"), frontier=(_point(plays),))


def as_set(plays: Sequence[Play], *, target_ratio: float) -> Found:
    """Return what a policy without a knob comes to: it reaches the target as it is, or not at all."""
    point = _point(plays)
    if point.attainment_ratio >= target_ratio:
        return Found(match=Match(plays=tuple(plays)), frontier=(point,))
    said = f"it has no knob, and reaches {100 * point.attainment_ratio:.2f} %"
    return Found(match=Match(reason=said), frontier=(point,))


def _point(plays: Sequence[Play]) -> FrontierPoint:
    figures = median_of([p.figures for p in plays])
    return FrontierPoint(
        setting=plays[0].setting, attainment_ratio=figures.attainment_ratio, gpu_hours=figures.gpu_hours
    )
