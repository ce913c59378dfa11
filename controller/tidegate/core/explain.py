"""A decision in words: what bound it, with the numbers, and what would have given one replica more or fewer."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tidegate.core.trust import brief
from tidegate.terms.decision import PoolDecision, Reason, ReasonNote, Verdict

HOLD_UNKNOWN = "hold: metrics unknown"

_DEMAND = (Reason.DEMAND_FORECAST, Reason.DEMAND_NOW)
_BLIND = (Reason.STALE_METRICS, Reason.CONTRACT_VIOLATION)
# Notes that never change the number: said at the end.
_ASIDE = (Reason.REPLACE_FAILED, Reason.ADVISE_ONLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """What other input would have changed the number by one; "" when no input would."""

    one_more: str
    one_fewer: str


def sentence(decision: PoolDecision) -> str:
    """Return one sentence: pool, move, and every consideration that changed the number, in the order they spoke.

    Example: "chat/main: grow 1 → 4: forecast p90 of 7.9 requests/s in the next 20 s needs 4 replicas at 2.3 requests/s
    each (limit: tpot); nothing held it back".
    """
    return f"{decision.key}: {_move(decision)}: {'; '.join(_clauses(decision))}"


def counterfactual(decision: PoolDecision) -> Counterfactual:
    """Return the smallest change of one input that would have given one replica more, and one fewer.

    Both are exact for the demand that the note states, all else equal; a limit that bound the number is named before
    the demand, since no demand would have moved it.
    """
    return Counterfactual(one_more=_one_more(decision), one_fewer=_one_fewer(decision))


def _move(decision: PoolDecision) -> str:
    before, asked = decision.asked_before_replicas, decision.asked_replicas
    if decision.verdict is not Verdict.HOLD:
        return f"{decision.verdict} {before} → {asked}"
    if decision.binding in _BLIND:
        return f"{HOLD_UNKNOWN} at {_replicas(asked)}"
    return f"hold at {_replicas(asked)}"


def _clauses(decision: PoolDecision) -> list[str]:
    spoken = [n for n in decision.notes if n.reason not in _ASIDE]
    if decision.verdict is Verdict.HOLD and decision.binding in _BLIND:
        # What other guards would have said is no matter then; the lower bound of the need is.
        spoken = [n for n in spoken if n.reason is decision.binding] + [n for n in spoken if n.reason in _DEMAND]
    clauses = [clause for note in _said_once(spoken) if (clause := _clause(note, decision))]
    restrained = any(n.reason not in _DEMAND and n.before_replicas != n.after_replicas for n in spoken)
    if decision.verdict is Verdict.GROW and not restrained:
        clauses.append("nothing held it back")
    clauses += [_clause(n, decision) for n in decision.notes if n.reason in _ASIDE]
    return clauses or ["no consideration moved it"]


def _said_once(notes: list[ReasonNote]) -> list[ReasonNote]:
    """Return the notes; a first look whose doubts an earlier note has named says them no second time."""
    named = {n.text for n in notes if n.reason in {*_BLIND, Reason.PARTIAL_COVERAGE}}
    repeats = {n for n in notes if n.reason is Reason.NO_OBSERVATION_YET and n.text in named}
    return [replace(n, text="") if n in repeats else n for n in notes]


def _clause(note: ReasonNote, decision: PoolDecision) -> str:
    return _WORDS[note.reason](note, decision)


def _demand(note: ReasonNote, decision: PoolDecision) -> str:
    fact = dict(note.facts)
    each = fact["replica_requests_per_s"] * fact["target_utilisation_ratio"]
    rate = f"{fact['demand_requests_per_s']:.3g} requests/s"
    if note.reason is Reason.DEMAND_FORECAST:
        rate = f"forecast p{100 * fact['quantile']:.4g} of {rate} in the next {fact['horizon_s']:.0f} s"
    else:
        rate = f"present load of {rate}"
    limit = f" (limit: {note.text})" if note.text else ""
    needs = f"{rate} needs {_replicas(note.after_replicas)} at {each:.3g} requests/s each{limit}"
    # The number of a lower bound must not read like the truth.
    return f"at least {needs}" if decision.binding in _BLIND else needs


def _backlog(note: ReasonNote, _: PoolDecision) -> str:
    fact = dict(note.facts)
    waiting = f"{fact['backlog_requests']:.0f} waiting requests to work off in {fact['work_off_s']:.0f} s"
    return f"{waiting} need {_replicas(note.after_replicas)}"


def _slo(note: ReasonNote, _: PoolDecision) -> str:
    return f"{note.text}: one more than the {dict(note.facts)['ready_replicas']:.0f} that are ready"


def _minimum(note: ReasonNote, _: PoolDecision) -> str:
    return f"the minimum is {note.after_replicas}"


def _maximum(note: ReasonNote, _: PoolDecision) -> str:
    return f"the maximum is {note.after_replicas}"


def _rate(note: ReasonNote, _: PoolDecision) -> str:
    direction = "more" if note.after_replicas < note.before_replicas else "fewer"
    return f"at most {dict(note.facts)['limit_replicas']:.0f} {direction} per decision, so {note.after_replicas}"


def _stabilisation(note: ReasonNote, _: PoolDecision) -> str:
    fact = dict(note.facts)
    if "covered_at_s" in fact:
        return f"load has not been watched for a whole window of {fact['window_s']:.0f} s yet, so no shrink"
    most = int(fact["highest_replicas"])
    return f"the most wanted within the last {fact['window_s']:.0f} s was {most}, so {note.after_replicas}"


def _pending(note: ReasonNote, _: PoolDecision) -> str:
    count = int(dict(note.facts)["pending_replicas"])
    if note.before_replicas == note.after_replicas:
        return f"{_replicas(count)} ordered and not ready count as supply"
    return f"{_replicas(count)} ordered and not ready may not replace serving ones, so {note.after_replicas}"


def _draining(note: ReasonNote, _: PoolDecision) -> str:
    return f"{_replicas(int(dict(note.facts)['leaving_replicas']))} still draining, so no further drain"


def _unknown(note: ReasonNote, _: PoolDecision) -> str:
    return brief(note.text) or "nothing is known to size on"


def _partial(note: ReasonNote, _: PoolDecision) -> str:
    return f"not every ready replica reported, so no shrink ({brief(note.text)})"


def _first(note: ReasonNote, _: PoolDecision) -> str:
    return "no valid observation yet" + (f" ({brief(note.text)})" if note.text else "")


def _frozen(note: ReasonNote, _: PoolDecision) -> str:
    return f"frozen by {note.text}"


def _floor(note: ReasonNote, _: PoolDecision) -> str:
    return f"{note.text} asks for at least {note.after_replicas}"


def _budget(note: ReasonNote, _: PoolDecision) -> str:
    return f"the budget admits {note.after_replicas}"


def _failed(note: ReasonNote, _: PoolDecision) -> str:
    return f"{_replicas(int(dict(note.facts)['failed_replicas']))} failed, replacements are ordered"


_WORDS: dict[Reason, Callable[[ReasonNote, PoolDecision], str]] = {
    Reason.DEMAND_FORECAST: _demand,
    Reason.DEMAND_NOW: _demand,
    Reason.BACKLOG: _backlog,
    Reason.SLO_MISSED: _slo,
    Reason.REPLACE_FAILED: _failed,
    Reason.AT_MINIMUM: _minimum,
    Reason.AT_MAXIMUM: _maximum,
    Reason.RATE_LIMIT: _rate,
    Reason.STABILISATION: _stabilisation,
    Reason.PENDING_SUPPLY: _pending,
    Reason.STALE_METRICS: _unknown,
    Reason.PARTIAL_COVERAGE: _partial,
    Reason.NO_OBSERVATION_YET: _first,
    Reason.CONTRACT_VIOLATION: _unknown,
    Reason.FROZEN: _frozen,
    Reason.FLOOR: _floor,
    Reason.BUDGET: _budget,
    Reason.DRAINING: _draining,
    Reason.ADVISE_ONLY: lambda _note, _decision: "advice only, nothing is written",
    Reason.STEADY: lambda _note, _decision: "",
}


def _one_more(decision: PoolDecision) -> str:
    bound = _holding_note(decision)
    target = decision.asked_replicas + 1
    if bound is not None and bound.before_replicas > bound.after_replicas:
        words = {
            Reason.AT_MAXIMUM: f"maxReplicas of {target}",
            Reason.BUDGET: f"a budget for {_replicas(target)}",
            Reason.RATE_LIMIT: "the next decision, if the need stays",
            Reason.FROZEN: "an end of the freeze",
        }
        if bound.reason in words:
            return words[bound.reason]
    if decision.binding is Reason.NO_OBSERVATION_YET:
        return "a first valid observation with more load"
    each = _each(decision)
    return f"demand above {each * decision.asked_replicas:.3g} requests/s" if each else "a capacity and a load signal"


def _one_fewer(decision: PoolDecision) -> str:
    bound = _holding_note(decision)
    target = decision.asked_replicas - 1
    if target < 0:
        return ""
    doubted = [n for n in decision.notes if n.reason in {*_BLIND, Reason.PARTIAL_COVERAGE}]
    if doubted or decision.binding is Reason.NO_OBSERVATION_YET:
        return "every required signal known, fresh and from every ready replica; then, by demand"
    if bound is not None and bound.after_replicas > bound.before_replicas:
        words = {
            Reason.AT_MINIMUM: f"minReplicas of {target}",
            Reason.FLOOR: "an end of the floor",
            Reason.FROZEN: "an end of the freeze",
            Reason.RATE_LIMIT: "the next decision, if the need stays",
            Reason.STABILISATION: "the need staying this low until the window has passed",
            Reason.PENDING_SUPPLY: "the ordered replicas being ready",
            Reason.DRAINING: "the drain under way having ended",
        }
        if bound.reason in words:
            return words[bound.reason]
    each = _each(decision)
    if not each or target < 1:
        return "no demand at all" if each else "a capacity and a load signal"
    also = " and no backlog" if any(n.reason is Reason.BACKLOG for n in decision.notes) else ""
    also += " and the objectives met" if any(n.reason is Reason.SLO_MISSED for n in decision.notes) else ""
    return f"demand of at most {each * target:.3g} requests/s{also}"


def _holding_note(decision: PoolDecision) -> ReasonNote | None:
    """Return the last guard that changed the number."""
    needs = {*_DEMAND, Reason.BACKLOG, Reason.SLO_MISSED, *_ASIDE}
    spoke = [n for n in decision.notes if n.before_replicas != n.after_replicas and n.reason not in needs]
    return spoke[-1] if spoke else None


def _each(decision: PoolDecision) -> float:
    """Return what one replica is planned to carry, requests/s; 0 when no demand was known."""
    note = next((n for n in decision.notes if n.reason in _DEMAND), None)
    if note is None:
        return 0.0
    fact = dict(note.facts)
    return fact["replica_requests_per_s"] * fact["target_utilisation_ratio"]


def _replicas(count: int) -> str:
    return f"{count} replica" if count == 1 else f"{count} replicas"
