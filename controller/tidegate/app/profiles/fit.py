"""From cases to a calibrated profile, or the reasons why there is none."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from tidegate.app import clock
from tidegate.app.profiles.calibrate import Calibration, calibrated
from tidegate.app.profiles.cases import Case, requests
from tidegate.app.profiles.report import found_lines, refusals, shortages, summaries
from tidegate.perf.profile import EngineProfile
from tidegate.sim.fast.fleet import FastFleet
from tidegate.terms.errors import RefusedError

_LIMITS = (
    "Right for loads like those it was fitted to. Near a replica's limit no simulated TTFT is to be trusted. Prefix "
    "reuse belongs to the load, not to the engine."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to fit."""

    cases: tuple[Case, ...]
    data: str  # where they come from, in words
    prior: EngineProfile
    settings: tuple[str, ...]
    reuse: str
    name: str  # of the new profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A calibration, why it must not be used (empty: it may), and the comments of its file."""

    calibration: Calibration
    refused: tuple[str, ...]
    notes: tuple[str, ...]


def fit(order: Order, *, progress: Callable[[str], None]) -> Fitted:
    """Return the calibrated profile, named, dated and with its errors.

    Raises:
        RefusedError: Too few requests to fit to or to hold out.
    """
    short = shortages(order.cases)
    if short:
        msg = f"profile not fitted: {'; '.join(short)}"
        raise RefusedError(msg)
    found = calibrated(
        order.cases,
        order.prior,
        settings=order.settings,
        reuse=order.reuse,
        make_fleet=FastFleet,
        progress=progress,
    )
    held_out = {s.figure: s.mean_error_ratio for s in summaries(r for r in found.rows if r.case.held_out)}
    profile = dataclasses.replace(
        found.profile,
        name=order.name,
        source=f"fitted to {order.data}, from {order.prior.name} ({order.prior.source})",
        dated=datetime.fromtimestamp(clock.now_s(), tz=UTC).date().isoformat(),
        fit_error_ratio=min(1.0, round(held_out.get("E2E mean", 0.0), 4)),
    )
    found = dataclasses.replace(found, profile=profile)
    return Fitted(calibration=found, refused=refusals(found, order.prior), notes=_notes(found, order))


def _notes(found: Calibration, order: Order) -> tuple[str, ...]:
    fitted = [c for c in order.cases if not c.held_out]
    errors = [
        f"{s.figure} {s.mean_error_ratio:.1%} (largest {s.largest_error_ratio:.1%})"
        for s in summaries(r for r in found.rows if r.case.held_out)
    ]
    return (
        f"Fitted to {order.data}: {requests(fitted)} requests in {len(fitted)} loads; prior {order.prior.name}.",
        f"Found: {'; '.join(found_lines(found))}.",
        f"Mean errors on {len(order.cases) - len(fitted)} loads held out: {', '.join(errors)}; fitErrorRatio is E2E's.",
        _LIMITS,
    )
