"""The dry run tells each step once and changes nothing."""

from tidegate.actuate.dry_run import TELL_AGAIN_AFTER_S, DryRun
from tidegate.terms.fleet import Membership, PoolKey, Replica, ReplicaState
from tidegate.terms.plan import Receipt, Step, StepKind

KEY = PoolKey(service="chat", pool="main")


class Fixed:
    """A fleet of one replica that must not be told anything."""

    def membership(self, now_s: float) -> Membership:
        one = Replica(name="a", pool=KEY, state=ReplicaState.READY, ordered_at_s=0.0)
        return Membership(taken_at_s=now_s, replicas=(one,))

    def apply(self, step: Step, now_s: float) -> Receipt:
        msg = f"told {step} at {now_s}"
        raise AssertionError(msg)

    def cold_starts(self, pool: PoolKey) -> tuple[float, ...]:
        return (12.0,) if pool == KEY else ()


def test_dry_run_tells_a_repeated_step_once_and_refuses_it() -> None:
    told: list[str] = []
    run = DryRun(Fixed(), tell=told.append)
    warm = Step(kind=StepKind.WARM, pool=KEY, replica="b", node="n1")
    for now_s in (1.0, 2.0):
        assert run.apply(warm, now_s) == Receipt(step=warm, accepted=False, detail="dry run")
    run.apply(Step(kind=StepKind.SHIFT, pool=KEY, replica="a"), 3.0)
    assert told == ["would warm b of chat/main on n1", "would shift a of chat/main"]
    assert [at_s for at_s, _ in run.steps] == [1.0, 3.0]


def test_dry_run_tells_an_order_once_whatever_decision_repeats_it() -> None:
    told: list[str] = []
    run = DryRun(Fixed(), tell=told.append)

    def order(sequence: int, now_s: float) -> None:
        for index in (0, 1):
            run.apply(Step(kind=StepKind.WARM, pool=KEY, replica=f"chat.main.{sequence}.{index}"), now_s)

    for sequence in (1, 2, 3):
        order(sequence, 15.0 * sequence)
    assert told == ["would warm chat.main.1.0 of chat/main", "would warm chat.main.1.1 of chat/main"]
    order(9, 45.0 + TELL_AGAIN_AFTER_S)  # it was not wanted for a while
    assert len(told) == 4


def test_dry_run_shows_the_fleet_behind_it() -> None:
    assert [r.name for r in DryRun(Fixed()).membership(5.0).replicas] == ["a"]
    assert DryRun(Fixed()).cold_starts(KEY) == (12.0,)
    assert DryRun().membership(5.0) == Membership(taken_at_s=5.0, replicas=())
    assert DryRun().cold_starts(KEY) == ()
