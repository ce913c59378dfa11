"""What a profile is calibrated to: replayed requests, and the figures that were measured of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from tidegate.app.profiles.log import FloatArray, Int64Array, Load


class Metric(StrEnum):
    """What can be measured of a load."""

    TTFT = "ttft"
    TPOT = "tpot"
    ITL = "itl"  # its mean only: each token counts, not each request
    E2E = "e2e"
    LIVE = "live"  # its mean only: requests in one replica, by Little's law


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured figure, and how far a good model may miss it."""

    metric: Metric
    level: float | None  # quantile; None: the mean
    value: float  # seconds; of LIVE requests
    spread_ratio: float  # standard deviation of its relative error
    bounds_s: tuple[float, ...] = ()  # of the histogram it was read off, finite and ascending; empty: exact


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """One load: all of its requests are replayed, those from `first` to before `until` are judged."""

    name: str
    workload: str
    replicas: int
    arrival_s: FloatArray
    prompt_tokens: Int64Array
    output_tokens: Int64Array
    seconds: float  # the judged part lasts
    first: int
    until: int
    figures: tuple[Figure, ...]
    held_out: bool


# (metric, quantile, standard deviation of the relative error). Medians of steps are sharp, tails and waits are not.
FIGURES: tuple[tuple[Metric, float | None, float], ...] = (
    (Metric.TTFT, 0.25, 0.10),
    (Metric.TTFT, 0.50, 0.05),
    (Metric.TTFT, 0.75, 0.10),
    (Metric.TTFT, 0.90, 0.10),
    (Metric.TPOT, 0.50, 0.0125),
    (Metric.TPOT, 0.90, 0.05),
    (Metric.E2E, None, 0.0125),
)
_TRAIN_SHARE = 0.6  # of a workload's only load


def values(metric: Metric, ttft_s: FloatArray, decode_s: FloatArray, output_tokens: Int64Array) -> FloatArray:
    """Return one latency per request; TPOT of answers of two tokens and more only."""
    if metric is Metric.TTFT:
        return ttft_s
    if metric is Metric.E2E:
        return ttft_s + decode_s
    several = output_tokens > 1
    return decode_s[several] / (output_tokens[several] - 1)


def summary(of: FloatArray, level: float | None, bounds_s: Sequence[float] = ()) -> float:
    """Return the mean or a quantile; with bounds the quantile as a histogram with these would show it."""
    if level is None:
        return float(np.mean(of))
    if not bounds_s:
        return float(np.quantile(of, level))
    edges = np.array([0.0, *bounds_s])
    shares = np.searchsorted(np.sort(of), edges, side="right") / len(of)
    return float(read_off(np.array([level]), shares, edges)[0])


def read_off(levels: FloatArray, shares: FloatArray, edges: FloatArray) -> FloatArray:
    """Return quantiles of a histogram, linear inside a bucket; beyond the last edge that edge.

    Args:
        levels: In (0, 1), shape (n,).
        shares: Events at or below each edge, never falling, 0 at the first; shape (edges,).
        edges: Ascending.
    """
    above = np.clip(np.searchsorted(shares, levels, side="left"), 1, len(edges) - 1)
    low, high = shares[above - 1], shares[above]
    inside = np.clip((levels - low) / np.maximum(high - low, 1e-12), 0.0, 1.0)
    found: FloatArray = edges[above - 1] + inside * (edges[above] - edges[above - 1])
    return found


def cases_of(loads: Sequence[Load], *, train: Sequence[str] = ()) -> tuple[Case, ...]:
    """Return one case per load, split into those fitted to and those held out.

    Without `train`, every other load of a workload is held out; a workload with a single load is split in time, the
    first six tenths of its requests to fit to.

    Args:
        loads: As read.
        train: Names of the loads to fit to; every other one is held out.
    """
    found: list[Case] = []
    for workload in dict.fromkeys(load.workload for load in loads):
        of_kind = [load for load in loads if load.workload == workload]
        if len(of_kind) == 1 and not train:
            cut = max(1, int(len(of_kind[0]) * _TRAIN_SHARE))
            found.append(_case(of_kind[0], 0, cut, held_out=False))
            if cut < len(of_kind[0]):
                found.append(_case(of_kind[0], cut, len(of_kind[0]), held_out=True))
            continue
        for place, load in enumerate(of_kind):
            held_out = load.name not in train if train else place % 2 == 1
            found.append(_case(load, 0, len(load), held_out=held_out))
    return tuple(found)


def _case(load: Load, first: int, until: int, *, held_out: bool) -> Case:
    part = slice(first, until)
    return Case(
        name=load.name,
        workload=load.workload,
        replicas=load.replicas,
        arrival_s=load.arrival_s,
        prompt_tokens=load.prompt_tokens,
        output_tokens=load.output_tokens,
        seconds=float(load.arrival_s[until - 1] - load.arrival_s[first]),
        first=first,
        until=until,
        figures=figures_of(load.ttft_s[part], load.decode_s[part], load.output_tokens[part]),
        held_out=held_out,
    )


def figures_of(ttft_s: FloatArray, decode_s: FloatArray, output_tokens: Int64Array) -> tuple[Figure, ...]:
    """Return the figures of measured requests; none of TPOT when every answer has one token."""
    found = []
    for metric, level, spread in FIGURES:
        of = values(metric, ttft_s, decode_s, output_tokens)
        value = summary(of, level) if len(of) else 0.0
        if value > 0.0:
            found.append(Figure(metric=metric, level=level, value=value, spread_ratio=spread))
    return tuple(found)


def modelled(case: Case, ttft_s: FloatArray, decode_s: FloatArray) -> FloatArray:
    """Return the case's figures, in order, of simulated requests; shape (figures,).

    Args:
        case: The case.
        ttft_s: Of all its requests; NaN of one that the engine refused.
        decode_s: Likewise.
    """
    part = np.zeros(len(ttft_s), dtype=bool)
    part[case.first : case.until] = True
    part &= np.isfinite(ttft_s)
    if not part.any():
        return np.full(len(case.figures), np.inf)
    ttft, decode, output = ttft_s[part], decode_s[part], case.output_tokens[part]
    found = []
    for figure in case.figures:
        if figure.metric is Metric.ITL:
            gaps = int(np.sum(output - 1))
            found.append(float(np.sum(decode)) / gaps if gaps else np.inf)
        elif figure.metric is Metric.LIVE:
            found.append(float(np.sum(ttft + decode)) / case.seconds / case.replicas)
        else:
            of = values(figure.metric, ttft, decode, output)
            found.append(summary(of, figure.level, figure.bounds_s) if len(of) else np.inf)
    return np.array(found)


def requests(cases: Iterable[Case]) -> int:
    """Return how many requests are judged."""
    return sum(case.until - case.first for case in cases)
