"""The boards and rules: same bytes as committed, and no query for a metric that nobody exposes."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tidegate.app.cli.main import EXIT_BAD_INPUT, EXIT_DONE, EXIT_REFUSED, main
from tidegate.app.servers import find_binary
from tidegate.catalogue import gateway, own
from tidegate.catalogue.quantity import Kind
from tidegate.dashboards.panels import Panel
from tidegate.dashboards.render import BOARDS, RULES_NAME, rendered
from tidegate.dashboards.rules import rules_file

COMMITTED = Path(__file__).parents[2] / "dashboards" / "rendered"
PANELS = [pytest.param(panel, id=panel.title) for board in BOARDS for panel in board.panels]
_WORDS = {
    *(
        "sum",
        "max",
        "min",
        "avg",
        "avg_over_time",
        "rate",
        "increase",
        "histogram_quantile",
        "absent",
        "vector",
        "by",
        "on",
        "and",
        "or",
    ),
    *("unless", "service", "pool", "slo", "le", "signal", "reason", "verdict", "source", gateway.CLUSTER_LABEL),
}


def exposed() -> dict[str, Kind]:
    """Every series name we may query, by kind; histograms by their parts."""
    names = {metric.name: metric.kind for metric in own.OWN}
    names |= dict.fromkeys((*gateway.ATTEMPTS, gateway.RETRIES, *gateway.LOGGED), Kind.COUNTER)
    names |= dict.fromkeys((gateway.IN_FLIGHT, gateway.PENDING), Kind.GAUGE)
    names |= dict.fromkeys(gateway.HISTOGRAMS, Kind.HISTOGRAM)
    parts = {f"{n}{s}": Kind.COUNTER for n, k in names.items() if k is Kind.HISTOGRAM for s in ("_bucket", "_count")}
    return {n: k for n, k in names.items() if k is not Kind.HISTOGRAM} | parts


def queried(expr: str) -> set[str]:
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expr)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    return set(re.findall(r"[a-zA-Z_:][\w:]*", bare)) - _WORDS


def rules() -> list[dict[str, str]]:
    groups = yaml.safe_load(yaml.safe_dump(rules_file()))["groups"]
    return [rule for group in groups for rule in group["rules"]]


RECORDED = {rule["record"] for rule in rules() if "record" in rule}


@pytest.mark.parametrize("name", sorted(rendered()))
def test_rendered_file_is_the_committed_one(name: str) -> None:
    assert (COMMITTED / name).read_text() == rendered()[name]


def test_rendered_folder_holds_nothing_else() -> None:
    assert {path.name for path in COMMITTED.iterdir()} == set(rendered())


def test_boards_have_unique_uids_and_titles() -> None:
    assert len({board.uid for board in BOARDS}) == len({board.title for board in BOARDS}) == len(BOARDS)


@pytest.mark.parametrize("panel", PANELS)
def test_panel_has_unit_description_and_queries(panel: Panel) -> None:
    assert panel.unit
    assert panel.description.endswith(".")
    assert panel.queries


@pytest.mark.parametrize("panel", PANELS)
def test_panel_queries_only_what_is_exposed_or_recorded(panel: Panel) -> None:
    for query in panel.queries:
        found = queried(query.expr)
        assert found
        assert found <= set(exposed()) | RECORDED


@pytest.mark.parametrize("panel", PANELS)
def test_panel_takes_counters_through_rate_over_the_rate_interval(panel: Panel) -> None:
    for query in panel.queries:
        for name in queried(query.expr) & {n for n, kind in exposed().items() if kind is Kind.COUNTER}:
            assert re.search(rf"(rate|increase)\({name}(\{{[^}}]*\}})?\[\$__rate_interval\]\)", query.expr)


@pytest.mark.parametrize(
    "rule", [pytest.param(r, id=f"{i}-{r.get('record') or r['alert']}") for i, r in enumerate(rules())]
)
def test_rule_queries_only_what_is_exposed_or_recorded(rule: dict[str, str]) -> None:
    found = queried(rule["expr"])
    assert found
    assert found <= set(exposed()) | RECORDED


def test_board_json_uses_the_datasource_variable_everywhere_and_numbers_its_parts() -> None:
    board = json.loads(rendered()["tidegate-fleet.json"])
    assert board["id"] is None
    assert [v["name"] for v in board["templating"]["list"]] == ["datasource", "service", "pool"]
    assert [panel["id"] for panel in board["panels"]] == list(range(1, len(board["panels"]) + 1))
    for panel in board["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
        assert [target["refId"] for target in panel["targets"]] == ["A", "B", "C", "D"][: len(panel["targets"])]
        assert panel["fieldConfig"]["defaults"]["unit"]
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]]
    assert len(set(places)) == len(places)


def test_every_query_of_the_boards_is_valid_promql(tmp_path: Path) -> None:
    queries = [query.expr for board in BOARDS for panel in board.panels for query in panel.queries]
    plain = [q.replace("$__rate_interval", "1m").replace("$service", "chat").replace("$pool", "main") for q in queries]
    listed = [{"record": f"query:{number}", "expr": expr} for number, expr in enumerate(plain)]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": listed}]}))
    done = subprocess.run(
        [find_binary("promtool"), "check", "rules", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"SUCCESS: {len(queries)} rules found" in done.stdout


def test_dashboards_render_writes_and_checks_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "folder"
    assert main(["dashboards", "render", "--out", str(folder)]) == EXIT_DONE
    assert main(["dashboards", "render", "--out", str(folder), "--check"]) == EXIT_DONE
    (folder / RULES_NAME).write_text("groups: []\n")
    assert main(["dashboards", "render", "--out", str(folder), "--check"]) == EXIT_REFUSED
    assert f"missing or different: {RULES_NAME}; run" in capsys.readouterr().err


def test_dashboards_render_refuses_a_folder_it_cannot_make(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["dashboards", "render", "--out", str(tmp_path / "file")]) == EXIT_BAD_INPUT
    assert "--out" in capsys.readouterr().err
