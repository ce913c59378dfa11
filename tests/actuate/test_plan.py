"""Plans: idempotent, warm before shift before drain before shrink, and no removal that breaks what is asked."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidegate.actuate.plan import DECISION_VALID_S, plan, replica_name
from tidegate.terms.decision import Decision, PoolDecision, Reason, Verdict
from tidegate.terms.errors import IllegalPlanError
from tidegate.terms.fleet import Membership, PoolKey, Replica, ReplicaState, Role
from tidegate.terms.observation import NodeInventory
from tidegate.terms.plan import Plan, Step, StepKind

KEY = PoolKey(service="chat", pool="main")
GPUS = {KEY: 1}
NOW_S = 1000.0


def replica(name: str, state: ReplicaState = ReplicaState.READY, *, address: str = "127.0.0.1:1") -> Replica:
    return Replica(name=name, pool=KEY, state=state, address=address, ordered_at_s=1.0, ready_at_s=2.0)


def members(*replicas: Replica) -> Membership:
    return Membership(taken_at_s=NOW_S, replicas=tuple(sorted(replicas, key=lambda r: r.name)))


def decide(
    asked: int, *, sequence: int = 7, verdict: Verdict = Verdict.HOLD, binding: Reason = Reason.STEADY, **more: object
) -> Decision:
    fields: dict[str, object] = {
        "key": KEY,
        "role": Role.AGGREGATED,
        "verdict": verdict,
        "ready_replicas": 0,
        "starting_replicas": 0,
        "draining_replicas": 0,
        "asked_before_replicas": asked,
        "wanted_replicas": asked,
        "asked_replicas": asked,
        "binding": binding,
        "notes": (),
    }
    return Decision(decided_at_s=NOW_S, sequence=sequence, pools=(PoolDecision(**(fields | more)),))  # type: ignore[arg-type]


def steps_of(
    decision: Decision, membership: Membership, *, acked: bool = True, nodes: tuple[NodeInventory, ...] | None = None
) -> Plan:
    return plan(decision, membership, nodes=nodes, gpus_per_replica=GPUS, gateway_acked=acked, now_s=NOW_S)


def kinds(made: Plan) -> list[tuple[StepKind, str]]:
    return [(s.kind, s.replica) for s in made.steps]


def test_plan_warms_what_is_missing_and_counts_starting_as_supply() -> None:
    fleet = members(replica("a"), replica("b", ReplicaState.STARTING))
    assert kinds(steps_of(decide(4), fleet)) == [
        (StepKind.WARM, "chat.main.7.0"),
        (StepKind.WARM, "chat.main.7.1"),
    ]
    assert kinds(steps_of(decide(2), fleet)) == []


@pytest.mark.parametrize(
    ("state", "address", "kind"),
    [
        (ReplicaState.READY, "127.0.0.1:1", StepKind.SHIFT),
        (ReplicaState.STARTING, "127.0.0.1:1", StepKind.SHIFT),
        (ReplicaState.DRAINING, "127.0.0.1:1", StepKind.DRAIN),
        (ReplicaState.DRAINING, "", StepKind.SHRINK),
        (ReplicaState.FAILED, "127.0.0.1:1", StepKind.CLEAR),
    ],
)
def test_plan_leads_all_replicas_of_a_pool_without_a_policy_out(
    state: ReplicaState, address: str, kind: StepKind
) -> None:
    old = PoolKey(service="chat", pool="old")
    fleet = members(replica("a"), replace(replica("b", state, address=address), pool=old))
    made = plan(decide(1), fleet, nodes=None, gpus_per_replica=GPUS, gateway_acked=True, now_s=NOW_S, unnamed=(old,))
    assert kinds(made) == [(kind, "b")]
    assert kinds(steps_of(decide(1), fleet)) == []


def test_plan_repeats_the_same_names_for_the_same_membership_and_none_once_they_exist() -> None:
    first = steps_of(decide(2), members())
    assert first == steps_of(decide(2), members())
    started = members(*(replica(s.replica, ReplicaState.STARTING) for s in first.steps))
    assert steps_of(decide(2), started).steps == ()


def test_plan_replaces_a_failed_replica_under_a_new_name_and_clears_it() -> None:
    failed = replica_name(KEY, 7, 0)
    made = kinds(steps_of(decide(1), members(replica(failed, ReplicaState.FAILED))))
    assert made == [(StepKind.WARM, "chat.main.7.1"), (StepKind.CLEAR, failed)]


def test_plan_shifts_in_the_order_of_drain_first_and_only_what_is_ready_beyond_asked() -> None:
    fleet = members(replica("a"), replica("b"), replica("c"), replica("d", ReplicaState.STARTING))
    decision = decide(1, verdict=Verdict.SHRINK, asked_before_replicas=3, drain_first=("c", "gone", "a", "b"))
    assert kinds(steps_of(decision, fleet)) == [(StepKind.SHIFT, "c"), (StepKind.SHIFT, "a")]


def test_plan_does_not_shift_while_the_cover_is_still_starting() -> None:
    fleet = members(replica("a"), replica("b", ReplicaState.STARTING), replica("c", ReplicaState.STARTING))
    assert kinds(steps_of(decide(1, drain_first=("a",)), fleet)) == []


def test_plan_drains_only_after_the_gateway_acknowledged_and_shrinks_only_what_ended() -> None:
    fleet = members(replica("a"), replica("b", ReplicaState.DRAINING), replica("c", ReplicaState.DRAINING, address=""))
    assert kinds(steps_of(decide(1), fleet, acked=False)) == [(StepKind.SHRINK, "c")]
    assert kinds(steps_of(decide(1), fleet)) == [(StepKind.DRAIN, "b"), (StepKind.SHRINK, "c")]


@pytest.mark.parametrize(
    "binding", [Reason.STALE_METRICS, Reason.NO_OBSERVATION_YET, Reason.CONTRACT_VIOLATION, Reason.FROZEN]
)
def test_plan_postpones_a_removal_when_the_pool_holds_for_doubt(binding: Reason) -> None:
    fleet = members(replica("a"), replica("b"))
    assert kinds(steps_of(decide(1, binding=binding), fleet)) == []
    assert kinds(steps_of(decide(1), fleet)) == [(StepKind.SHIFT, "a")]


def test_plan_postpones_a_removal_when_the_decision_is_too_old() -> None:
    fleet = members(replica("a"), replica("b"))
    at_border = replace(decide(1), decided_at_s=NOW_S - DECISION_VALID_S)
    assert kinds(steps_of(at_border, fleet)) == [(StepKind.SHIFT, "a")]
    beyond = replace(decide(1), decided_at_s=NOW_S - DECISION_VALID_S - 1)
    assert kinds(steps_of(beyond, fleet)) == []


def test_plan_writes_nothing_in_advise_mode() -> None:
    fleet = members(replica("a"), replica("b", ReplicaState.FAILED), replica("c", ReplicaState.DRAINING))
    assert steps_of(decide(5, writes=False), fleet) == Plan(decision_sequence=7, steps=())
    assert steps_of(decide(0, writes=False), fleet) == Plan(decision_sequence=7, steps=())


def test_plan_warms_fewer_and_says_why_when_the_inventory_is_full() -> None:
    nodes = (NodeInventory(name="n1", accelerator="a100", gpus=2, topology_domain=""),)
    fleet = members(replace(replica("a"), node="n1"))
    made = steps_of(decide(3), fleet, nodes=nodes)
    assert made.steps == (Step(kind=StepKind.WARM, pool=KEY, replica="chat.main.7.0", node="n1"),)
    assert [(r.step.replica, r.accepted, r.detail) for r in made.refused] == [
        ("chat.main.7.1", False, "not placed: 1 replica(s) need 1 GPU(s); 0 of 2 are free")
    ]


def test_plan_names_are_unique_when_labels_hold_hyphens() -> None:
    assert replica_name(PoolKey(service="a-b", pool="c"), 1, 0) != replica_name(PoolKey(service="a", pool="b-c"), 1, 0)


def test_plan_refuses_contradictions() -> None:
    pool = decide(1).pools[0]
    other = Replica(name="x", pool=PoolKey(service="code", pool="m"), state=ReplicaState.READY, ordered_at_s=0.0)
    cases = [
        (replace(decide(1), pools=(pool, pool)), members(), "decided twice"),
        (decide(-1), members(), "must be >= 0"),
        (decide(1, verdict=Verdict.GROW, asked_before_replicas=2), members(), "verdict grow moves 2 -> 1"),
        (decide(2, verdict=Verdict.SHRINK, asked_before_replicas=1), members(), "verdict shrink moves 1 -> 2"),
        (decide(1, drain_first=("x",)), members(other), "drain_first names x of code/m"),
        (decide(1), members(replica("a"), replica("a")), "exists twice"),
    ]
    for decision, fleet, text in cases:
        with pytest.raises(IllegalPlanError, match=text):
            steps_of(decision, fleet)
    with pytest.raises(IllegalPlanError, match="gpus_per_replica must be >= 1, got None"):
        plan(decide(1), members(), nodes=None, gpus_per_replica={}, gateway_acked=True, now_s=NOW_S)


STATES = st.sampled_from([s for s in ReplicaState if s is not ReplicaState.ASLEEP])


@settings(deadline=None)
@given(st.integers(0, 6), st.lists(STATES, max_size=8), st.booleans(), st.integers(0, 8))
def test_plan_orders_steps_warm_shift_drain_shrink_clear_and_never_exceeds_asked(
    asked: int,
    states: list[ReplicaState],
    acked: bool,  # noqa: FBT001 hypothesis draws it
    gpus: int,
) -> None:
    fleet = members(*(replica(f"r{i}", s) for i, s in enumerate(states)))
    nodes = (NodeInventory(name="n", accelerator="", gpus=gpus, topology_domain=""),)
    made = steps_of(decide(asked), fleet, acked=acked, nodes=nodes)
    order = [list(StepKind).index(s.kind) for s in made.steps]
    assert order == sorted(order)
    supply = len(fleet.of(KEY, ReplicaState.READY, ReplicaState.STARTING))
    warms = [s for s in made.steps if s.kind is StepKind.WARM]
    assert supply + len(warms) <= max(asked, supply)
    assert len(warms) + len(made.refused) == max(0, asked - supply)
    assert len({s.replica for s in warms} | {r.name for r in fleet.replicas}) == len(warms) + len(fleet.replicas)


class Interleaving(RuleBasedStateMachine):
    """A fleet that obeys plans in part, late and twice, while replicas start, fail and end by themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet: dict[str, Replica] = {}
        self.ever: set[str] = set()
        self.asked = 0
        self.sequence = 0
        self.last: tuple[Step, ...] = ()
        self.acked_without: frozenset[str] = frozenset()

    def membership(self) -> Membership:
        return members(*self.fleet.values())

    def count(self, *states: ReplicaState) -> int:
        return len(self.membership().of(KEY, *states))

    def acked(self) -> bool:
        draining = {r.name for r in self.membership().of(KEY, ReplicaState.DRAINING)}
        return draining <= self.acked_without

    @rule(asked=st.integers(0, 5))
    def decides(self, asked: int) -> None:
        self.asked = asked
        self.sequence += 1
        self.last = ()  # a plan lives as long as the decision it was made from

    @rule()
    def gateway_acknowledges(self) -> None:
        self.acked_without = frozenset(r.name for r in self.membership().of(KEY, ReplicaState.DRAINING))

    @precondition(lambda self: self.sequence > 0)
    @rule(data=st.data())
    def plans_and_applies_some(self, data: st.DataObject) -> None:
        made = steps_of(decide(self.asked, sequence=self.sequence), self.membership(), acked=self.acked())
        self.last = made.steps
        chosen = data.draw(st.lists(st.sampled_from(made.steps), unique=True)) if made.steps else []
        for step in chosen:
            self.apply(step)

    @rule()
    def applies_the_last_plan_again(self) -> None:
        for step in self.last:
            self.apply(step)
        once = dict(self.fleet)
        for step in self.last:
            self.apply(step)
        assert self.fleet == once

    def apply(self, step: Step) -> None:
        known = self.fleet.get(step.replica)
        if step.kind is StepKind.WARM and step.replica not in self.ever:
            self.ever.add(step.replica)
            self.fleet[step.replica] = replica(step.replica, ReplicaState.STARTING)
            assert self.count(ReplicaState.READY, ReplicaState.STARTING) <= max(self.asked, 0)
        elif step.kind is StepKind.SHIFT and known and known.state is ReplicaState.READY:
            self.fleet[step.replica] = replace(known, state=ReplicaState.DRAINING)
        elif step.kind is StepKind.DRAIN and known and known.state is ReplicaState.DRAINING:
            assert step.replica in self.acked_without
            self.fleet[step.replica] = replace(known, address="")
        elif known and (
            (step.kind is StepKind.SHRINK and known.state is ReplicaState.DRAINING and not known.address)
            or (step.kind is StepKind.CLEAR and known.state is ReplicaState.FAILED)
        ):
            del self.fleet[step.replica]

    @precondition(lambda self: self.count(ReplicaState.STARTING))
    @rule(data=st.data())
    def starting_becomes(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.membership().of(KEY, ReplicaState.STARTING)))
        state = data.draw(st.sampled_from([ReplicaState.READY, ReplicaState.FAILED]))
        self.fleet[one.name] = replace(one, state=state)

    @invariant()
    def converges_when_left_alone(self) -> None:
        if not self.sequence:
            return
        kept = dict(self.fleet), set(self.ever), self.acked_without
        before = self.count(ReplicaState.READY)
        for _ in range(8):
            self.gateway_acknowledges()
            made = steps_of(decide(self.asked, sequence=self.sequence), self.membership(), acked=self.acked())
            for step in made.steps:
                self.apply(step)
                if step.kind is StepKind.SHIFT:
                    assert self.count(ReplicaState.READY) >= min(self.asked, before)
            self.fleet = {
                n: replace(r, state=ReplicaState.READY) if r.state is ReplicaState.STARTING else r
                for n, r in self.fleet.items()
            }
        assert self.count(ReplicaState.READY) == len(self.fleet) == self.asked
        self.fleet, self.ever, self.acked_without = kept


TestInterleaving = Interleaving.TestCase
TestInterleaving.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
