"""The loop's two clocks against small fakes at its own seams; everything between them is real."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tidegate.app import loop as loop_module
from tidegate.app.config import load_policies
from tidegate.app.config_profile import load_profile
from tidegate.app.journal import JournalFullError
from tidegate.app.loop import Loop, LoopSettings, LoopStatus
from tidegate.app.record import TickRecord
from tidegate.app.tick import Ports, Ticked
from tidegate.terms.decision import Decision
from tidegate.terms.fleet import Membership, PoolKey, Replica, ReplicaState
from tidegate.terms.history import History
from tidegate.terms.observation import Intervention, Observation
from tidegate.terms.plan import Plan, Receipt, Step, StepKind
from tidegate.terms.policy import ServicePolicy

POLICIES = load_policies([Path(__file__).parents[2] / "examples" / "policies" / "chat.yaml"])
KEY = POLICIES[0].pools[0].key
PROFILE = POLICIES[0].pools[0].profile
T0 = 1_790_000_000.0
WARM = Step(kind=StepKind.WARM, pool=KEY, replica="chat.main.1.0")
DRAIN = Step(kind=StepKind.DRAIN, pool=KEY, replica="chat.main.0.0")
FULL = JournalFullError("journal.jsonl: journal cannot be written: No space left on device; free space or move it")


@dataclass
class Fakes:
    """Every seam of the loop. One sweep looks at the fleet and moves the clock on by `sweep_s`."""

    now_s: float = T0
    sweep_s: float = 1.0
    sweeps: int = 0
    on_sweep: Callable[[int], None] = lambda _: None
    fleet_fails: bool = False
    step_fails: set[str] = field(default_factory=set)
    detail: str = ""
    steps: tuple[Step, ...] = ()
    refused: tuple[Receipt, ...] = ()
    applied: list[Step] = field(default_factory=list)
    planned_from: list[Decision] = field(default_factory=list)
    published: list[Membership] = field(default_factory=list)
    sight_fails: Exception | None = None
    sight_waits: threading.Event | None = None
    observing: int = 0
    most_observing: int = 0
    observed_at_s: list[float] = field(default_factory=list)
    journal_fails: Exception | None = None
    records: list[TickRecord] = field(default_factory=list)
    shown: list[Ticked] = field(default_factory=list)
    show_fails: bool = False

    def clock(self) -> float:
        return self.now_s

    # Actuator; a look without steps in force is the first of its sweep
    def membership(self, now_s: float) -> Membership:
        if self.fleet_fails:
            msg = "the state folder is gone"
            raise OSError(msg)
        replica = Replica(name="chat.main.0.0", pool=KEY, state=ReplicaState.STARTING, ordered_at_s=T0)
        return Membership(taken_at_s=now_s, replicas=(replica,))

    def apply(self, step: Step, now_s: float) -> Receipt:
        assert now_s <= self.now_s
        self.applied.append(step)
        if step.replica in self.step_fails:
            msg = "no such process"
            raise ProcessLookupError(msg)
        return Receipt(step=step, accepted=True, detail=self.detail)

    # GatewayPort
    async def publish(self, policies: Sequence[ServicePolicy], membership: Membership) -> None:
        assert policies == POLICIES
        self.published.append(membership)

    def acked(self) -> bool:
        return True

    # Planner
    def plan(self, decision: Decision, membership: Membership, *, gateway_acked: bool, now_s: float) -> Plan:
        assert gateway_acked
        assert membership.taken_at_s == now_s
        self.planned_from.append(decision)
        return Plan(decision_sequence=decision.sequence, steps=self.steps, refused=self.refused)

    # JournalPort
    def append(self, record: TickRecord) -> None:
        if self.journal_fails is not None:
            raise self.journal_fails
        self.records.append(record)

    # Sight
    def observe(self, policies: Sequence[ServicePolicy], membership: Membership, now_s: float) -> Observation:
        assert policies == POLICIES
        assert membership.replicas
        self.observed_at_s.append(now_s)
        self.observing += 1
        self.most_observing = max(self.most_observing, self.observing)
        try:
            if self.sight_waits is not None:
                assert self.sight_waits.wait(20.0)
            if self.sight_fails is not None:
                raise self.sight_fails
        finally:
            self.observing -= 1
        return Observation(observed_at_s=now_s, services=())

    def histories(
        self, policies: Sequence[ServicePolicy], now_s: float, span_s: float, step_s: float
    ) -> tuple[History, ...]:
        assert policies
        assert now_s
        assert span_s > step_s
        return ()

    def show(self, ticked: Ticked, status: LoopStatus) -> None:
        assert status.membership is not None
        if self.show_fails:
            msg = "no terminal"
            raise RuntimeError(msg)
        self.shown.append(ticked)

    def build(self, *, decide_every_s: float = 3.0, resumed: TickRecord | None = None) -> Loop:
        return Loop(
            policies=POLICIES,
            ports=Ports(
                sight=self,
                profiles={PROFILE: load_profile(PROFILE)},
                cold_starts=lambda _: (),
                nodes=None,
                scrape_interval_s=1.0,
                decide_every_s=decide_every_s,
            ),
            actuator=self,
            gateway=self,
            planner=self.plan,
            journal=self,
            settings=LoopSettings(sweep_every_s=0.01, decide_every_s=decide_every_s),
            clock=self.clock,
            on_tick=self.show,
            interventions=no_interventions,
            resumed=resumed,
        )

    async def sweep(self, loop: Loop, times: int) -> None:
        """Run the loop for a number of sweeps; `on_sweep` is called before each, and once after the stop."""
        stop = asyncio.Event()
        wait = loop_module._wait

        async def next_sweep(stopping: asyncio.Event, seconds: float) -> None:
            await wait(stopping, seconds)
            if self.sight_waits is None:  # a tick ends before the next sweep, unless it is meant to hang
                ticks = [t for t in asyncio.all_tasks() if getattr(t.get_coro(), "__name__", "") == "_tick"]
                await asyncio.gather(*ticks)
            self.now_s += self.sweep_s
            self.sweeps += 1
            if self.sweeps > times:
                stopping.set()
            self.on_sweep(self.sweeps)

        self.sweeps = 1
        self.on_sweep(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop_module, "_wait", next_sweep)
            await loop.run(stop)


def no_interventions(now_s: float) -> tuple[Intervention, ...]:
    assert now_s
    return ()


@pytest.fixture
def fakes() -> Fakes:
    return Fakes()


async def test_tick_is_journalled_then_in_force_then_shown(fakes: Fakes) -> None:
    loop = fakes.build()
    assert loop.ready_reasons() == ("no decision yet",)
    await fakes.sweep(loop, 3)
    assert [r.decision.sequence for r in fakes.records] == [1]
    assert {d.sequence for d in fakes.planned_from} == {1}
    assert [t.record for t in fakes.shown] == fakes.records
    assert loop.ready_reasons() == ()


async def test_ticks_keep_their_phase(fakes: Fakes) -> None:
    await fakes.sweep(fakes.build(decide_every_s=3.0), 9)
    assert fakes.observed_at_s == [T0, T0 + 3, T0 + 6]


async def test_journal_full_keeps_the_decision_before_and_its_memory_and_recovers(fakes: Fakes) -> None:
    loop = fakes.build()

    def disk(sweep: int) -> None:
        fakes.journal_fails = FULL if 4 <= sweep < 10 else None
        if sweep == 9:
            assert FULL.args[0] in loop.ready_reasons()
            assert {d.sequence for d in fakes.planned_from} == {1}

    fakes.on_sweep = disk
    await fakes.sweep(loop, 12)
    first, second = fakes.records
    # The ticks at 4 and 7 were decided and dropped: the next one starts where the last journalled one ended.
    assert len(fakes.observed_at_s) == 4
    assert second.inputs.memory == first.memory_after
    assert second.decision.sequence == first.decision.sequence + 1
    assert loop.ready_reasons() == ()
    assert [t.record for t in fakes.shown] == fakes.records


async def test_journal_full_at_the_first_tick_moves_nothing(fakes: Fakes) -> None:
    fakes.journal_fails = FULL
    fakes.steps = (WARM,)
    loop = fakes.build()
    await fakes.sweep(loop, 5)
    assert fakes.applied == []
    assert loop.ready_reasons() == (FULL.args[0], "no decision yet")


async def test_tick_that_raises_stops_neither_sweeps_nor_later_ticks(fakes: Fakes) -> None:
    loop = fakes.build()

    def sight(sweep: int) -> None:
        fakes.sight_fails = RuntimeError("a bug in observe") if 4 <= sweep < 7 else None
        if sweep == 6:
            assert "RuntimeError: a bug in observe" in loop.ready_reasons()

    fakes.on_sweep = sight
    await fakes.sweep(loop, 9)
    assert [r.decision.sequence for r in fakes.records] == [1, 2]
    assert len(fakes.published) >= 9
    assert loop.ready_reasons() == ()


async def test_hanging_tick_blocks_no_sweep_and_no_second_tick_starts(fakes: Fakes) -> None:
    loop = fakes.build(decide_every_s=3.0)
    fakes.sight_waits = threading.Event()
    waits = fakes.sight_waits
    seen: list[int] = []

    def release(sweep: int) -> None:
        seen.append(len(fakes.published))
        if sweep == 21:  # the stop has come
            waits.set()

    fakes.on_sweep = release
    await fakes.sweep(loop, 20)
    assert seen[19] >= 19  # one look each sweep, all while the tick hung
    assert fakes.most_observing == 1
    assert fakes.observed_at_s == [T0]
    assert [r.inputs.now_s for r in fakes.records] == [T0]  # stop waited for it


async def test_tick_that_took_long_is_not_made_up_for(fakes: Fakes) -> None:
    assert loop_module._next_tick_s(T0 + 15.0, T0 + 100.0, 15.0) == T0 + 105.0
    assert loop_module._next_tick_s(T0 + 15.0, T0 + 15.0, 15.0) == T0 + 30.0
    assert loop_module._next_tick_s(T0 + 15.0, T0 + 30.0, 15.0) == T0 + 45.0
    fakes.sweep_s = 10.0  # each sweep longer than the period between ticks
    await fakes.sweep(fakes.build(decide_every_s=3.0), 4)
    assert fakes.observed_at_s == [T0, T0 + 10, T0 + 20, T0 + 30]


async def test_ticks_go_on_when_the_wall_clock_is_set_back(fakes: Fakes) -> None:
    def set_back(sweep: int) -> None:
        if sweep == 4:
            fakes.now_s -= 3600.0

    fakes.on_sweep = set_back
    await fakes.sweep(fakes.build(decide_every_s=3.0), 10)
    assert len([at_s for at_s in fakes.observed_at_s if at_s < T0]) >= 2


async def test_failing_sweep_is_retried(fakes: Fakes) -> None:
    loop = fakes.build()
    fakes.steps = (WARM,)

    def fleet(sweep: int) -> None:
        fakes.fleet_fails = sweep <= 2
        if sweep == 2:
            assert "OSError: the state folder is gone" in loop.ready_reasons()

    fakes.on_sweep = fleet
    await fakes.sweep(loop, 9)
    assert loop.status.sweep_error == ""
    assert fakes.applied
    assert fakes.records


async def test_gateway_is_published_nothing_before_the_fleet_has_been_seen(fakes: Fakes) -> None:
    def fleet(sweep: int) -> None:
        fakes.fleet_fails = sweep <= 3
        assert bool(fakes.published) == (sweep > 4)  # an empty fleet that nobody looked at takes endpoints away

    fakes.on_sweep = fleet
    await fakes.sweep(fakes.build(), 5)


async def test_step_that_raises_keeps_no_other_step_from_being_taken(fakes: Fakes) -> None:
    loop = fakes.build(decide_every_s=1.0)
    fakes.steps = (WARM, DRAIN)
    fakes.step_fails = {WARM.replica}
    await fakes.sweep(loop, 5)
    assert DRAIN in fakes.applied
    assert loop.status.sweep_error == "ProcessLookupError: no such process"
    noted = [r for record in fakes.records for r in record.receipts]
    assert Receipt(step=WARM, accepted=False, detail="ProcessLookupError: no such process") in noted
    assert Receipt(step=DRAIN, accepted=True) in noted


async def test_receipts_and_refusals_are_in_the_next_record_exactly_once(fakes: Fakes) -> None:
    fakes.steps = (WARM,)
    fakes.refused = (Receipt(step=replace(WARM, replica="chat.main.1.1"), accepted=False, detail="not placed: full"),)
    await fakes.sweep(fakes.build(decide_every_s=3.0), 12)
    assert len(fakes.applied) >= 9  # the plan is carried out in each sweep
    assert [len(r.receipts) for r in fakes.records] == [0, 2, 0, 0]
    assert set(fakes.records[1].receipts) == {Receipt(step=WARM, accepted=True), *fakes.refused}


async def test_receipt_is_noted_again_when_it_changes_or_comes_back(fakes: Fakes) -> None:
    fakes.steps = (DRAIN,)

    def drain(sweep: int) -> None:
        fakes.detail = "told to end" if sweep < 5 else "draining"
        fakes.steps = () if sweep == 8 else (DRAIN,)

    fakes.on_sweep = drain
    await fakes.sweep(fakes.build(decide_every_s=1.0), 12)
    details = [r.detail for record in fakes.records for r in record.receipts]
    assert details == ["told to end", "draining", "draining"]


async def test_receipts_wait_for_a_journal_that_can_be_written_and_are_bounded(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "MAX_RECEIPTS", 3)

    def disk(sweep: int) -> None:
        fakes.steps = (replace(WARM, replica=f"chat.main.1.{sweep}"),)
        fakes.journal_fails = FULL if 2 <= sweep < 12 else None

    fakes.on_sweep = disk
    await fakes.sweep(fakes.build(decide_every_s=1.0), 12)
    assert [r.step.replica for r in fakes.records[-1].receipts] == [f"chat.main.1.{n}" for n in (10, 11, 12)]


async def test_resumed_decision_and_memory_are_used(fakes: Fakes) -> None:
    await fakes.sweep(fakes.build(), 5)
    resumed = fakes.records[-1]
    again = Fakes(now_s=fakes.now_s)
    loop = again.build(resumed=resumed)
    assert loop.ready_reasons() == ()
    again.sight_waits = threading.Event()
    again.on_sweep = lambda sweep: again.sight_waits.set() if sweep == 3 and again.sight_waits else None
    await again.sweep(loop, 3)
    assert again.planned_from[0] == resumed.decision  # in force before the first tick is done
    assert again.records[0].inputs.memory == resumed.memory_after
    assert again.records[0].decision.sequence == resumed.decision.sequence + 1


async def test_resumed_decision_loses_pools_that_no_policy_names_any_more(fakes: Fakes) -> None:
    await fakes.sweep(fakes.build(), 2)
    (pool,) = fakes.records[-1].decision.pools
    gone = replace(pool, key=PoolKey(service="retired", pool="main"))
    decision = replace(fakes.records[-1].decision, pools=(gone, pool))
    again = Fakes(now_s=fakes.now_s)
    await again.sweep(again.build(resumed=replace(fakes.records[-1], decision=decision)), 3)
    assert {p.key for d in again.planned_from for p in d.pools} == {KEY}
    assert again.records


async def test_resumed_decision_waits_for_a_tick_when_its_policy_was_changed(fakes: Fakes) -> None:
    await fakes.sweep(fakes.build(), 5)
    before = replace(POLICIES[0], priority=POLICIES[0].priority + 1)
    resumed = replace(fakes.records[-1], inputs=replace(fakes.records[-1].inputs, policies=(before,)))
    again = Fakes(now_s=fakes.now_s)
    await again.sweep(again.build(resumed=resumed), 3)
    assert again.planned_from[0].pools == ()  # the first sweep comes before the first tick
    assert [p.key for p in again.planned_from[-1].pools] == [KEY]
    assert again.records[0].inputs.memory == resumed.memory_after


async def test_picture_that_cannot_be_drawn_changes_no_decision(fakes: Fakes) -> None:
    fakes.show_fails = True
    loop = fakes.build()
    await fakes.sweep(loop, 7)
    assert [r.decision.sequence for r in fakes.records] == [1, 2, 3]
    assert loop.status.show_error == "RuntimeError: no terminal"
    assert loop.ready_reasons() == ()
