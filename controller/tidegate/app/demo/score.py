"""The final table: attainment per request, judged by `sim.outcome` for a live run and a rehearsed one alike.

Replica time runs from the order to the end of the drain.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.sim.outcome import Outcome, attained_ratios, joint_ratio
from tidegate.terms.slo import Slo

QUANTILES = (0.5, 0.95, 0.99)


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


def row(
    name: str,
    how: str,
    outcomes: Sequence[Outcome],
    *,
    slos: Sequence[Slo],
    replica_seconds: float,
    replicas_peak: int,
) -> Row:
    """Return the table line of one run; all ratios are over all requests sent."""
    answered = [o for o in outcomes if o.answered]
    return Row(
        name=name,
        how=how,
        requests=len(outcomes),
        failed=len(outcomes) - len(answered),
        attained_ratio=attained_ratios(outcomes, slos),
        joint_ratio=joint_ratio(outcomes, slos),
        replica_seconds=replica_seconds,
        replicas_peak=replicas_peak,
        ttft_s=_quantiles([o.ttft_s for o in answered if o.ttft_s is not None]),
        tpot_s=_quantiles([o.tpot_s for o in answered if o.tpot_s is not None]),
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
