"""The report of a rehearsal: one HTML file that needs nothing else, in light and dark."""

import json
from collections.abc import Sequence
from html import escape

from tidegate.app.rehearse.charts import frontier_chart, kind_of, load_chart, matched_chart, replica_chart
from tidegate.app.rehearse.document import Document, PolicyResult
from tidegate.app.rehearse.document_schema import plain
from tidegate.app.rehearse.svg import about
from tidegate.app.rehearse.table import Table, percent, tables

# Okabe and Ito's palette, told apart in print and by colour-blind readers; lighter on dark.
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --line: #d6dbe1; --paper: #fff; --panel: #f5f7f9;
  --own: #0072b2; --oracle: #009e73; --rival: #8a8f98; --target: #d55e00; --load: #e69f00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #9aa5b1; --line: #363d46; --paper: #14171b;
  --panel: #1c2127; --own: #56b4e9; --oracle: #2fc79a; --rival: #7d8590; --target: #ff8a4c; --load: #f0b429; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 78rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .4rem; }
p { max-width: 60rem; } .soft, small { color: var(--soft); }
.wide { overflow-x: auto; background: var(--panel); border-radius: 8px; padding: .4rem .6rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; width: 100%; }
th, td { text-align: right; padding: .28rem .55rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } tr:last-child td { border-bottom: 0; }
tr.own td { color: var(--own); font-weight: 600; } tr.oracle td { color: var(--oracle); }
svg { display: block; width: 100%; height: auto; } figure { margin: .6rem 0 1rem; } figcaption { font-size: 14px; }
.grid { stroke: var(--line); fill: none; } .axis { stroke: var(--soft); fill: none; }
.tick, .note { font: 12px system-ui, sans-serif; fill: var(--soft); }
.name { font: 13px system-ui, sans-serif; fill: var(--ink); } .name.own { font-weight: 700; }
.load { fill: var(--load); fill-opacity: .45; stroke: var(--load); }
.own { --c: var(--own); } .oracle { --c: var(--oracle); } .rival { --c: var(--rival); }
.exist { fill: var(--c); fill-opacity: .22; stroke: none; } .ready { stroke: var(--c); stroke-width: 1.5; fill: none; }
.bar { fill: var(--c); } .front { stroke: var(--c); fill: none; stroke-width: 1.2; }
.front.own { stroke-width: 2.5; } .dot { fill: var(--c); } .tag { font: 11px system-ui, sans-serif; fill: var(--c); }
.tag.own { font-weight: 700; } .target { stroke: var(--target); fill: none;
  stroke-dasharray: 6 4; } .key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin: 0 .3em;
  background: var(--c); vertical-align: -1px; }
