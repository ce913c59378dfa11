"""The controller's loop: a sweep each second (membership, endpoints, steps) and a tick each few seconds (decide).

A tick may block for as long as Prometheus' deadlines allow; it runs in a thread, so drains and endpoint removal never
wait for it. A decision takes effect only once the journal holds it.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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

# Between two sweeps even when one took longer than its period: the event loop has a page to serve too.
_LEAST_WAIT_S = 0.05


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
    show_error: str = ""  # of the page and the live table; no reason to be called not ready
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
    _receipts: list[Receipt] = field(default_factory=list)  # for the next record
    _said: dict[Step, Receipt] = field(default_factory=dict)  # what the sweep before said of each step

    def __post_init__(self) -> None:
        if self.resumed is None:
            self._before = Before(memory=Memory(), capacity=())
            self._decision = None
        else:
            self._before = Before(memory=self.resumed.memory_after, capacity=self.resumed.inputs.capacity)
            # A decision under another policy may be outside the bounds, or act where only advice is wanted now: those
            # pools wait for the first tick. A pool that no policy names any more is for its owner to end.
            same = set(self.policies) & set(self.resumed.inputs.policies)
            kept = tuple(p for p in self.resumed.decision.pools if p.key in {o.key for s in same for o in s.pools})
            self._decision = replace(self.resumed.decision, pools=kept)

    async def run(self, stop: asyncio.Event) -> None:
        """Sweep and tick until `stop` is set; a tick under way is awaited."""
        ticking: asyncio.Task[None] | None = None
        next_tick_s = self.clock()
        while not stop.is_set():
            started_s = self.clock()
            await self._sweep(started_s)
            if ticking is None or ticking.done():
                # A tick further away than one period: the wall clock was set back.
                next_tick_s = min(next_tick_s, started_s + self.settings.decide_every_s)
                if started_s >= next_tick_s:
                    ticking = asyncio.create_task(self._tick(started_s))
                    next_tick_s = _next_tick_s(next_tick_s, started_s, self.settings.decide_every_s)
            left_s = self.settings.sweep_every_s - (self.clock() - started_s)
            # The upper bound counts when the clock is set back during a sweep.
            await _wait(stop, min(max(_LEAST_WAIT_S, left_s), self.settings.sweep_every_s))
        if ticking is not None:
            await ticking

    async def _sweep(self, now_s: float) -> None:
        try:
            membership = await self._look(now_s)
            self.status.gateway_acked = self.gateway.acked()
            failed = ""
            if self._decision is not None:
                failed = await self._carry_out(self._decision, membership, now_s)
                await self._look(now_s)
            self.status.sweep_error = failed
        except Exception as exc:
            # One bad sweep must not end the controller: everything it does is idempotent and is tried again.
            log.exception("sweep failed")
            self.status.sweep_error = _named(exc)

    async def _look(self, now_s: float) -> Membership:
        """Return the fleet as it is, known to the gateway and to the next tick."""
        membership = await asyncio.to_thread(self.actuator.membership, now_s)
        self.status.membership = membership
        await self.gateway.publish(self.policies, membership)
        return membership

    async def _carry_out(self, decision: Decision, membership: Membership, now_s: float) -> str:
        """Take the steps still missing; return what went wrong, empty when nothing did."""
        plan = self.planner(decision, membership, gateway_acked=self.status.gateway_acked, now_s=now_s)
        receipts: list[Receipt] = []
        failed = ""
        for step in plan.steps:
            try:
                receipts.append(await asyncio.to_thread(self.actuator.apply, step, now_s))
            except Exception as exc:
                # One step that cannot be taken must not keep the others, of other pools too, from being taken.
                log.exception("step failed kind=%s pool=%s replica=%s", step.kind, step.pool, step.replica)
                failed = _named(exc)
                receipts.append(Receipt(step=step, accepted=False, detail=failed))
        self._note([*receipts, *plan.refused])
        return failed

    def _note(self, receipts: Sequence[Receipt]) -> None:
        """Keep for the next record what was not said of the same step by the sweep before.

        A drain is planned again every second until it ends: noted each time it would fill the journal.
        """
        news = [r for r in receipts if self._said.get(r.step) != r]
        for receipt in news:
            step = receipt.step
            log.info(
                "step kind=%s pool=%s replica=%s accepted=%s detail=%s",
                step.kind, step.pool, step.replica, receipt.accepted, receipt.detail,
            )  # fmt: skip
        self._said = {r.step: r for r in receipts}
        self._keep([*self._receipts, *news])

    def _keep(self, receipts: list[Receipt]) -> None:
        self._receipts = receipts[-MAX_RECEIPTS:]

    async def _tick(self, now_s: float) -> None:
        membership = self.status.membership
        if membership is None:
            return  # no sweep could look yet: nothing to join metrics with
        self.status.last_tick_started_at_s = now_s
        # Taken out, not copied: the sweeps go on meanwhile and may drop the oldest.
        taken, self._receipts = tuple(self._receipts), []
        try:
            ticked = await asyncio.to_thread(self._decided, membership, self.interventions(now_s), taken, now_s=now_s)
        except JournalFullError as exc:
            # What cannot be remembered is not done: the decision before stays in force.
            log.error("journal unwritable, decision dropped: %s", exc)  # noqa: TRY400  (expected, no trace needed)
            self._keep([*taken, *self._receipts])
            self.status.journal_error, self.status.tick_error = str(exc), ""
            return
        except Exception as exc:
            log.exception("tick failed")
            self._keep([*taken, *self._receipts])
            self.status.tick_error = _named(exc)
            return
        self.status.journal_error = self.status.tick_error = ""
        self.status.last_tick_duration_s = self.clock() - now_s
        self._before = Before(memory=ticked.record.memory_after, capacity=ticked.record.inputs.capacity)
        self._decision = ticked.record.decision
        self._show(ticked)

    def _decided(
        self,
        membership: Membership,
        interventions: tuple[Intervention, ...],
        receipts: tuple[Receipt, ...],
        *,
        now_s: float,
    ) -> Ticked:
        """Return the tick once the journal holds it; blocks, so it runs in a thread."""
        ticked = tick(
            self.policies,
            membership,
            self._before,
            ports=self.ports,
            interventions=interventions,
            receipts=receipts,
            now_s=now_s,
        )
        self.journal.append(ticked.record)
        return ticked

    def _show(self, ticked: Ticked) -> None:
        try:
            self.on_tick(ticked, self.status)
            self.status.show_error = ""
        except Exception as exc:
            # The decision is in force and in the journal; a picture that cannot be drawn changes nothing of that.
            log.exception("showing the tick failed")
            self.status.show_error = _named(exc)

    def ready_reasons(self) -> tuple[str, ...]:
        """Return why the controller is not ready; empty when it is."""
        found = [e for e in (self.status.journal_error, self.status.sweep_error, self.status.tick_error) if e]
        if self._decision is None:
            found.append("no decision yet")
        return tuple(found)


def _next_tick_s(planned_s: float, started_s: float, every_s: float) -> float:
    """Return when the tick after the one started now is due: ticks keep their phase, missed ones are not made up for.

    Planned at 15, started at 100, every 15: 105.
    """
    return planned_s + every_s * (1 + math.floor((started_s - planned_s) / every_s))


def _named(exc: Exception) -> str:
    return f"{type(exc).__name__}: {exc}"


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
