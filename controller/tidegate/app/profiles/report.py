"""What a calibration found, how far off it is, and whether it may be used."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.app.profiles.calibrate import Calibration, Found, Row
from tidegate.app.profiles.cases import Case, Figure, Metric, requests
from tidegate.app.profiles.reuse import Reuse
from tidegate.perf.profile import EngineProfile
from tidegate.perf.steptime import step_ps

MOST_IDLE_RATIO = 1.6  # between engine versions; accelerators and models differ by two and more
MOST_COMPUTE_RATIO = 1.7
LEAST_REQUESTS = 100  # to fit to, and to hold out
# Names of the figures that are shown.
SHOWN: tuple[tuple[str, Metric, float | None], ...] = (
    ("TTFT p50", Metric.TTFT, 0.5),
    ("TTFT p90", Metric.TTFT, 0.9),
    ("TTFT mean", Metric.TTFT, None),
    ("TPOT p50", Metric.TPOT, 0.5),
    ("TPOT mean", Metric.TPOT, None),
    ("ITL mean", Metric.ITL, None),
    ("E2E mean", Metric.E2E, None),
    ("LIVE mean", Metric.LIVE, None),
)
# Mean error over the loads held out beyond which a profile is refused. The simulator is within 2 % (TPOT, E2E) and 15 %
# (TTFT) where it holds; several times as much is another engine, another routing or a fleet past its knee.
MOST_ERROR_RATIO: Mapping[str, float] = {
    "TTFT p50": 0.30,
    "TTFT p90": 0.30,
    "TTFT mean": 0.30,
    "TPOT p50": 0.10,
    "TPOT mean": 0.10,
    "ITL mean": 0.10,
    "E2E mean": 0.10,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Errors of one figure over several loads."""

    figure: str
    loads: int
    mean_error_ratio: float  # of the absolute relative errors
    largest_error_ratio: float
    bias_ratio: float  # mean with its sign; + is a model that is too slow


def summaries(rows: Iterable[Row]) -> tuple[Summary, ...]:
    """Return one summary per shown figure that was measured, in order."""
    kept = list(rows)
    found = []
    for name, metric, level in SHOWN:
        errors = np.array([e for r in kept if (e := r.error_ratio(metric, level)) is not None])
        if len(errors):
            found.append(
                Summary(
                    figure=name,
                    loads=len(errors),
                    mean_error_ratio=float(np.mean(np.abs(errors))),
                    largest_error_ratio=float(np.max(np.abs(errors))),
                    bias_ratio=float(np.mean(errors)),
                )
            )
    return tuple(found)


def shortages(cases: Sequence[Case]) -> tuple[str, ...]:
    """Return why the cases are too few to fit to; empty when they are enough."""
    found = []
    for held_out, what in ((False, "to fit to"), (True, "to hold out")):
        count = requests(c for c in cases if c.held_out is held_out)
        if count < LEAST_REQUESTS:
            found.append(f"{count} requests {what}, need {LEAST_REQUESTS}")
    return tuple(found)


def refusals(of: Calibration, prior: EngineProfile) -> tuple[str, ...]:
    """Return why the calibration must not be used; empty when it may."""
    found = _strange(of.profile, prior)
    found += [f"{f.name} ran into the end of its range, {_number(f.value)} {f.unit}" for f in of.found if f.at_bound]
    refused = sum(row.refused for row in of.rows)
    if refused:
        found.append(
            f"{refused} requests do not fit the modelled engine (longest {of.profile.longest_request_tokens} tokens)"
        )
    for one in summaries(row for row in of.rows if row.case.held_out):
        most = MOST_ERROR_RATIO.get(one.figure)
        if most is not None and not one.mean_error_ratio <= most:
            off = f"{one.figure} is off by {one.mean_error_ratio:.1%} on average on the loads held out"
            found.append(f"{off}, more than {most:.0%}")
    return tuple(found)