details { margin: .5rem 0; } summary { cursor: pointer; }
"""


def rehearsal_html(document: Document, *, title: str) -> str:
    """Return the page; every text in it is escaped, and the whole document is inside as JSON.

    Args:
        document: What to show.
        title: Heading.
    """
    data = json.dumps(plain(document), separators=(",", ":")).replace("<", "\\u003c")
    body = "".join(
        [
            f"<h1>{escape(title)}</h1>{_about(document)}",
            _headline(document),
            *(_table_html(t, document) for t in tables(document)[:1]),
            "<h2>Frontier: what each setting missed and what it cost</h2>",
            _KEYS,
            f"<figure>{frontier_chart(document)}</figure>",
            "<h2>Load and replicas over time</h2>",
            f"<figure><figcaption><b>load</b></figcaption>{load_chart(document)}</figure>",
            _replicas(document),
            *(_table_html(t, document) for t in tables(document)[1:]),
            _notes(document),
        ]
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>{body}'
        f'<script type="application/json" id="document">{data}</script></body></html>\n'
    )


_KEYS = (
    '<p class="soft"><span class="own"><span class="key"></span></span>Tidegate'
    '<span class="oracle"><span class="key"></span></span>oracles and bounds'
    '<span class="rival"><span class="key"></span></span>others. A line joins the settings nothing cheaper beats; '
    "hover over a dot for its policy and setting. Down and to the left is better; what costs far more than needed is "
    "left out.</p>"
)


def _about(document: Document) -> str:
    trace, facts = document.trace, document.conditions
    promises = ", ".join(
        f"{o.indicator.upper()} ≤ {o.threshold_s:g} s" for o in facts.objectives if o.threshold_s is not None
    )
    pools = ", ".join(f"{p.name}: {p.min_replicas} to {p.max_replicas} x {p.profile}" for p in facts.pools)
    scale = "" if trace.scale == 1.0 else f", scaled x{trace.scale:g}"
    return (
        f'<p class="soft">{escape(trace.name)}{scale}: {trace.requests:,} requests in {escape(about(trace.seconds))}, '
        f"{trace.requests_per_s:.3g} requests/s on average and {trace.peak_requests_per_s:.3g} in the busiest ten "
        f"minutes; {trace.prompt_tokens.mean:.0f} prompt and {trace.output_tokens.mean:.0f} output tokens on average. "
        f"Promised: {escape(promises)}. Fleet: {escape(pools)}. {_seeds(document)}{_foreseeable(document)}</p>"
    )


def _seeds(document: Document) -> str:
    count = len(document.conditions.seeds)
    return "One seed." if count == 1 else f"Figures are the median over {count} seeds."


def _foreseeable(document: Document) -> str:
    seen = document.trace.forecastable
    if seen is None:
        return ""
    word = "forecastable" if seen.forecastable else "not forecastable"
    return (
        f" This load is {word}: the best forecaster ({escape(seen.member)}) errs by {percent(seen.wape_ratio)} "
        f"{escape(about(seen.horizon_s))} ahead."
    )


def _headline(document: Document) -> str:
    target = 100 * document.conditions.target_ratio
    return f"<h2>GPU hours at matched attainment ({target:g} %)</h2><figure>{matched_chart(document.policies)}</figure>"


def _replicas(document: Document) -> str:
    shown = [p for p in document.policies if p.replicas is not None]
    peak = max((max(p.replicas.existing, default=0) for p in shown if p.replicas), default=1)
    load = document.trace.load
    seconds = len(load.requests) * load.step_s
    return "".join(
        f"<figure><figcaption><b>{escape(p.name)}</b> <small>{percent(p.attainment_ratio)} attained, "
        f"{p.gpu_hours:.4g} GPU h; line: ready, area: existing</small></figcaption>"
        f"{replica_chart(p, seconds=seconds, peak=peak)}</figure>"
        for p in shown
    )


def _table_html(table: Table, document: Document) -> str:
    kinds = {p.name: kind_of(p) for p in document.policies}
    head = _row("th", table.head)
    rows = "".join(f'<tr class="{kinds.get(r[0], "")}">{_cells("td", r)}</tr>' for r in table.rows)
    foot = "".join(f"<p><small>{escape(line)}</small></p>" for line in table.foot)
    return f'<h2>{escape(table.title)}</h2><div class="wide"><table>{head}{rows}</table></div>{foot}'


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{_cells(tag, cells)}</tr>"


def _cells(tag: str, cells: Sequence[str]) -> str:
    return "".join(f"<{tag}>{escape(c)}</{tag}>" for c in cells)


def _knob(policy: PolicyResult) -> str:
    knob = policy.knob
    return "" if knob is None else f"; searched: {escape(knob.name)}, {escape(knob.unit)}, as set {knob.default:.4g}"


def _notes(document: Document) -> str:
    lines = "".join(f"<li>{escape(n)}</li>" for n in document.notes)
    laws = "".join(
        f"<tr><td>{escape(p.name)}</td><td style='text-align:left;white-space:normal'>{escape(p.summary)}"
        f"<br><small>{'<br>'.join([escape(p.source) + _knob(p), *map(escape, p.notes)])}</small></td></tr>"
        for p in document.policies
    )
    return (
        f"<h2>Notes</h2><ul>{lines}</ul><details><summary>The policies and where their laws come from</summary>"
        f'<div class="wide"><table>{laws}</table></div></details>'
    )
