"""A capacity model corrected by what the fleet really carried; pure."""

from dataclasses import dataclass

# The correction moves this share of the way per observation, and never leaves these bounds: a plausible profile is
# within a factor of two (design reports put capacity errors of 20-25 % at the knee).
STEP_RATIO = 0.1
MIN_RATIO = 0.5
MAX_RATIO = 1.5
# Waiting requests per replica that count as a queue; one is the scheduler's ordinary breathing.
QUEUE_REQUESTS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one ready replica of a pool that has not changed for a while carried in the observe window, on average."""

    offered_per_s: float  # requests/s arriving per ready replica
    finished_per_s: float  # requests/s per ready replica
    waiting: float  # requests waiting inside the engine, per ready replica
    objectives_held: bool  # every latency objective is known and met
    objective_missed: bool  # at least one latency objective is surely missed


def corrected(ratio: float, evidence: Evidence | None, *, modelled_per_s: float) -> float:
    """Return the new ratio of real to modelled capacity.

    A replica that carries more than believed while every objective holds proves a higher capacity. A replica that
    queues and misses an objective although it is offered less than believed proves a lower one: were it offered more,
    the overload would explain the miss. Anything else proves nothing: an idle fleet says nothing about its limits, so
    the ratio stays (it does not drift back).

    Args:
        ratio: Present ratio, within MIN_RATIO..MAX_RATIO.
        evidence: None when a needed signal is unknown; nothing is learned then.
        modelled_per_s: The profile's capacity at the present lengths, requests/s, > 0.
    """
    if evidence is None or evidence.finished_per_s <= 0.0:
        return ratio
    shown = evidence.finished_per_s / modelled_per_s
    offered = evidence.offered_per_s / modelled_per_s
    proves_more = evidence.objectives_held and shown > ratio
    proves_less = evidence.objective_missed and evidence.waiting >= QUEUE_REQUESTS and max(shown, offered) < ratio
    if not (proves_more or proves_less):
        return ratio
    return min(MAX_RATIO, max(MIN_RATIO, ratio + STEP_RATIO * (shown - ratio)))
