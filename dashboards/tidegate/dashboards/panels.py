"""Grafana panels as plain values: a small typed layer, no SDK, the same bytes at each build.

JSON model: Grafana documentation, "Dashboard JSON model", schema version 39 (Grafana 10.4 and newer).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Json = dict[str, object]

SCHEMA_VERSION = 39
DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24  # of Grafana's grid
_HEIGHT = 8
_PER_ROW = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One PromQL query and its legend."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One time series panel.

    `unit` is a Grafana unit id. `band` names two legends, (low, high), drawn as a filled band. `dashed` legends are
    limits, not measurements.
    """

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    style: Literal["line", "step", "bars"] = "line"
    stacked: bool = False
    minimum: float | None = 0.0
    maximum: float | None = None
    band: tuple[str, str] | None = None
    dashed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A multi-select variable filled from a label's values."""

    name: str
    label: str
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One dashboard; `uid` is unique across the set and never changes."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    panels: tuple[Panel, ...]


def board_json(board: Board) -> Json:
    """Return the board in Grafana's model; `id` is null so that it can be provisioned anywhere."""
    return {
        "id": None,
        "uid": board.uid,
        "title": board.title,
        "description": board.description,
        "tags": ["tidegate"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_datasource_variable(), *(_variable(v) for v in board.variables)]},
        "annotations": {"list": []},
        "panels": [_panel(panel, index) for index, panel in enumerate(board.panels)],
    }


def _datasource_variable() -> Json:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}


def _variable(variable: Variable) -> Json:
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": variable.query,
        "query": {"query": variable.query, "refId": variable.name},
        "refresh": 2,  # when the time range changes
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }


def _panel(panel: Panel, index: int) -> Json:
    row, column = divmod(index, _PER_ROW)
    width = COLUMNS // _PER_ROW
    return {
        "id": index + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": {"h": _HEIGHT, "w": width, "x": column * width, "y": row * _HEIGHT},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": DATASOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "editorMode": "code",
                "range": True,
            }
            for number, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def _defaults(panel: Panel) -> Json:
    defaults: Json = {
        "unit": panel.unit,
        "custom": {
            "drawStyle": "bars" if panel.style == "bars" else "line",
            "lineInterpolation": "stepAfter" if panel.style == "step" else "linear",
            "fillOpacity": 60 if panel.style == "bars" else 0,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "spanNulls": False,  # a gap is unknown: no line is drawn over it
            "showPoints": "never",
        },
    }
    if panel.minimum is not None:
        defaults["min"] = panel.minimum
    if panel.maximum is not None:
        defaults["max"] = panel.maximum
    return defaults


def _overrides(panel: Panel) -> list[Json]:
    overrides = [_override(legend, [("custom.lineStyle", {"fill": "dash", "dash": [8, 6]})]) for legend in panel.dashed]
    if panel.band is not None:
        low, high = panel.band
        overrides.append(_override(low, [("custom.lineWidth", 0)]))
        overrides.append(
            _override(high, [("custom.lineWidth", 0), ("custom.fillBelowTo", low), ("custom.fillOpacity", 20)])
        )
    return overrides


def _override(legend: str, properties: Sequence[tuple[str, object]]) -> Json:
    return {
        "matcher": {"id": "byRegexp", "options": f"/^{legend}/"},
        "properties": [{"id": key, "value": value} for key, value in properties],
    }
