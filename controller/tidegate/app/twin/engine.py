"""The simulated replica against the wall clock.

The loop is the simulator's own: `ReplicaSim.step_until(now)`. Deadlines are absolute model times, so a late wake-up
delays the tokens of one step and never the steps after it; when the process cannot keep up, tokens come in bursts, the
model does not drift, and the lag is on the metrics page.
"""

import asyncio
import time
from collections.abc import Callable

from tidegate.app.twin.metrics import TwinMetrics
from tidegate.perf.profile import PS_PER_S, EngineProfile
from tidegate.sim.events import SimRequest, Step
from tidegate.sim.replica import ReplicaSim

_PS_PER_NS = 1000
# Timers of the event loop count whole milliseconds: a step due within half of one goes out now rather than a
# millisecond late. Only the moment of sending moves, never the model's time.
_EARLY_PS = PS_PER_S // 2000


class Answer:
    """A request in the engine, and what to call for each of its tokens. Times in seconds since the engine began."""

    __slots__ = ("admitted_s", "arrived_s", "emitted", "first_s", "last_s", "on_token", "preemptions", "request")

    def __init__(self, request: SimRequest, on_token: Callable[[int], None], arrived_s: float) -> None:
        self.request = request
        self.on_token = on_token  # called with the count of tokens so far
        self.arrived_s = arrived_s
        self.admitted_s: float | None = None
        self.first_s = 0.0
        self.last_s = 0.0
        self.emitted = 0
        self.preemptions = 0


class PacedEngine:
    """One replica that runs in real time on an event loop."""

    def __init__(self, profile: EngineProfile, metrics: TwinMetrics, loop: asyncio.AbstractEventLoop) -> None:
        self._sim = ReplicaSim(profile)
        self._metrics = metrics
        self._loop = loop
        self._origin_ns = time.monotonic_ns()
        self._answers: dict[int, Answer] = {}
        self._last_key = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due_ps = -1
        self._step_s = 0.0  # when the step before went out
        self.on_idle: Callable[[], None] = lambda: None

    @property
    def live(self) -> int:
        """Requests not yet answered in full."""
        return len(self._answers)

    def now_ps(self) -> int:
        """Return picoseconds since the engine began."""
        return (time.monotonic_ns() - self._origin_ns) * _PS_PER_NS

    def submit(self, *, prompt_tokens: int, output_tokens: int, on_token: Callable[[int], None]) -> int | None:
        """Take a request and return its key; None when it can never fit the KV budget."""
        now_ps = self.now_ps()
        key = self._last_key + 1
        request = SimRequest(key=key, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
        if not self._sim.submit(request, now_ps):
            return None
        self._last_key = key
        self._answers[key] = Answer(request, on_token, now_ps / PS_PER_S)
        self._arm()
        return key

    def abort(self, key: int) -> None:
        """Forget a request whose client left; its KV is free at once."""
        answer = self._answers.pop(key, None)
        if answer is None:
            return
        self._sim.abort(key)
        self._metrics.aborted(answer.request.prompt_tokens, answer.emitted)
        if not self._answers:
            self.on_idle()

    def abort_all(self) -> int:
        """Forget every request; return how many there were."""
        keys = tuple(self._answers)
        for key in keys:
            self.abort(key)
        return len(keys)

    def sample(self) -> None:
        """Bring the gauges up to date, for a scrape."""
        metrics = self._metrics
        metrics.running = self._sim.running
        metrics.waiting = self._sim.waiting(self.now_ps())
        metrics.kv_used_ratio = self._sim.kv_used_blocks / self._sim.profile.kv_blocks

    def _arm(self) -> None:
        due_ps = self._sim.next_at_ps()
        if self._timer is not None:
            if due_ps == self._due_ps:
                return
            self._timer.cancel()
            self._timer = None
        if due_ps is not None:
            self._due_ps = due_ps
            delay_s = max(0, due_ps - self.now_ps()) / PS_PER_S
            self._timer = self._loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ps = self.now_ps()
        for step in self._sim.step_until(now_ps + _EARLY_PS):
            self._metrics.lagged(max(0, now_ps - step.ended_at_ps) / PS_PER_S)
            self._deliver(step, now_ps / PS_PER_S)
        self._arm()

    def _deliver(self, step: Step, now_s: float) -> None:
        """Hand out one step's tokens. Latencies are those a client sees: when tokens left, not when they were due."""
        metrics = self._metrics
        answers = self._answers
        self._note_moves(step)
        before_s = self._step_s
        on_the_beat = 0  # tokens whose gap is just this step: nearly all, so they are counted together
        for key in step.emitted:
            answer = answers[key]
            answer.emitted += 1
            if answer.emitted == 1:
                answer.first_s = now_s
                metrics.first_token(now_s - answer.arrived_s, answer.request.prompt_tokens)
            elif answer.last_s == before_s:
                on_the_beat += 1
            else:
                metrics.inter_token_s.observe(now_s - answer.last_s)
            answer.last_s = now_s
            answer.on_token(answer.emitted)
        self._step_s = now_s
        if on_the_beat:
            metrics.inter_token_s.observe(now_s - before_s, on_the_beat)
        metrics.stepped(step.decode_tokens + step.prefill_tokens, len(step.emitted), len(step.preempted))
        for key in step.finished:
            metrics.finished(answers.pop(key))
        if step.finished and not answers:
            self.on_idle()

    def _note_moves(self, step: Step) -> None:
        for key in step.preempted:
            if key in self._answers:
                self._answers[key].preemptions += 1
        for key in step.admitted:
            if key in self._answers and self._answers[key].admitted_s is None:
                self._answers[key].admitted_s = step.began_at_ps / PS_PER_S
