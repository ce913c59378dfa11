"""What a person reads of a rehearsal: tables, and one page that needs nothing else."""

import html
import json
import re
from html.parser import HTMLParser

import jsonschema
import pytest
from tests.app.rehearse.documents import document, result

from tidegate.app.rehearse.document_schema import json_schema
from tidegate.app.rehearse.html import rehearsal_html
from tidegate.app.rehearse.svg import about, hours, round_steps
from tidegate.app.rehearse.table import percent, results, tables


class Tags(HTMLParser):
    """Checks that tags are closed in order, and keeps the addresses a browser would fetch."""

    VOID = frozenset({"meta", "br", "path", "rect", "circle"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.count: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        self.fetched += [v or "" for k, v in attrs if k in {"src", "href", "xlink:href"}]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def parsed(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    assert not tags.open
    return tags


def test_page_is_whole_and_fetches_nothing() -> None:
    page = rehearsal_html(document(), title="A day")
    tags = parsed(page)
    assert not tags.fetched
    assert "url(" not in page
    assert "@import" not in page
    # Load, six policies' replicas, matched bars and the frontier.
    assert tags.count["svg"] == 9
    assert tags.count["table"] == 6


def test_page_serves_light_and_dark() -> None:
    page = rehearsal_html(document(), title="A day")
    assert "color-scheme: light dark" in page
    assert "prefers-color-scheme: dark" in page
    # No colour stands in a picture: all come from the page's variables.
    assert not re.search(r'(?:fill|stroke)="(?!none)', page)


def test_page_escapes_what_came_from_outside() -> None:
    bad = "</script><script>alert(1)</script>"
    page = rehearsal_html(document(policies=(result(bad, 0.99, 10.0, 9.0),), notes=(bad,)), title=bad)
    assert parsed(page).count["script"] == 1
    assert "<script>alert" not in page


def test_page_holds_the_document() -> None:
    page = rehearsal_html(document(), title="A day")
    inside = re.search(r'<script type="application/json" id="document">(.*?)</script>', page, re.DOTALL)
    assert inside is not None
    jsonschema.validate(json.loads(inside[1]), json_schema())


def test_page_names_who_does_not_reach_the_target_and_why() -> None:
    page = html.unescape(rehearsal_html(document(), title="A day"))
    assert "no GPU h at 99 %: wva-v2: 98.10 % is the most its target reaches" in page


@pytest.mark.parametrize("policies", [(), (result("x", 0.2, 0.0, None, frontier=(), replicas=None, knob=None),)])
def test_page_of_next_to_nothing_is_still_a_page(policies: tuple[object, ...]) -> None:
    page = rehearsal_html(document(policies=policies), title="Nothing")
    parsed(page)
    assert "No policy reached the target." in page


def test_tables_say_each_policy_in_columns_of_one_width() -> None:
    table = results(document())
    lines = table.text().splitlines()
    assert lines[0] == "Each policy as set, then at matched attainment"
    assert lines[3].startswith("tidegate     99.31 %   151")
    starts = {line.index("31 / 52 / 70") for line in lines[3:9]}
    assert starts == {lines[1].index("TPOT p50/95/99 ms")}
    assert "target 6.4 " in lines[3]
    assert lines[-1] == "no GPU h at 99 %: wva-v2: 98.10 % is the most its target reaches"


def test_tables_show_spread_flips_faults_and_forecast() -> None:
    told = "\n\n".join(t.text() for t in tables(document()))
    assert "Least to most over 3 seeds" in told
    assert "99.11 … 99.31 %" in told
    assert "kpa (x0.9)" in told
    assert "98.31 % / 151" in told
    assert "Tidegate with its forecast and without" in told


def test_tables_leave_out_what_was_not_asked_for() -> None:
    plain_policy = result("x", 0.99, 5.0, 5.0, capacity_check=(), faults=())
    assert [t.title for t in tables(document(policies=(plain_policy,), forecast=None))] == [
        "Each policy as set, then at matched attainment",
        "Least to most over 3 seeds",
    ]


@pytest.mark.parametrize(
    ("ratio", "said"), [(1.0, "100.00 %"), (0.99999, "99.99 %"), (0.99, "99.00 %"), (0.0, "0.00 %"), (0.57, "57.00 %")]
)
def test_percent_is_never_rounded_up_to_a_promise(ratio: float, said: str) -> None:
    assert percent(ratio) == said


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.0, 10.6, [0, 2, 4, 6, 8, 10]),
        (97.0, 295.0, [100, 150, 200, 250]),
        (0.0, 0.1, [0, 0.02, 0.04, 0.06, 0.08, 0.1]),
    ],
)
def test_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert round_steps(low, high) == pytest.approx(ticks)


def test_times_are_said_in_words() -> None:
    assert [hours(s) for s in (0.0, 30.0, 90.0, 3600.0, 14_400.0, 86_400.0)] == [
        "0 s", "30 s", "1.5 min", "1 h", "4 h", "1 d",
    ]  # fmt: skip
    assert [about(s) for s in (59.0, 3501.7, 86_399.6, 604_800.0)] == ["59 s", "58.4 min", "24 h", "7 d"]
