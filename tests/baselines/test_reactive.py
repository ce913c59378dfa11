"""A target picked out of several is the cheapest that keeps the objectives."""

from dataclasses import dataclass

from tests.baselines.scene import ask, replicas, seen

from tidegate.baselines.reactive import HpaSettings, Tuned, reactive, tuned
from tidegate.terms.decision import Reason


@dataclass(frozen=True)
class Result:
    joint_ratio: float
    replica_seconds: float


def test_reactive_has_its_own_target_and_down_window() -> None:
    law = reactive(HpaSettings(target_per_replica=5.0, down_window_s=30.0))
    made, memory = ask(law, seen(replicas(2), running=15.0, waiting=5.0))
    assert (made.wanted_replicas, made.asked_replicas) == (4, 4)
    made, memory = ask(law, seen(replicas(4), running=5.0, waiting=0.0), memory, now_s=15.0)
    assert (made.asked_replicas, made.binding) == (4, Reason.STABILISATION)
    made, memory = ask(law, seen(replicas(4), running=5.0, waiting=0.0), memory, now_s=30.0)
    assert made.asked_replicas == 1  # the 4 is 30 s old: just out


def test_tuning_takes_the_cheapest_that_keeps_the_objectives_else_the_best_served() -> None:
    candidates = tuple(HpaSettings(target_per_replica=t) for t in (5.0, 10.0, 20.0))
    results = dict(zip(candidates, (Result(0.99, 300.0), Result(0.96, 200.0), Result(0.5, 100.0)), strict=True))
    best = tuned(results.__getitem__, candidates, lambda r: r.joint_ratio >= 0.95)
    assert best == Tuned(settings=candidates[1], result=results[candidates[1]])
    assert tuned(results.__getitem__, candidates, lambda _: False).settings == candidates[0]
