"""Plots of a finished run, as PNG bytes."""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.app.demo.load import Answer, Ending
from tidegate.app.report.timeline import Moment
from tidegate.terms.slo import Indicator, Slo

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Told apart in print and by colour-blind readers (Okabe and Ito's palette).
BLUE, ORANGE, GREEN, RED, GREY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#7f7f7f"

# Names of the pictures, in order.
PICTURES = ("load", "replicas", "ttft", "tpot")

_BIN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A named picture."""

    name: str
    title: str
    png: bytes


def plots(moments: Sequence[Moment], answers: Sequence[Answer], *, slos: Sequence[Slo], start_s: float) -> list[Plot]:
    """Return the run's pictures: load with forecast band, replicas, latencies.

    Args:
        moments: Ticks of one pool.
        answers: All requests.
        slos: Objectives whose thresholds are drawn.
        start_s: Unix time of second 0 of the axes.
    """

    def latency(indicator: Indicator) -> Callable[["Axes"], None]:
        slo = next((s for s in slos if s.indicator is indicator), None)
        return lambda ax: _latency(ax, answers, indicator, slo)

    found = [
        Plot(name="load", title="Load and forecast", png=_png(lambda ax: _load(ax, moments, answers, start_s))),
        Plot(name="replicas", title="Replicas", png=_png(lambda ax: _replicas(ax, moments, start_s))),
    ]
    found += [
        Plot(name=i.value, title=f"{i.value.upper()} of every request", png=_png(latency(i)))
        for i in (Indicator.TTFT, Indicator.TPOT)
    ]
    return found


def _png(draw: "Callable[[Axes], None]") -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  (0.4 s; only reports need it)
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(9.0, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    draw(axes)
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("seconds since the first request")
    axes.legend(loc="upper right", fontsize=8, frameon=False)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=130)
    return out.getvalue()


def _load(axes: "Axes", moments: Sequence[Moment], answers: Sequence[Answer], start_s: float) -> None:
    last_s = max((a.arrival.at_s for a in answers), default=0.0)
    bins = [0] * (math.floor(last_s / _BIN_S) + 1)
    for answer in answers:
        bins[math.floor(answer.arrival.at_s / _BIN_S)] += 1
    axes.step(
        [i * _BIN_S for i in range(len(bins))],
        [n / _BIN_S for n in bins],
        where="post",
        color=GREY,
        label=f"sent (per {_BIN_S:g} s)",
    )
    seen = [(m.at_s - start_s, m.arrivals_per_s) for m in moments if m.arrivals_per_s is not None]
    axes.plot([x for x, _ in seen], [y for _, y in seen], color=BLUE, label="seen at the gateway")
    # Drawn at the time the forecast speaks of, so that it can be compared with what came.
    ahead = [(m.at_s - start_s + m.horizon_s, m.forecast_per_s) for m in moments if m.forecast_per_s is not None]
    axes.fill_between(
        [x for x, _ in ahead],
        [f[0] for _, f in ahead],
        [f[1] for _, f in ahead],
        color=ORANGE,
        alpha=0.35,
        label="forecast p50 to p90, a cold start before",
    )
    axes.set_ylabel("requests/s")


def _replicas(axes: "Axes", moments: Sequence[Moment], start_s: float) -> None:
    x = [m.at_s - start_s for m in moments]
    axes.step(x, [m.asked for m in moments], where="post", color=ORANGE, label="asked")
    axes.step(x, [m.ready for m in moments], where="post", color=BLUE, linewidth=2.0, label="ready")
    wanted = [(m.at_s - start_s, m.wanted) for m in moments if m.wanted is not None]
    axes.step([t for t, _ in wanted], [w for _, w in wanted], where="post", color=GREEN, linestyle=":", label="wanted")
    axes.step(x, [m.existing for m in moments], where="post", color=GREY, linewidth=0.8, label="existing")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("replicas")


def _latency(axes: "Axes", answers: Sequence[Answer], indicator: Indicator, slo: Slo | None) -> None:
    scale, unit = (1.0, "s") if indicator is Indicator.TTFT else (1000.0, "ms")
    points = [
        (a.arrival.at_s, scale * value)
        for a in answers
        if a.ending is Ending.DONE and (value := a.ttft_s if indicator is Indicator.TTFT else a.tpot_s) is not None
    ]
    axes.scatter([x for x, _ in points], [y for _, y in points], s=5, color=BLUE, alpha=0.5, label="requests")
    if slo is not None and slo.threshold_s is not None:
        axes.axhline(
            scale * slo.threshold_s, color=RED, linestyle="--",
            label=f"objective: {100 * slo.objective_ratio:g} % under {scale * slo.threshold_s:g} {unit}",
        )  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.set_ylabel(unit)