def _strange(profile: EngineProfile, prior: EngineProfile) -> list[str]:
    """Return what is so far from the prior that one of them is of something else.

    A few free numbers can bend a wrong prior to any one log, and then say nothing of the next.
    """
    found = []
    what = "another model, accelerator, degree or number of replicas?"
    idle, before = (step_ps(p, tokens=1, kv_read_tokens=0, double_pairs=0, sequences=1) for p in (profile, prior))
    if not 1.0 / MOST_IDLE_RATIO <= idle / before <= MOST_IDLE_RATIO:
        found.append(
            f"an idle step takes {idle / 1e9:.1f} ms, {idle / before:.2g} times the {before / 1e9:.1f} ms of "
            f"{prior.name}: {what}"
        )
    factor = profile.compute_factor_ratio / prior.compute_factor_ratio
    if not 1.0 / MOST_COMPUTE_RATIO <= factor <= MOST_COMPUTE_RATIO:
        found.append(f"computing a token takes {factor:.2g} times as long as in {prior.name}: {what}")
    return found


def found_lines(of: Calibration) -> list[str]:
    """Return the calibrated numbers as lines."""
    lines = [f"{f.name}: {_number(f.value)} {f.unit}{_told(f)} (before: {_number(f.prior)})" for f in of.found]
    for workload, reuse in of.reuse.items():
        lines.append(f"prefix reuse{f' of {workload}' if workload else ''}: {reuse}")
    return lines


def _told(found: Found) -> str:
    return f" ± {_number(found.spread)}" if found.told else " (the data do not tell)"


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000.0 else f"{value:.0f}"  # noqa: PLR2004


def row_table(rows: Sequence[Row]) -> list[str]:
    """Return one line per load: what was measured, and how far off the model is."""
    columns = [s for s in SHOWN if any(_measured(row.case.figures, s[1], s[2]) for row in rows)]
    cells = [["LOAD", "USE", "REQUESTS", *(name for name, _, _ in columns)]]
    for row in rows:
        count = row.case.until - row.case.first
        line = [row.case.name, "held out" if row.case.held_out else "fitted", str(count)]
        for _, metric, level in columns:
            error = row.error_ratio(metric, level)
            figure = _measured(row.case.figures, metric, level)
            line.append("-" if error is None or figure is None else f"{_shown(figure)} {error:+.1%}")
        cells.append(line)
    return aligned(cells)


def _shown(figure: Figure) -> str:
    return f"{figure.value:.2f}" if figure.metric is Metric.LIVE else f"{figure.value * 1e3:.1f} ms"


def _measured(figures: Sequence[Figure], metric: Metric, level: float | None) -> Figure | None:
    return next((f for f in figures if f.metric is metric and f.level == level), None)


def summary_table(rows: Sequence[Row]) -> list[str]:
    """Return mean, largest and signed error of each figure, for the loads fitted to and those held out."""
    cells = [["USE", "FIGURE", "LOADS", "MEAN ERROR", "LARGEST", "BIAS"]]
    for held_out, use in ((False, "fitted"), (True, "held out")):
        cells += [
            [
                use,
                one.figure,
                str(one.loads),
                f"{one.mean_error_ratio:.1%}",
                f"{one.largest_error_ratio:.1%}",
                f"{one.bias_ratio:+.1%}",
            ]
            for one in summaries(row for row in rows if row.case.held_out is held_out)
        ]
    return aligned(cells)


def aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines with aligned columns."""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]


def document(of: Calibration, refused: Sequence[str]) -> dict[str, object]:
    """Return all of it for JSON."""
    return {
        "profile": of.profile.name,
        "refused": list(refused),
        "found": [
            {"name": f.name, "unit": f.unit, "prior": f.prior, "value": f.value, "spread": f.spread, "told": f.told}
            for f in of.found
        ],
        "reuse": {workload: _reuse(reuse) for workload, reuse in of.reuse.items()},
        "summary": {
            use: [
                {
                    "figure": s.figure,
                    "loads": s.loads,
                    "mean_error_ratio": s.mean_error_ratio,
                    "largest_error_ratio": s.largest_error_ratio,
                    "bias_ratio": s.bias_ratio,
                }
                for s in summaries(row for row in of.rows if row.case.held_out is held_out)
            ]
            for held_out, use in ((False, "fitted"), (True, "held_out"))
        },
        "rows": [
            {
                "load": row.case.name,
                "held_out": row.case.held_out,
                "requests": row.case.until - row.case.first,
                "errors": {name: row.error_ratio(metric, level) for name, metric, level in SHOWN},
            }
            for row in of.rows
        ],
    }


def _reuse(reuse: Reuse) -> dict[str, float | None]:
    return {
        "share_ratio": reuse.share_ratio,
        "turn_tokens": reuse.turn_tokens,
        "miss_ratio": reuse.miss_ratio,
    }
