"""The report's pictures: load, replicas, what matched attainment costs, and the frontier."""

from collections.abc import Sequence
from html import escape

from tidegate.app.rehearse.document import Document, FrontierPoint, PolicyResult
from tidegate.app.rehearse.svg import Axis, Plot, axis_over, time_axis, time_ticks

OWN = "tidegate"
_ROW_PX, _BAR_PX = 24, 560.0
_TAG_PX = (100.0, 12.0)  # room of a name
_NEAR_RATIO = 1.5
_LEAST_MISSED = 1e-4  # drawn for a policy that missed nothing: a log axis has no zero


def kind_of(policy: PolicyResult) -> str:
    """Return the class that colours a policy: ours, an oracle, or another."""
    if policy.name == OWN:
        return "own"
    return "oracle" if policy.kind == "oracle" else "rival"


def load_chart(document: Document) -> str:
    """Return requests/s over time."""
    load = document.trace.load
    points = [(i * load.step_s, n / load.step_s) for i, n in enumerate(load.requests)]
    axis = time_axis(len(load.requests) * load.step_s)
    y = axis_over([p for _, p in points], label="requests/s")
    plot = Plot(title="Load over time", x=axis, y=y, x_ticks=time_ticks(axis), height=200)
    plot.area([*points, (axis.high, points[-1][1])] if points else [], kind="load")
    return plot.svg()


def replica_chart(policy: PolicyResult, *, seconds: float, peak: int) -> str:
    """Return one policy's replicas over time; `peak` is the highest of all policies, so that charts compare."""
    axis = time_axis(seconds)
    y = axis_over([float(peak)], label="replicas", whole=True)
    plot = Plot(title=f"Replicas over time, {policy.name}", x=axis, y=y, x_ticks=time_ticks(axis), height=120)
    seen = policy.replicas
    if seen is not None:
        plot.area(list(zip(seen.at_s, map(float, seen.existing), strict=True)), kind=f"exist {kind_of(policy)}")
        plot.line(list(zip(seen.at_s, map(float, seen.ready), strict=True)), kind=f"ready {kind_of(policy)}", step=True)
    return plot.svg()


def matched_chart(policies: Sequence[PolicyResult]) -> str:
    """Return a bar per policy that reaches the target, cheapest first: GPU hours at matched attainment."""
    reached = sorted((p for p in policies if p.matched_gpu_hours is not None), key=lambda p: p.matched_gpu_hours or 0.0)
    if not reached:
        return "<p>No policy reached the target.</p>"
    most = max(p.matched_gpu_hours or 0.0 for p in reached) or 1.0
    height = _ROW_PX * len(reached) + 6
    out = [f'<svg viewBox="0 0 960 {height}" role="img" aria-label="GPU hours at matched attainment">']
    for i, policy in enumerate(reached):
        value = policy.matched_gpu_hours or 0.0
        y, long = i * _ROW_PX + 4, _BAR_PX * value / most
        out.append(f'<text class="name {kind_of(policy)}" x="190" y="{y + 13}" text-anchor="end">')
        out.append(f"{escape(policy.name)}</text>")
        out.append(f'<rect class="bar {kind_of(policy)}" x="200" y="{y}" width="{long:.1f}" height="17" rx="2"/>')
        words = f"{value:.4g}{_closed(policy)}"
        out.append(f'<text class="tick" x="{206 + long:.1f}" y="{y + 13}">{escape(words)}</text>')
    return "".join(out) + "</svg>"


def _closed(policy: PolicyResult) -> str:
    closed = policy.gap_closed_ratio
    return "" if closed is None or policy.kind == "oracle" else f"  ({100 * closed:.0f} % of the gap)"


def frontier_chart(document: Document) -> str:
    """Return what each policy's settings missed against what they cost; down and to the left is better."""
    shown = [(p, _near(p.frontier, document.policies)) for p in document.policies]
    every = [(p, found, [(q.gpu_hours, _missed(q)) for q in found]) for p, found in shown if found]
    points = [q for _, _, at in every for q in at]
    if not points:
        return "<p>No policy has a setting to search.</p>"
    target = max(_LEAST_MISSED, 1.0 - document.conditions.target_ratio)
    low = min(target / 10.0, *(m for _, m in points))
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    air = 0.04 * (x_high - x_low) or 1.0
    x = Axis(low=max(0.0, x_low - air), high=x_high + air, label="GPU hours")
    y = Axis(low=10.0 ** _decade(low), high=1.0, label="requests missed", log=True, show=lambda v: f"{100 * v:g} %")
    plot = Plot(title="Frontier of attainment and cost", x=x, y=y, height=420)
    plot.across(target, kind="target", words=f"target: {100 * document.conditions.target_ratio:g} % attained")
    for policy, settings, places in sorted(every, key=lambda e: e[0].name == OWN):
        kind = kind_of(policy)
        plot.line(_lower(places), kind=f"front {kind}", says=policy.name)
        for point, at in zip(settings, places, strict=True):
            size = 4.0 if kind == "own" else 2.5
            plot.mark(*at, kind=f"dot {kind}", says=_point_says(policy, point), size=size)
    _tag(plot, [(p, min(places)) for p, _, places in every])
    return plot.svg()


def _near(frontier: Sequence[FrontierPoint], policies: Sequence[PolicyResult]) -> list[FrontierPoint]:
    """Return the settings that cost at most half as much again as the dearest that was matched: the rest is no news."""
    matched = [p.matched_gpu_hours for p in policies if p.matched_gpu_hours is not None]
    return [q for q in frontier if not matched or q.gpu_hours <= _NEAR_RATIO * max(matched)]


def _missed(point: FrontierPoint) -> float:
    return max(_LEAST_MISSED, 1.0 - point.attainment_ratio)


def _tag(plot: Plot, ends: Sequence[tuple[PolicyResult, tuple[float, float]]]) -> None:
    """Write each policy's name beside its cheapest setting, moved up where another name stands already."""
    taken: list[tuple[float, float]] = []
    for policy, (gpu_hours, missed) in sorted(ends, key=lambda e: -plot.py(e[1][1])):
        x, y = plot.px(gpu_hours) + 6, plot.py(missed) - 5
        while any(abs(x - u) < _TAG_PX[0] and abs(y - v) < _TAG_PX[1] for u, v in taken) and y > _TAG_PX[1]:
            y -= 1.0
        taken.append((x, y))
        plot.word(x, y, policy.name, kind=f"tag {kind_of(policy)}")


def _point_says(policy: PolicyResult, point: FrontierPoint) -> str:
    knob = f" {policy.knob.name} {point.setting:g}" if policy.knob and point.setting is not None else ""
    return f"{policy.name}{knob}: {100 * point.attainment_ratio:.2f} % attained, {point.gpu_hours:.4g} GPU h"


def _lower(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that nothing cheaper beats, cheapest first."""
    out: list[tuple[float, float]] = []
    for x, y in sorted(points):
        if not out or y < out[-1][1]:
            out.append((x, y))
    return out


def _decade(value: float) -> int:
    exponent = 0
    while 10.0**exponent > value and exponent > -12:  # noqa: PLR2004  (far below one request of any trace)
        exponent -= 1
    return exponent
