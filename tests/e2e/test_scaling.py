from pathlib import Path

import pytest
from tests.e2e.harness import (
    MODEL,
    Load,
    failures,
    pool_of,
    prometheus_value,
    records,
    stack_settings,
    steady,
    wait_for,
    wait_ready,
)  # fmt: skip

from tidegate.app.demo.stack import Stack
from tidegate.terms.decision import Reason, Verdict

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def test_scaling_up_and_down_under_load_loses_no_request(tmp_path: Path) -> None:
    with Stack(stack_settings(tmp_path)) as stack:
        stack.wait_until_serving(MODEL)
        load = Load(stack, [*steady(0.8, 6.0), *steady(6.0, 22.0, start_s=6.0), *steady(0.8, 32.0, start_s=28.0)])
        answers = load.join()
        assert failures(answers) == []
        lines = records(stack)
        asked = [pool_of(line).asked_replicas for line in lines]
        assert asked[0] == 1
        assert max(asked) >= 3, asked
        assert asked[-1] < max(asked), asked
        assert all(pool_of(line).notes for line in lines)
        assert any(pool_of(line).verdict is Verdict.SHRINK for line in lines)
        # Envoy counted what the clients counted: nothing was retried into a second answer, nothing was lost.
        finished = prometheus_value(stack, 'sum(envoy_tg_requests{code_class="2xx"})')
        assert finished is not None
        assert len(answers) - 5 <= finished <= len(answers) + 5


def test_controller_killed_mid_load_comes_back_without_a_flap(tmp_path: Path) -> None:
    with Stack(stack_settings(tmp_path)) as stack:
        stack.wait_until_serving(MODEL)
        load = Load(stack, steady(4.5, 42.0))
        wait_ready(stack, 3)
        wait_for(stack, "steady", lambda ls: len({pool_of(x).asked_replicas for x in ls[-4:]}) == 1)
        stack.controller.kill()
        before = records(stack)
        twins = set(stack.twin_pids())
        assert len(twins) >= 3  # a dead controller takes nobody with it
        stack.start_controller()
        wait_for(stack, "ticks again", lambda ls: len(ls) >= len(before) + 5)
        answers = load.join()
        after = records(stack)[len(before) :]
        assert failures(answers) == []
        assert after[0].decision.sequence == before[-1].decision.sequence + 1
        held = pool_of(before[-1]).asked_replicas
        asked = [pool_of(line).asked_replicas for line in after]
        assert min(asked[:2]) >= held, asked  # nothing is taken away on what is not known yet
        moves = {pool_of(line).verdict for line in after} - {Verdict.HOLD}
        assert len(moves) <= 1, asked  # up or down with the load, never up and down
        assert pool_of(after[0]).binding is not Reason.NO_OBSERVATION_YET
        assert twins <= set(stack.twin_pids()) or any(pool_of(x).verdict is Verdict.SHRINK for x in after)
