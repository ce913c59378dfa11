"""The local fleet's rules, without processes: back-off, hung starts, doubt."""

from dataclasses import replace

import pytest

from tidegate.actuate.local_health import Health
from tidegate.actuate.local_rules import (
    BACKOFF_CAP_S,
    PROBES_TO_BELIEVE,
    SILENT_PROBES_TO_BELIEVE,
    STABLE_AFTER_S,
    Doubt,
    LocalPoolSpec,
    blocked_until_s,
    judged,
    p95,
    settled,
    stuck_after_s,
)
from tidegate.actuate.local_state import KEPT_TIMES, LocalReplica, PoolRecord
from tidegate.terms.fleet import PoolKey, ReplicaState

KEY = PoolKey(service="chat", pool="main")
SPEC = LocalPoolSpec(key=KEY, profile="p", served_model="m", cold_start_s=40.0, extra_args=("--x", "1"))
READY = LocalReplica(
    name="a", service="chat", pool="main", node="", host="h", port=1, state=ReplicaState.READY, ordered_at_s=100.0,
    ready_at_s=110.0,
)  # fmt: skip
STARTING = replace(READY, state=ReplicaState.STARTING, ready_at_s=None)


def failures(count: int) -> PoolRecord:
    record = PoolRecord()
    for i in range(count):
        at_s = 100.0 - 0.001 * (count - 1 - i)
        record = record.failed_at(at_s, ordered_at_s=at_s)
    return record


def test_backoff_doubles_after_the_second_failure_up_to_its_cap() -> None:
    waits = [blocked_until_s(failures(n)) - 100.0 for n in range(2, 9)]
    assert waits == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, BACKOFF_CAP_S]
    assert blocked_until_s(failures(0)) == blocked_until_s(failures(1)) == 0.0
    assert blocked_until_s(failures(5000)) == 100.0 + BACKOFF_CAP_S


def test_replicas_that_fail_in_one_wave_count_once() -> None:
    once = PoolRecord().failed_at(100.0, ordered_at_s=90.0)
    assert once.failed_at(100.5, ordered_at_s=95.0) == once
    assert once.failed_at(101.0, ordered_at_s=100.1).failures == 2


def test_failures_are_forgiven_once_a_later_replica_is_stable() -> None:
    at_border_s = 110.0 + STABLE_AFTER_S
    assert settled(failures(3), (READY,), at_border_s).failures == 0
    assert settled(failures(3), (READY,), at_border_s - 0.1).failures == 3
    older = replace(READY, ordered_at_s=99.0)  # it was there before the failures and proves nothing
    assert settled(failures(3), (older,), at_border_s).failures == 3


def test_a_start_counts_as_hung_after_three_times_the_measured_p95() -> None:
    assert stuck_after_s(PoolRecord(), SPEC) == 120.0  # the prior, until measured
    assert stuck_after_s(PoolRecord(cold_starts_s=(5.0,)), SPEC) == 60.0  # never under a minute
    assert stuck_after_s(PoolRecord(cold_starts_s=(5.0, 50.0)), SPEC) == 150.0
    assert p95(tuple(float(i) for i in range(1, 101))) == 95.0


def test_a_start_is_ready_at_its_first_good_answer_and_failed_when_hung() -> None:
    ready = judged(STARTING, Health.READY, Doubt(), stuck_after_s=60.0, now_s=120.0)
    assert (ready.state, ready.ready_at_s) == (ReplicaState.READY, 120.0)
    for health in (Health.NOT_READY, Health.REFUSED, Health.SILENT):
        assert judged(STARTING, health, Doubt(), stuck_after_s=60.0, now_s=160.0) == STARTING
        hung = judged(STARTING, health, Doubt(), stuck_after_s=60.0, now_s=160.1)
        assert (hung.state, hung.detail) == (ReplicaState.FAILED, f"not ready 60 s after the order ({health})")


@pytest.mark.parametrize(
    ("health", "times", "state"),
    [
        (Health.NOT_READY, PROBES_TO_BELIEVE, ReplicaState.DRAINING),
        (Health.REFUSED, PROBES_TO_BELIEVE, ReplicaState.FAILED),
        (Health.SILENT, SILENT_PROBES_TO_BELIEVE, ReplicaState.FAILED),
    ],
)
def test_a_ready_replica_is_doubted_only_when_the_same_answer_repeats(
    health: Health, times: int, state: ReplicaState
) -> None:
    doubt = Doubt()
    for _ in range(times - 1):
        doubt = doubt.after(health)
        assert judged(READY, health, doubt, stuck_after_s=60.0, now_s=200.0) == READY
    assert Doubt() == doubt.after(Health.READY)
    assert judged(READY, health, doubt.after(health), stuck_after_s=60.0, now_s=200.0).state is state
    other = Health.REFUSED if health is not Health.REFUSED else Health.NOT_READY
    assert doubt.after(other) == Doubt(health=other, times=1)


def test_measured_times_keep_the_newest() -> None:
    record = PoolRecord()
    for i in range(KEPT_TIMES + 5):
        record = record.started_in(float(i)).drained_in(float(-i))
    assert record.cold_starts_s[0] == 5.0
    assert len(record.drains_s) == KEPT_TIMES


def test_spec_spells_the_engine_command() -> None:
    assert SPEC.argv(8000, 7)[1:] == [
        "-m", "tidegate", "engine", "--profile", "p", "--host", "127.0.0.1", "--port", "8000",
        "--served-model-name", "m", "--cold-start", "40s", "--drain-timeout", "600s", "--owner-pid", "7", "--x", "1",
    ]  # fmt: skip
    assert "--owner-pid" not in SPEC.argv(8000, None)
