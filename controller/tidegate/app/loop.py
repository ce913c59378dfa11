"""The controller's loop: a sweep each second (membership, endpoints, steps) and a tick each few seconds (decide).

A tick may block for as long as Prometheus' deadlines allow; it runs in a thread, so drains and endpoint removal never
wait for it. A decision takes effect only once the journal holds it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tidegate.app.journal import JournalFullError
from tidegate.app.record import TickRecord
from tidegate.app.tick import Before, Ports, Ticked, tick
from tidegate.terms.decision import Decision, Memory
from tidegate.terms.fleet import Membership
from tidegate.terms.observation import Intervention
from tidegate.terms.plan import Plan, Receipt, Step
from tidegate.terms.policy import ServicePolicy

log = logging.getLogger("tidegate.loop")

# Receipts kept for the next journal line; beyond it the oldest are dropped (a stuck journal must not eat memory).
MAX_RECEIPTS = 1000


class Actuator(Protocol):
    """Where replicas live."""

    def membership(self, now_s: float) -> Membership:
        """Return every replica that exists; blocks for at most its own probe deadline."""
        ...

    def apply(self, step: Step, now_s: float) -> Receipt:
        """Carry out one step, idempotently."""
        ...


class GatewayPort(Protocol):
    """Where endpoints are published."""

    async def publish(self, policies: Sequence[ServicePolicy], membership: Membership) -> None:
        """Publish the endpoints of `membership`; equal content is no push."""
        ...

    def acked(self) -> bool:
        """Return whether every connected gateway has taken the newest snapshot (and at least one is connected)."""
        ...


class Planner(Protocol):
    """`actuate.plan.plan` with its fixed arguments bound."""

    def __call__(self, decision: Decision, membership: Membership, *, gateway_acked: bool, now_s: float) -> Plan:
        """Return the steps still missing."""
        ...


class JournalPort(Protocol):
    """What the loop needs of the journal."""

    def append(self, record: TickRecord) -> None:
        """Write one line durably or raise `JournalFullError`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """Periods of the two clocks."""

    sweep_every_s: float = 1.0
    decide_every_s: float = 15.0


@dataclass(slots=True)
class LoopStatus:
    """What the page and the probes may know besides the records; written by the loop only."""

    membership: Membership | None = None
    journal_error: str = ""
    sweep_error: str = ""
    tick_error: str = ""
    last_tick_started_at_s: float | None = None
    last_tick_duration_s: float | None = None
    gateway_acked: bool = False


@dataclass(slots=True, kw_only=True)
class Loop:
    """Everything one controller process does, in two clocks."""

    policies: tuple[ServicePolicy, ...]
    ports: Ports
    actuator: Actuator
    gateway: GatewayPort
    planner: Planner
    journal: JournalPort
    settings: LoopSettings
    clock: Callable[[], float]
    on_tick: Callable[[Ticked, LoopStatus], None]
    interventions: Callable[[float], tuple[Intervention, ...]]
    resumed: TickRecord | None = None  # the journal's last line
    status: LoopStatus = field(default_factory=LoopStatus)
    _before: Before = field(init=False)
    _decision: Decision | None = field(init=False)
    _receipts: list[Receipt] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.resumed is None:
            self._before = Before(memory=Memory(), capacity=())
            self._decision = None
        else:
            self._before = Before(memory=self.resumed.memory_after, capacity=self.resumed.inputs.capacity)
            self._decision = self.resumed.decision

    async def run(self, stop: asyncio.Event) -> None:
        """Sweep and tick until `stop` is set; a tick under way is awaited."""
        ticking: asyncio.Task[None] | None = None
        next_tick_s = self.clock()
        while not stop.is_set():
            started_s = self.clock()
            await self._sweep(started_s)
            if started_s >= next_tick_s and (ticking is None or ticking.done()):
                ticking = asyncio.create_task(self._tick(started_s))
                # From the plan, not from now: ticks keep their phase; a missed one is skipped, not made up for.
                next_tick_s = max(next_tick_s + self.settings.decide_every_s, started_s)
            left_s = self.settings.sweep_every_s - (self.clock() - started_s)
            await _wait(stop, max(0.05, left_s))
        if ticking is not None:
            await ticking

    async def _sweep(self, now_s: float) -> None:
        try:
            membership = await asyncio.to_thread(self.actuator.membership, now_s)
            await self.gateway.publish(self.policies, membership)
            self.status.gateway_acked = self.gateway.acked()
            if self._decision is not None:
                await self._carry_out(self._decision, membership, now_s)
                membership = await asyncio.to_thread(self.actuator.membership, now_s)
                await self.gateway.publish(self.policies, membership)
            self.status.membership = membership
            self.status.sweep_error = ""
        except Exception as exc:
            # One bad sweep must not end the controller: everything it does is idempotent and is tried again.
            log.exception("sweep failed")
            self.status.sweep_error = f"{type(exc).__name__}: {exc}"

    async def _carry_out(self, decision: Decision, membership: Membership, now_s: float) -> None:
        plan = self.planner(decision, membership, gateway_acked=self.status.gateway_acked, now_s=now_s)
        for step in plan.steps:
            receipt = await asyncio.to_thread(self.actuator.apply, step, now_s)
            log.info(
                "step kind=%s pool=%s replica=%s accepted=%s detail=%s",
                step.kind, step.pool, step.replica, receipt.accepted, receipt.detail,
            )  # fmt: skip
            self._receipts.append(receipt)
        self._receipts += plan.refused
        del self._receipts[:-MAX_RECEIPTS]

    async def _tick(self, now_s: float) -> None:
        membership = self.status.membership
        if membership is None:
            return  # the first sweep failed: nothing to join metrics with
        self.status.last_tick_started_at_s = now_s
        receipts = tuple(self._receipts)
        try:
            ticked = await asyncio.to_thread(
                tick,
                self.policies,
                membership,
                self._before,
                ports=self.ports,
                interventions=self.interventions(now_s),
                receipts=receipts,
                now_s=now_s,
            )
            await asyncio.to_thread(self.journal.append, ticked.record)
        except JournalFullError as exc:
            # What cannot be remembered is not done: the decision before stays in force.
            log.error("journal unwritable, decision dropped: %s", exc)  # noqa: TRY400  (expected, no trace needed)
            self.status.journal_error = str(exc)
            return
        except Exception as exc:
            log.exception("tick failed")
            self.status.tick_error = f"{type(exc).__name__}: {exc}"
            return
        self.status.journal_error = self.status.tick_error = ""
        self.status.last_tick_duration_s = self.clock() - now_s
        del self._receipts[: len(receipts)]
        self._before = Before(memory=ticked.record.memory_after, capacity=ticked.record.inputs.capacity)
        self._decision = ticked.record.decision
        self.on_tick(ticked, self.status)

    def ready_reasons(self) -> tuple[str, ...]:
        """Return why the controller is not ready; empty when it is."""
        found = [e for e in (self.status.journal_error, self.status.sweep_error, self.status.tick_error) if e]
        if self._decision is None:
            found.append("no decision yet")
        return tuple(found)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
