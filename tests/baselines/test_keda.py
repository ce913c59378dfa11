"""KEDA's scaler, fallback and polling loop by worked examples, and as laws with an HPA behind."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.baselines.scene import ABSENT, KEY, UNREACHABLE, Number, bounded, play, replicas, seen, signal, world
from tests.policies import pool_policy, service_policy

from tidegate.baselines.keda import (
    RIVALS,
    Fallback,
    FallbackBehavior,
    KedaSettings,
    KedaState,
    polled,
    scaler_value,
    with_fallback,
)
from tidegate.baselines.law import PoolFacts
from tidegate.terms.decision import PoolDecision, Reason
from tidegate.terms.observation import Observation
from tidegate.terms.signal import UnknownReason

TEN = KedaSettings(threshold=10.0)
SAFE = replace(TEN, ignore_null=False, fallback=Fallback(replicas=6))


def test_defaults_are_kedas() -> None:
    assert (TEN.polling_s, TEN.cooldown_s, TEN.activation_threshold, TEN.ignore_null, TEN.fallback) == (
        30.0, 300.0, 0.0, True, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("read", "lenient", "strict"),
    [
        (3.0, 3.0, 3.0),
        (0.0, 0.0, 0.0),
        (-4.0, 0.0, 0.0),
        (1.23456, 1.235, 1.235),
        (UnknownReason.ABSENT, 0.0, None),
        (UnknownReason.NOT_A_NUMBER, 0.0, None),
        (UnknownReason.INFINITE, 0.0, None),
        (UnknownReason.STALE, 0.0, None),
        (UnknownReason.UNREACHABLE, None, None),
        (UnknownReason.REJECTED, None, None),
    ],
)
def test_scaler_reads_empty_as_zero_by_default_and_a_failed_query_never(
    read: Number, lenient: float | None, strict: float | None
) -> None:
    assert scaler_value(signal(read), ignore_null=True) == lenient
    assert scaler_value(signal(read), ignore_null=False) == strict


def test_fallback_stands_in_after_more_failures_than_the_threshold() -> None:
    assert with_fallback(None, SAFE, failures=3, replicas=2) is None
    assert with_fallback(None, SAFE, failures=4, replicas=2) == 60.0
    assert with_fallback(12.0, SAFE, failures=4, replicas=2) == 12.0
    assert with_fallback(None, TEN, failures=99, replicas=2) is None


@pytest.mark.parametrize(
    ("behavior", "at_2", "at_9"),
    [
        (FallbackBehavior.STATIC, 6, 6),
        (FallbackBehavior.CURRENT, 2, 9),
        (FallbackBehavior.CURRENT_IF_HIGHER, 6, 9),
        (FallbackBehavior.CURRENT_IF_LOWER, 2, 6),
    ],
)
def test_fallback_behaviors(behavior: FallbackBehavior, at_2: int, at_9: int) -> None:
    fallback = Fallback(replicas=6, behavior=behavior)
    assert [fallback.count(2), fallback.count(9)] == [at_2, at_9]


def facts(asked: int, least: int) -> PoolFacts:
    return PoolFacts(
        now_s=1000.0, pool=pool_policy(KEY, min_replicas=least), service=service_policy(), seen=None, served=None,
        capacity=None, ready=asked, starting=0, draining=0, asked=asked,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "asked", "least", "active_at_s", "count"),
    [
        (1.0, 0, 0, None, 1),
        (1.0, 0, 3, None, 3),
        (1.0, 5, 0, None, 5),
        (0.0, 5, 0, 999.0, 5),
        (0.0, 5, 0, 700.0, 5),  # on the cooldown
        (0.0, 5, 0, 699.9, 0),
        (0.0, 5, 0, None, 0),  # never active: at once
        (0.0, 5, 1, None, 5),
        (0.0, 0, 0, None, 0),
        (None, 5, 0, None, 5),  # an error holds
    ],
)
def test_polling_owns_zero_and_one(
    value: float | None, asked: int, least: int, active_at_s: float | None, count: int
) -> None:
    assert polled(value, facts(asked, least), KedaState(active_at_s=active_at_s), TEN) == count


def test_polling_takes_an_error_with_a_fallback_of_none_for_inactive() -> None:
    none = replace(SAFE, fallback=Fallback(replicas=0, behavior=FallbackBehavior.CURRENT))
    assert polled(None, facts(5, 0), KedaState(), none) == 0
    assert polled(None, facts(5, 1), KedaState(), none) == 5
    assert polled(None, facts(5, 0), KedaState(), SAFE) == 5


def run(name: str, observations: list[Observation], least: int = 0) -> list[PoolDecision]:
    rival = next(r for r in RIVALS if r.name == name)
    policy = bounded(least, 40)
    return play(rival.make(world(policy), 10.0), observations, policy)


def queue(running: Number, waiting: Number, count: int) -> Observation:
    return seen(replicas(count), running=running, waiting=waiting)


@pytest.mark.parametrize("name", ["keda-queue", "keda-queue-fallback"])
def test_law_follows_the_queue_as_its_hpa_does(name: str) -> None:
    made = run(name, [queue(20.0, 15.0, 2), queue(20.0, 15.0, 4)])
    assert [d.asked_replicas for d in made] == [4, 4]
    made = run(name, [queue(1.0, 0.0, 4)] * 22)
    assert [d.asked_replicas for d in made] == [4] * 20 + [1, 1]  # after 300 s, seeded with the four


@pytest.mark.parametrize("lost", [(ABSENT, 30.0), (30.0, ABSENT), (ABSENT, ABSENT)])
def test_law_shrinks_on_an_empty_answer_by_default(lost: tuple[Number, Number]) -> None:
    made = run("keda-queue", [queue(30.0, 10.0, 4)] + [queue(*lost, 4)] * 21, least=1)
    assert [d.asked_replicas for d in made] == [4] * 20 + [1, 1]


def test_law_goes_to_zero_on_an_empty_answer_when_it_may() -> None:
    made = run("keda-queue", [queue(30.0, 10.0, 4)] + [queue(ABSENT, ABSENT, 4)] * 23)
    assert [d.asked_replicas for d in made[:20]] == [4] * 20
    assert made[-1].asked_replicas == 0


def test_law_holds_when_prometheus_is_unreachable_and_has_no_fallback() -> None:
    made = run("keda-queue", [queue(30.0, 10.0, 4)] + [queue(UNREACHABLE, UNREACHABLE, 4)] * 40)
    assert {d.asked_replicas for d in made} == {4}
    assert made[-1].binding is Reason.STALE_METRICS


@pytest.mark.parametrize("lost", [ABSENT, UNREACHABLE])
def test_law_with_a_fallback_keeps_what_runs_or_the_size_of_the_mean(lost: Number) -> None:
    # The mean, 8/s, takes four replicas.
    made = run("keda-queue-fallback", [queue(70.0, 0.0, 7)] + [queue(lost, lost, 7)] * 40)
    assert {d.asked_replicas for d in made} == {7}
    made = run("keda-queue-fallback", [queue(10.0, 0.0, 1)] + [queue(lost, lost, 1)] * 5)
    assert [d.asked_replicas for d in made] == [1, 1, 1, 1, 4, 4]  # from the fourth failure on


def test_law_wakes_at_a_poll_when_the_gateway_holds_requests() -> None:
    made = run("keda-queue", [seen((), pending=0.0), seen((), pending=3.0), seen((), pending=3.0)])
    assert [d.asked_replicas for d in made] == [0, 0, 1]  # polls at 0 and 30 s


def test_law_takes_the_last_replica_away_after_the_cooldown() -> None:
    made = run("keda-queue", [queue(1.0, 0.0, 1)] + [queue(0.0, 0.0, 1)] * 24)
    assert [d.asked_replicas for d in made] == [1] * 22 + [0] * 3  # 330 s: the first poll over 300 s


@settings(deadline=None)
@given(st.floats(0.0, 1000.0), st.floats(0.0, 1000.0), st.integers(1, 12))
def test_more_load_never_means_fewer_replicas(one: float, other: float, count: int) -> None:
    low, high = sorted((one, other))
    lower, higher = (run("keda-queue", [queue(load, 0.0, count)], 1)[0] for load in (low, high))
    assert lower.asked_replicas <= higher.asked_replicas


def test_knobs_are_the_threshold_around_what_a_replica_carries() -> None:
    for rival in RIVALS:
        knob = rival.knob(world())
        assert knob is not None
        assert (knob.name, knob.safe, knob.thrifty, knob.default) == ("threshold", 1.25, 40.0, 8.0)
