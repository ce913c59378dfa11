"""What restrains a proposal, in one fixed order.

1. `bounds`: minimum, maximum, freeze, floor and budget. Certain, so they win over everything, at once.
2. `rate`: at most so many replicas a decision.
3. `stabilisation`: shrink only to the most that was wanted within the window.
4. `pending`: what is ordered counts as supply and is never removed; one drain at a time.
5. `stale`: shrink only on signals that can be believed.
6. `hold`: nothing moves before the first valid observation.

Each guard takes (proposal, context) and returns the number it lets through with a note when it had a say. After the
bounds a guard can only bring the number nearer to what was asked before, within the bounds.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tidegate.core.supply import Supply
from tidegate.core.trust import Doubt, words_on
from tidegate.core.window import Window
from tidegate.terms.decision import Reason, ReasonNote

Guarded = tuple[int, ReasonNote | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One certain limit: numbers outside least..most are moved to its edge."""

    reason: Reason
    least_replicas: int
    most_replicas: int
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """All that the guards of one pool may look at."""

    supply: Supply
    wanted_replicas: int | None
    bounds: tuple[Bound, ...]  # in order of strength, the strongest last
    max_grow_replicas: int
    max_shrink_replicas: int
    window: Window
    doubts: tuple[Doubt, ...]
    ever_observed: bool

    @property
    def before(self) -> int:
        """The number asked before, moved inside the bounds: what every hold means."""
        return self.inside(self.supply.asked_before_replicas)

    def inside(self, replicas: int) -> int:
        """Return `replicas` moved inside all bounds."""
        for bound in self.bounds:
            replicas = min(max(replicas, bound.least_replicas), bound.most_replicas)
        return replicas


def bounds(proposal: int, context: Context) -> Guarded:
    """Return the proposal moved inside every bound; the note is the last bound that moved it."""
    note: ReasonNote | None = None
    replicas = proposal
    for bound in context.bounds:
        moved = min(max(replicas, bound.least_replicas), bound.most_replicas)
        if moved != replicas:
            limit = bound.most_replicas if moved < replicas else bound.least_replicas
            note = _note(bound.reason, proposal, moved, ("limit_replicas", float(limit)), text=bound.text)
        replicas = moved
    # A chain of bounds may push up and down again to where it began: then none of them had a say.
    return replicas, note if replicas != proposal else None


def rate(proposal: int, context: Context) -> Guarded:
    """Return the proposal no farther from the number asked before than one decision may move."""
    before = context.before
    most, least = before + context.max_grow_replicas, before - context.max_shrink_replicas
    moved = context.inside(min(max(proposal, least), most))
    if moved == proposal:
        return proposal, None
    limit = context.max_grow_replicas if moved < proposal else context.max_shrink_replicas
    return moved, _note(Reason.RATE_LIMIT, proposal, moved, ("limit_replicas", float(limit)))


def stabilisation(proposal: int, context: Context) -> Guarded:
    """Return a shrink cut back to the most wanted within the window; no shrink before the window was watched once."""
    before, window = context.before, context.window
    if proposal >= before:
        return proposal, None
    most = before if not window.covered else max(proposal, window.highest_replicas or 0)
    moved = context.inside(min(most, before))
    if moved == proposal:
        return proposal, None
    facts = [("window_s", window.length_s), ("highest_replicas", float(window.highest_replicas or 0))]
    if not window.covered:
        facts.append(("covered_at_s", window.covered_at_s))
    return moved, _note(Reason.STABILISATION, proposal, moved, *facts)


def pending(proposal: int, context: Context) -> Guarded:
    """Return a shrink that takes ready replicas only, and no second drain while one is under way.

    Worked example: 4 asked, 2 ready, 2 starting, 3 wanted. Going to 3 would drain one of the two that serve; so
    the target (3) must be met by ready replicas, and the two that start stay on top: hold at 4.
    """
    before, supply = context.before, context.supply
    if proposal >= before:
        return proposal, None
    target = context.inside(max(context.wanted_replicas or 0, context.window.highest_replicas or 0))
    ordered = context.inside(min(before, max(proposal, target + supply.pending_replicas)))
    may_leave = max(0, context.max_shrink_replicas - supply.leaving_replicas)
    moved = context.inside(min(before, max(ordered, before - may_leave)))
    if moved == proposal:
        return proposal, None
    if moved > ordered:
        return moved, _note(Reason.DRAINING, proposal, moved, ("leaving_replicas", float(supply.leaving_replicas)))
    return moved, _note(Reason.PENDING_SUPPLY, proposal, moved, ("pending_replicas", float(supply.pending_replicas)))


def stale(proposal: int, context: Context) -> Guarded:
    """Return no shrink while any required signal is in doubt; says so, too, when nothing is known to size on."""
    if not context.doubts or (proposal >= context.before and context.wanted_replicas is not None):
        return proposal, None
    return _held(max(proposal, context.before), proposal, context)


def hold(proposal: int, context: Context) -> Guarded:
    """Return the number asked before until a first valid observation was made."""
    if context.ever_observed:
        return proposal, None
    return context.before, _note(Reason.NO_OBSERVATION_YET, proposal, context.before, text=words_on(context.doubts))


ORDER: tuple[Callable[[int, Context], Guarded], ...] = (bounds, rate, stabilisation, pending, stale, hold)


def restrain(proposal: int, context: Context) -> tuple[int, tuple[ReasonNote, ...]]:
    """Return the number after all guards in `ORDER`, and their notes in that order."""
    notes: list[ReasonNote] = []
    replicas = proposal
    for guard in ORDER:
        replicas, note = guard(replicas, context)
        notes += [note] if note is not None else []
    return replicas, tuple(notes)


def worst(doubts: tuple[Doubt, ...]) -> Reason:
    """Return the doubt's reason that tells an operator most: a broken contract, then blindness, then coverage."""
    ranks = (Reason.CONTRACT_VIOLATION, Reason.STALE_METRICS, Reason.PARTIAL_COVERAGE)
    return min((d.reason for d in doubts), key=ranks.index)


def _held(moved: int, proposal: int, context: Context) -> Guarded:
    text = words_on(context.doubts)
    return moved, _note(worst(context.doubts), proposal, moved, ("doubts", float(len(context.doubts))), text=text)


def _note(reason: Reason, before: int, after: int, *facts: tuple[str, float], text: str = "") -> ReasonNote:
    return ReasonNote(reason=reason, before_replicas=before, after_replicas=after, facts=facts, text=text)
