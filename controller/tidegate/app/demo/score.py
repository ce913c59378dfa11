"""Attainment per request, the same for a live run and a rehearsed one.

A request that was refused, cut or never answered misses every objective; an answer of one token meets TPOT (it has no
second token to be late). Replica time runs from the order to the end of the drain.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.app.demo.load import Answer, Outcome
from tidegate.terms.slo import Indicator, Slo

QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTimes:
    """What one request saw; None where it never came that far."""

    ttft_s: float | None
    tpot_s: float | None  # None also for one-token answers
    e2e_s: float | None
    output_tokens: int
    answered: bool  # whole answer received


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the final table."""

    name: str
    how: str  # "live" or "rehearsed"
    requests: int
    failed: int
    attained_ratio: tuple[tuple[str, float], ...]  # per objective, in policy order
    joint_ratio: float  # all latency objectives of a request met together
    replica_seconds: float
    replicas_peak: int
    ttft_s: tuple[float, ...]  # at QUANTILES, of answered requests
    tpot_s: tuple[float, ...]


def times_of(answers: Sequence[Answer]) -> tuple[RequestTimes, ...]:
    """Return the client-side times of a live run."""
    return tuple(
        RequestTimes(
            ttft_s=a.ttft_s,
            tpot_s=a.tpot_s,
            e2e_s=a.finished_s - a.sent_s,
            output_tokens=a.output_tokens,
            answered=a.outcome is Outcome.DONE,
        )
        for a in answers
    )


def met(times: RequestTimes, slo: Slo) -> bool:
    """Return whether one request met one objective."""
    if not times.answered:
        return False
    if slo.indicator is Indicator.AVAILABILITY or slo.threshold_s is None:
        return True
    if slo.indicator is Indicator.TTFT:
        return times.ttft_s is not None and times.ttft_s <= slo.threshold_s
    if slo.indicator is Indicator.E2E:
        return times.e2e_s is not None and times.e2e_s <= slo.threshold_s
    return times.output_tokens <= 1 or (times.tpot_s is not None and times.tpot_s <= slo.threshold_s)


def row(
    name: str,
    how: str,
    times: Sequence[RequestTimes],
    *,
    slos: Sequence[Slo],
    replica_seconds: float,
    replicas_peak: int,
) -> Row:
    """Return the table line of one run; all ratios are over all requests sent."""
    total = max(1, len(times))
    return Row(
        name=name,
        how=how,
        requests=len(times),
        failed=sum(not t.answered for t in times),
        attained_ratio=tuple((slo.name, sum(met(t, slo) for t in times) / total) for slo in slos),
        joint_ratio=sum(all(met(t, slo) for slo in slos) for t in times) / total,
        replica_seconds=replica_seconds,
        replicas_peak=replicas_peak,
        ttft_s=_quantiles([t.ttft_s for t in times if t.answered and t.ttft_s is not None]),
        tpot_s=_quantiles([t.tpot_s for t in times if t.answered and t.tpot_s is not None]),
    )


def _quantiles(values: Sequence[float]) -> tuple[float, ...]:
    if not values:
        return ()
    return tuple(float(q) for q in np.quantile(np.asarray(values), QUANTILES))


def cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the heading and one line of texts per row; the first row names the objectives."""
    slo_names = [name for name, _ in rows[0].attained_ratio]
    head = [
        "policy", "run", "requests", "failed", *(f"{n} met" for n in slo_names), "all met",
        "replica-s", "peak", "TTFT p50/p95/p99 s", "TPOT p50/p95/p99 ms",
    ]  # fmt: skip
    body = [
        [
            r.name,
            r.how,
            str(r.requests),
            str(r.failed),
            *(f"{100 * ratio:.2f} %" for _, ratio in r.attained_ratio),
            f"{100 * r.joint_ratio:.2f} %",
            f"{r.replica_seconds:.0f}",
            str(r.replicas_peak),
            " / ".join(f"{v:.2f}" for v in r.ttft_s) or "none answered",
            " / ".join(f"{1000 * v:.0f}" for v in r.tpot_s) or "none answered",
        ]
        for r in rows
    ]
    return head, body


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a plain text table."""
    head, body = cells(rows)
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in [head, *body]]
    lines.insert(1, "-" * max(len(line) for line in lines))
    return "\n".join(lines)
