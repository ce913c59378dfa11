"""The document's figures as rows of text, for terminal and page alike."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.app.rehearse.document import Document, Figures, PolicyResult

NONE = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Headings and rows."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    foot: tuple[str, ...] = ()

    def text(self) -> str:
        """Return it in columns, for a terminal of any width."""
        every = [self.head, *self.rows]
        widths = [max(len(r[i]) for r in every) for i in range(len(self.head))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)).rstrip() for r in every]
        lines.insert(1, "-" * max(map(len, lines)))
        return "\n".join([self.title, *lines, *self.foot])


def tables(document: Document) -> list[Table]:
    """Return the tables that have anything to say, the main one first."""
    made = [results(document), seeds(document), capacity(document), faults(document), forecast(document)]
    return [t for t in made if t is not None]


def results(document: Document) -> Table:
    """Return one row per policy: as set, and at matched attainment."""
    target = f"{100 * document.conditions.target_ratio:g} %"
    rows = [
        (
            p.name,
            percent(p.attainment_ratio),
            number(p.gpu_hours),
            money(p.cost_usd),
            number(p.goodput_per_s),
            " / ".join(seconds(v) for v in (p.ttft_p50_s, p.ttft_p95_s, p.ttft_p99_s)),
            " / ".join(millis(v) for v in (p.tpot_p50_s, p.tpot_p95_s, p.tpot_p99_s)),
            str(p.scale_events),
            str(p.failed),
            number(p.matched_gpu_hours),
            _knob(p),
            NONE if p.gap_closed_ratio is None else f"{100 * p.gap_closed_ratio:.0f} %",
        )
        for p in document.policies
    ]
    head = ("policy", "attained", "GPU h", "cost USD", "goodput/s", "TTFT p50/95/99 s", "TPOT p50/95/99 ms", "moves",
            "failed", f"GPU h at {target}", "with", "gap closed")  # fmt: skip
    why: dict[str, list[str]] = {}
    for p in document.policies:
        if p.matched_gpu_hours is None and p.matched_gpu_hours_reason:
            why.setdefault(p.matched_gpu_hours_reason, []).append(p.name)
    foot = tuple(f"no GPU h at {target}: {', '.join(names)}: {reason}" for reason, names in why.items())
    foot += tuple(f"{p.name}: {note}" for p in document.policies for note in p.notes)
    return Table(title="Each policy as set, then at matched attainment", head=head, rows=tuple(rows), foot=foot)


def seeds(document: Document) -> Table | None:
    """Return the spread over seeds, when there were several."""
    if len(document.conditions.seeds) < 2:  # noqa: PLR2004  (one seed has no spread)
        return None
    rows = tuple(
        (
            p.name,
            spread([100 * s.attainment_ratio for s in p.seeds], " %"),
            spread([s.gpu_hours for s in p.seeds]),
            spread([s.ttft_p95_s for s in p.seeds if s.ttft_p95_s is not None]),
        )
        for p in document.policies
        if p.seeds
    )
    head = ("policy", "attained", "GPU h", "TTFT p95 s")
    return Table(title=f"Least to most over {len(document.conditions.seeds)} seeds", head=head, rows=rows)


def capacity(document: Document) -> Table | None:
    """Return the comparison at other engine speeds, when it was asked for."""
    ratios = sorted({c.capacity_ratio for p in document.policies for c in p.capacity_check})
    if not ratios:
        return None
    head = ["policy", "GPU h at x1", *(f"GPU h at x{r:g}" for r in ratios), "flips with"]
    rows = []
    for p in document.policies:
        by_ratio = {c.capacity_ratio: c for c in p.capacity_check}
        flips = dict.fromkeys(f"{name} (x{c.capacity_ratio:g})" for c in p.capacity_check for name in c.flips_with)
        cells = [number(by_ratio[r].matched_gpu_hours) if r in by_ratio else NONE for r in ratios]
        rows.append((p.name, number(p.matched_gpu_hours), *cells, ", ".join(flips) or NONE))
    foot = "A ranking that flips is not a claim: the order of those two hangs on how fast the engines really are."
    title = "At matched attainment with slower and faster engines than believed"
    return Table(title=title, head=tuple(head), rows=tuple(rows), foot=(foot,))


def faults(document: Document) -> Table | None:
    """Return attainment and GPU hours under each fault, when any was asked for."""
    names = list(dict.fromkeys(f.fault for p in document.policies for f in p.faults))
    if not names:
        return None
    rows = []
    for p in document.policies:
        by_name = {f.fault: f for f in p.faults}
        cells = [f"{percent(f.attainment_ratio)} / {number(f.gpu_hours)}" if (f := by_name.get(n)) else NONE
                 for n in names]  # fmt: skip
        rows.append((p.name, f"{percent(p.attainment_ratio)} / {number(p.gpu_hours)}", *cells))
    title = "Under faults: attained / GPU h, each policy as set"
    return Table(title=title, head=("policy", "no fault", *names), rows=tuple(rows))


def forecast(document: Document) -> Table | None:
    """Return Tidegate with and without its forecast."""
    pair = document.forecast
    if pair is None:
        return None

    def row(name: str, figures: Figures, matched: float | None) -> tuple[str, ...]:
        return (name, percent(figures.attainment_ratio), number(figures.gpu_hours), seconds(figures.ttft_p95_s),
                number(matched))  # fmt: skip

    rows = (row("on", pair.on, pair.matched_gpu_hours_on), row("off", pair.off, pair.matched_gpu_hours_off))
    head = ("forecast", "attained", "GPU h", "TTFT p95 s", "GPU h at target")
    return Table(title="Tidegate with its forecast and without", head=head, rows=rows)


def _knob(policy: PolicyResult) -> str:
    if policy.knob is None:
        return "no knob"
    if policy.matched is None or policy.matched.setting is None:
        return policy.knob.name
    return f"{policy.knob.name} {policy.matched.setting:.4g}"


def percent(ratio: float) -> str:
    """Return a share as per cent; never rounded up to 100."""
    return f"{int(1e4 * ratio + 1e-6) / 100:.2f} %"


def number(value: float | None) -> str:
    """Return four digits."""
    return NONE if value is None else f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"  # noqa: PLR2004


def money(value: float) -> str:
    """Return whole dollars, or cents below a hundred."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"  # noqa: PLR2004


def seconds(value: float | None) -> str:
    """Return seconds to the hundredth."""
    return NONE if value is None else f"{value:.2f}"


def millis(value: float | None) -> str:
    """Return seconds as whole milliseconds."""
    return NONE if value is None else f"{1000 * value:.0f}"


def spread(values: Sequence[float], unit: str = "") -> str:
    """Return the least and the greatest."""
    return f"{min(values):.4g} … {max(values):.4g}{unit}" if values else NONE
