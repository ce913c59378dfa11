from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.harness import MODEL, pool_of, records, stack_settings, wait_for

from tidegate.app.demo.stack import Stack
from tidegate.core.explain import sentence
from tidegate.terms.decision import Reason, Verdict
from tidegate.terms.observation import InterventionKind

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

# Prometheus finds its Alertmanager after five seconds and sends an alert that went nowhere again only after a minute.
RULES = """\
groups:
  - name: probe
    interval: 1s
    rules:
      - alert: KeepTwo
        expr: vector(1)
        for: 12s
        labels: {tidegate_action: floor, tidegate_pool: chat/main, tidegate_replicas: "2", tidegate_for: 5m}
"""


def test_alert_of_a_real_prometheus_raises_the_floor_through_the_decision(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    settings = replace(stack_settings(tmp_path / "stack"), alertmanager=True, rule_files=(rules,))
    with Stack(settings) as stack:
        stack.wait_until_serving(MODEL)
        wait_for(stack, "a floor of two", lambda ls: pool_of(ls[-1]).asked_replicas == 2)
        line = next(r for r in records(stack) if pool_of(r).asked_replicas == 2)
        (intervention,) = line.inputs.observation.interventions
        assert intervention.kind is InterventionKind.FLOOR
        assert intervention.origin.startswith("alertmanager:KeepTwo:")
        raised = pool_of(line)
        assert raised.verdict is Verdict.GROW
        assert Reason.FLOOR in {note.reason for note in raised.notes}
        assert "KeepTwo" in sentence(raised)
        wait_for(stack, "two ready", lambda ls: pool_of(ls[-1]).ready_replicas == 2)
