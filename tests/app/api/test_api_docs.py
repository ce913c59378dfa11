from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidegate.app.api import build_app
from tidegate.app.self_metrics import SelfMetrics
from tidegate.app.state import LiveState

T0 = 1_790_000_000.0
DOCS = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")


def test_every_route_and_refusal_is_documented(make_record: Callable[..., Any]) -> None:
    state = LiveState(started_at_s=T0)
    state.publish(*make_record(T0))
    app = build_app(state, clock=lambda: T0, metrics=SelfMetrics(state, journal_writable=lambda: True))
    paths = app.openapi()["paths"]
    assert len(paths) >= 8
    for path, methods in paths.items():
        for method in methods:
            assert f"| `{method.upper()} {path}` |" in DOCS
    for code in paths["/v1/alerts"]["post"]["responses"]:
        assert f"| {code} |" in DOCS
    assert "422" not in str(app.openapi())  # what cannot be understood is answered 400
