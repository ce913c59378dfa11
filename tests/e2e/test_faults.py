import json
import os
import signal
import time
import urllib.request
from pathlib import Path

import pytest
from tests.e2e.harness import (
    MODEL,
    Load,
    failures,
    pool_of,
    prometheus_value,
    records,
    replicas_of,
    stack_settings,
    steady,
    wait_for,
    wait_ready,
)  # fmt: skip

from tidegate.app.demo.load import Ending
from tidegate.app.demo.stack import Stack
from tidegate.core.explain import sentence
from tidegate.terms.decision import Reason, Verdict
from tidegate.terms.fleet import ReplicaState

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_prometheus_stopped_for_60_s_under_load_never_shrinks_the_fleet(tmp_path: Path) -> None:
    with Stack(stack_settings(tmp_path)) as stack:
        stack.wait_until_serving(MODEL)
        load = Load(stack, steady(4.5, 86.0))
        wait_ready(stack, 3)
        asked = pool_of(records(stack)[-1]).asked_replicas
        stack.prometheus.stop()
        start = len(records(stack))
        time.sleep(60.0)
        blind = records(stack)[start:]
        assert len(blind) >= 10
        assert min(pool_of(line).asked_replicas for line in blind) >= asked
        assert min(len(replicas_of(line, ReplicaState.READY, ReplicaState.STARTING)) for line in blind) >= asked
        assert all(pool_of(line).verdict is not Verdict.SHRINK for line in blind)
        late = pool_of(blind[-1])
        assert late.verdict is Verdict.HOLD
        assert late.binding is Reason.STALE_METRICS
        assert "hold: metrics unknown" in sentence(late)
        assert "hold: metrics unknown" in json.dumps(stack.get("/v1/state"))
        stack.start_prometheus()
        wait_for(stack, "sees again", lambda ls: pool_of(ls[-1]).binding is not Reason.STALE_METRICS)
        assert failures(load.join()) == []


def test_engine_metrics_renamed_mid_run_hold_the_pool_and_name_the_contract(tmp_path: Path) -> None:
    with Stack(stack_settings(tmp_path)) as stack:
        stack.wait_until_serving(MODEL)
        load = Load(stack, [*steady(4.5, 24.0), *steady(0.5, 24.0, start_s=24.0)])
        wait_ready(stack, 3)
        before = records(stack)
        for replica in replicas_of(before[-1], ReplicaState.READY):
            request = urllib.request.Request(
                f"http://{replica.address}/admin/metrics-names", data=b'{"names": "renamed"}', method="POST"
            )
            with urllib.request.urlopen(request, timeout=5.0) as answer:
                assert answer.status == 200
        wait_for(
            stack,
            "a named violation",
            lambda ls: any(
                "num_requests_running" in v
                for s in ls[-1].inputs.observation.services
                for p in s.pools
                for v in p.violations
            ),
        )
        asked = pool_of(records(stack)[-1]).asked_replicas
        assert failures(load.join()) == []
        blind = records(stack)[len(before) + 10 :]
        # The load fell to a tenth meanwhile: a scaler that reads a missing family as idle would have shrunk.
        assert min(pool_of(line).asked_replicas for line in blind) >= asked
        assert pool_of(blind[-1]).verdict is Verdict.HOLD
        assert pool_of(blind[-1]).binding in {Reason.CONTRACT_VIOLATION, Reason.STALE_METRICS, Reason.PARTIAL_COVERAGE}
        assert "num_requests_running" in json.dumps(stack.get("/v1/state"))


def test_twin_killed_is_replaced_and_only_streams_cut_mid_answer_are_lost_and_named(tmp_path: Path) -> None:
    with Stack(stack_settings(tmp_path, least=3)) as stack:
        stack.wait_until_serving(MODEL)
        wait_ready(stack, 3)
        load = Load(stack, steady(4.0, 24.0))
        time.sleep(10.0)
        victim = replicas_of(records(stack)[-1], ReplicaState.READY)[0]
        pid = next(p for p in stack.twin_pids() if f"--port\0{victim.address.split(':')[1]}\0" in _cmdline(p))
        os.kill(pid, signal.SIGKILL)
        wait_for(stack, "replaced", lambda ls: (
            victim.name not in {r.name for r in replicas_of(ls[-1])} and pool_of(ls[-1]).ready_replicas >= 3
        ))  # fmt: skip
        answers = load.join()
        assert failures(answers, cut_is_failure=False) == []
        cut = [a for a in answers if a.ending is Ending.CUT]
        time.sleep(3.0)  # one stats flush and two scrapes
        assert prometheus_value(stack, "sum(envoy_tg_streams_cut)") == (float(len(cut)) if cut else None)
        logged = map(json.loads, stack.access_log.read_text().splitlines())
        named = [line for line in logged if line["details"].startswith("upstream_reset_after_response_started")]
        assert len(named) == len(cut)
        assert all(victim.address in json.dumps(line) for line in named)
        assert prometheus_value(stack, 'sum(envoy_tg_requests{code_class="5xx"})') in {None, 0.0}


def _cmdline(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()
