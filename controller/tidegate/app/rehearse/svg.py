"""A plot as inline SVG: axes, lines, bars and marks; colours come from the page, so one file serves light and dark."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 16.0, 12.0, 34.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A range and how it is labelled."""

    low: float
    high: float
    label: str = ""
    log: bool = False
    whole: bool = False  # ticks at whole numbers only
    show: Callable[[float], str] = "{:g}".format

    def at(self, value: float) -> float:
        """Return 0 to 1 for a value in the range; values outside are moved to its ends."""
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        here = math.log10(max(value, self.low)) if self.log else value
        return min(1.0, max(0.0, (here - low) / (high - low))) if high > low else 0.0

    def ticks(self) -> list[float]:
        """Return round values inside the range."""
        if self.log:
            decades = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
            return [10.0**d for d in decades]
        found = round_steps(self.low, self.high)
        return [v for v in found if v == round(v)] if self.whole else found


def round_steps(low: float, high: float, *, about: int = 6) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten from `low` to `high`, about as many as asked for."""
    span = high - low
    if span <= 0.0 or not math.isfinite(span):
        return [low]
    raw = span / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def axis_over(values: Sequence[float], *, label: str = "", whole: bool = False) -> Axis:
    """Return a linear axis from 0 with a little air above the largest value."""
    high = max(values, default=1.0)
    return Axis(low=0.0, high=1.06 * high if high > 0.0 else 1.0, label=label, whole=whole)


def hours(seconds: float) -> str:
    """Return a time of a time axis in words: `40 s`, `12 min`, `3 h`, `2 d`."""
    for size, unit in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size and math.isclose(seconds / size, round(seconds / size, 2)):
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def about(seconds: float) -> str:
    """Return a length of time in its largest fitting unit, to three digits."""
    for size, unit in ((2 * 86_400.0, "d"), (2 * 3600.0, "h"), (2 * 60.0, "min")):
        if seconds >= size:
            return f"{2 * seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def time_axis(seconds: float) -> Axis:
    """Return the axis of a run this long."""
    return Axis(low=0.0, high=max(seconds, 1.0), show=hours)


def time_ticks(axis: Axis) -> list[float]:
    """Return round times: whole seconds, minutes, quarters, hours or days."""
    for step in (1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 7 * 86_400):
        if axis.high / step <= 8:  # noqa: PLR2004  (labels that fit)
            return [float(t) for t in range(0, int(axis.high) + 1, step)]
    return round_steps(axis.low, axis.high)


@dataclass(slots=True, kw_only=True)
class Plot:
    """One plot under construction; what is added later lies on top."""

    title: str
    x: Axis
    y: Axis
    width: float = 960.0
    height: float = 260.0
    x_ticks: Sequence[float] | None = None
    _parts: list[str] = field(default_factory=list)

    def px(self, value: float) -> float:
        """Return the horizontal place of a value."""
        return _LEFT + self.x.at(value) * (self.width - _LEFT - _RIGHT)

    def py(self, value: float) -> float:
        """Return the vertical place of a value."""
        return self.height - _BOTTOM - self.y.at(value) * (self.height - _TOP - _BOTTOM)

    def line(self, points: Sequence[tuple[float, float]], *, kind: str, says: str = "", step: bool = False) -> None:
        """Add a line through points, as stairs if `step`."""
        if points:
            self._parts.append(_path(self._track(points, step=step), kind, says))

    def area(self, points: Sequence[tuple[float, float]], *, kind: str, says: str = "") -> None:
        """Add the area under stairs through points."""
        if points:
            base = self.py(self.y.low)
            track = self._track(points, step=True)
            first, last = self.px(points[0][0]), self.px(points[-1][0])
            self._parts.append(_path(f"M{first:.1f} {base:.1f}L{track[1:]}L{last:.1f} {base:.1f}Z", kind, says))

    def _track(self, points: Sequence[tuple[float, float]], *, step: bool) -> str:
        out, before = [], None
        for x, y in points:
            if step and before is not None and before != y:
                out.append(f"{self.px(x):.1f} {self.py(before):.1f}")
            if not step or before != y or x == points[-1][0]:
                out.append(f"{self.px(x):.1f} {self.py(y):.1f}")
            before = y
        return "M" + "L".join(out)

    def mark(self, x: float, y: float, *, kind: str, says: str = "", size: float = 4.0) -> None:
        """Add a dot."""
        self._parts.append(
            f'<circle cx="{self.px(x):.1f}" cy="{self.py(y):.1f}" r="{size:g}" class="{kind}">{_title(says)}</circle>'
        )

    def word(self, x_px: float, y_px: float, words: str, *, kind: str) -> None:
        """Add words at a place, not at a value."""
        self._parts.append(f'<text x="{x_px:.1f}" y="{y_px:.1f}" class="{kind}">{escape(words)}</text>')

    def across(self, y: float, *, kind: str, words: str = "") -> None:
        """Add a horizontal line over the whole width, with words at its right end."""
        self.line([(self.x.low, y), (self.x.high, y)], kind=kind)
        if words:
            place = self.py(y) - 5
            self._parts.append(
                f'<text x="{self.width - _RIGHT:.1f}" y="{place:.1f}" class="note" text-anchor="end">'
                f"{escape(words)}</text>"
            )

    def svg(self) -> str:
        """Return the element."""
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{escape(self.title)}">'
            f"<title>{escape(self.title)}</title>{''.join(self._frame())}{''.join(self._parts)}</svg>"
        )

    def _frame(self) -> list[str]:
        floor, right = self.height - _BOTTOM, self.width - _RIGHT
        out = []
        for value in self.y.ticks():
            y = self.py(value)
            out.append(f'<path class="grid" d="M{_LEFT:g} {y:.1f}H{right:g}"/>')
            out.append(f'<text class="tick" x="{_LEFT - 8:g}" y="{y + 4:.1f}" text-anchor="end">')
            out.append(f"{escape(self.y.show(value))}</text>")
        for value in self.x.ticks() if self.x_ticks is None else self.x_ticks:
            x = self.px(value)
            out.append(f'<path class="grid" d="M{x:.1f} {floor:g}v4"/>')
            out.append(f'<text class="tick" x="{x:.1f}" y="{floor + 17:g}" text-anchor="middle">')
            out.append(f"{escape(self.x.show(value))}</text>")
        out.append(f'<path class="axis" d="M{_LEFT:g} {floor:g}H{right:g}"/>')
        if self.x.label:
            out.append(f'<text class="note" x="{right:g}" y="{self.height - 3:g}" text-anchor="end">')
            out.append(f"{escape(self.x.label)}</text>")
        if self.y.label:
            out.append(f'<text class="note" x="{_LEFT + 6:g}" y="{_TOP + 8:g}">{escape(self.y.label)}</text>')
        return out


def _path(track: str, kind: str, says: str) -> str:
    return f'<path class="{kind}" d="{track}">{_title(says)}</path>'


def _title(says: str) -> str:
    return f"<title>{escape(says)}</title>" if says else ""
