"""A real Prometheus loads the rendered rules."""

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidegate.app.servers import Server
from tidegate.dashboards.render import RULES_NAME, rendered

pytestmark = pytest.mark.e2e
WAIT_S = 30.0


def test_prometheus_evaluates_every_rendered_rule(prometheus_factory: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / RULES_NAME).write_text(rendered()[RULES_NAME])
    server = prometheus_factory(rule_files=(tmp_path / RULES_NAME,))

    def rules() -> list[Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/api/v1/rules", timeout=10) as answer:
            groups = json.load(answer)["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    deadline_s = time.monotonic() + WAIT_S
    while any(rule["health"] == "unknown" for rule in rules()):
        assert time.monotonic() < deadline_s, "a rule was never evaluated"
        time.sleep(0.2)
    assert [(rule["name"], rule["lastError"]) for rule in rules() if rule["health"] != "ok"] == []
    # Nothing is scraped here, so one alert is on its way, and it is the right one.
    assert {rule["name"] for rule in rules() if rule.get("alerts")} == {"TidegateControllerDown"}
