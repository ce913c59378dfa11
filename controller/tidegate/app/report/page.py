"""The report of a finished run: one self-contained HTML file."""

import base64
from collections.abc import Sequence
from html import escape

from tidegate.app.demo.score import Row, cells
from tidegate.app.report.plots import Plot
from tidegate.app.report.timeline import Moment

_STYLE = """
:root { color-scheme: light dark; --line: #8885; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 84rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
.wide { overflow-x: auto; }
th, .figures td { white-space: nowrap; }
.figures table { font-size: 13px; }
.figures th, .figures td { padding: .3rem .45rem; }
img { max-width: 100%; background: #fff; border-radius: 6px; }
figure { margin: 1.5rem 0; }
small { opacity: .75; }
"""


def report_html(
    title: str, rows: Sequence[Row], pictures: Sequence[Plot], moments: Sequence[Moment], *, start_s: float, notes: str
) -> str:
    """Return the page; every text is escaped.

    Args:
        title: Heading.
        rows: The final table, the live run first.
        pictures: In order.
        moments: Only those in which a number moved are listed, with their reason.
        start_s: Unix time of second 0.
        notes: How the figures were made.
    """
    figures = "".join(
        f'<figure><figcaption><b>{escape(p.title)}</b></figcaption><img alt="{escape(p.title)}" '
        f'src="data:image/png;base64,{base64.b64encode(p.png).decode()}"></figure>'
        for p in pictures
    )
    moves = "".join(
        f"<tr><td>{m.at_s - start_s:.0f}</td><td>{escape(m.reason)}</td><td>{escape(m.sentence)}</td></tr>"
        for m in moments
        if m.moved
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>{escape(title)}</h1><div class='wide figures'>{_rows_html(rows)}</div>"
        f"<p><small>{escape(notes)}</small></p>"
        f"{figures}<h2>Moves and their reasons</h2><div class=wide><table><tr><th>second</th><th>reason</th>"
        f"<th>in words</th></tr>{moves}</table></div></body></html>\n"
    )


def _rows_html(rows: Sequence[Row]) -> str:
    head, body = cells(rows)
    lines = [_line("th", head), *(_line("td", line) for line in body)]
    return f"<table>{''.join(lines)}</table>"


def _line(tag: str, texts: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(t)}</{tag}>" for t in texts) + "</tr>"
