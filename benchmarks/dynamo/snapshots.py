"""What their simulator's snapshots say, as signals: load since the start, and each engine as it last reported."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from benchmarks.dynamo.engine import BLOCK_TOKENS, BLOCKS

from tidegate.terms.fleet import PoolKey, Replica, ReplicaState
from tidegate.terms.observation import EngineDetail, PoolObservation, ReplicaObservation, ServiceObservation
from tidegate.terms.signal import Signal, UnknownReason, combine, reading, unknown

ROLES = ("prefill", "decode")
LENGTHS_WEIGHT = 200.0  # requests that the running mean of lengths stands on at most
_SOURCE = "replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The load between two snapshots; lengths are of the requests that were answered in it."""

    until_s: float
    seconds: float
    requests: float
    answered: float
    prompt_tokens: float  # summed
    output_tokens: float


@dataclass(slots=True, kw_only=True)
class Snapshots:
    """Everything taken so far; rates are over the windows of the last `rate_window_s`."""

    rate_window_s: float
    lengths: tuple[float, float, float] = (0.0, 0.0, 0.0)  # weight in requests, mean prompt, mean output tokens
    _windows: deque[Window] = field(default_factory=deque)
    _engines: dict[str, dict[int, dict[str, Any]]] = field(default_factory=lambda: {role: {} for role in ROLES})
    _last: dict[str, Any] = field(default_factory=dict)
    _since: dict[tuple[str, int], tuple[float, float | None]] = field(default_factory=dict)

    @property
    def now_s(self) -> float:
        """Time of the last snapshot."""
        return float(self._last["now_ms"]) / 1000.0

    def take(self, snapshot: dict[str, Any]) -> Window:
        """Take one in; return the load since the one before."""
        self._last = snapshot
        traffic = snapshot["traffic"]
        answered = float(traffic["shape_count"])
        window = Window(
            until_s=self.now_s,
            seconds=float(traffic["duration_s"]),
            requests=float(traffic["num_req"]),
            answered=answered,
            prompt_tokens=answered * float(traffic["avg_isl"]),
            output_tokens=answered * float(traffic["avg_osl"]),
        )
        self._windows.append(window)
        while self._windows[0].until_s <= self.now_s - self.rate_window_s:
            self._windows.popleft()
        weight, prompt, output = self.lengths
        if answered > 0.0:
            both = weight + answered
            mean_prompt = (weight * prompt + window.prompt_tokens) / both
            self.lengths = (min(LENGTHS_WEIGHT, both), mean_prompt, (weight * output + window.output_tokens) / both)
        for role in ROLES:
            engines = self._engines[role]
            engines |= {int(found["worker_id"]): found for found in snapshot[f"{role}_fpm_snapshots"]}
            for gone in set(engines) - set(snapshot[f"active_{role}_ids"]):
                del engines[gone]
        return window

    def service(self, name: str, pools: tuple[PoolObservation, ...]) -> ServiceObservation:
        """Return a service of these pools under the whole load."""
        answered = sum(w.answered for w in self._windows)
        return ServiceObservation(
            service=name,
            arrivals_per_s=self._read(self._per_s([w.requests for w in self._windows])),
            prompt_tokens_mean=self._mean(sum(w.prompt_tokens for w in self._windows), answered),
            output_tokens_mean=self._mean(sum(w.output_tokens for w in self._windows), answered),
            failed_per_s=self._lost("not in a snapshot"),
            slis=(),
            pools=pools,
        )

    def pool(self, key: PoolKey, role: str) -> PoolObservation:
        """Return one role's engines as a pool."""
        states = (
            (ReplicaState.READY, f"active_{role}_ids"),
            (ReplicaState.STARTING, f"starting_{role}_ids"),
            (ReplicaState.DRAINING, f"draining_{role}_ids"),
        )
        members = [self._replica(key, role, n, state) for state, name in states for n in self._last[name]]
        ready = [m for m in members if m.replica.state is ReplicaState.READY]

        def total(signals: list[Signal]) -> Signal:
            return combine(signals, expected=len(ready), source=_SOURCE, now_s=self.now_s)

        return PoolObservation(
            key=key,
            replicas=tuple(sorted(members, key=lambda m: m.replica.name)),
            running_requests=total([m.running_requests for m in ready]),
            waiting_requests=total([m.waiting_requests for m in ready]),
            finished_per_s=self._read(self._per_s([w.answered for w in self._windows])),
            output_tokens_per_s=self._lost("not in a snapshot"),
            gateway_in_flight_requests=self._lost("not in a snapshot"),
            gateway_pending_requests=self._read(0.0),  # their router holds none while an engine is ready
        )

    def _replica(self, key: PoolKey, role: str, number: int, state: ReplicaState) -> ReplicaObservation:
        ordered_s, ready_s = self._since.get((role, number), (self.now_s, None))
        if state is ReplicaState.READY and ready_s is None:
            ready_s = self.now_s
        self._since[role, number] = (ordered_s, ready_s)
        seen = self._engines[role].get(number)
        # An engine that has not run a pass holds nothing: their router gives it work within one arrival.
        running, waiting = (seen[f"num_{role}_requests"], seen[f"num_queued_{role}"]) if seen else (0, 0)
        absent = self._lost("not in a snapshot")
        return ReplicaObservation(
            replica=Replica(
                name=f"{role}-{number:04d}", pool=key, state=state, ordered_at_s=ordered_s, ready_at_s=ready_s
            ),
            running_requests=self._read(float(running)),
            waiting_requests=self._read(float(waiting)),
            kv_used_ratio=absent,
            finished_per_s=absent,
            prompt_tokens_per_s=absent,
            output_tokens_per_s=absent,
            preemptions_per_s=absent,
            engine=self._detail(seen),
        )

    def _detail(self, seen: dict[str, Any] | None) -> EngineDetail | None:
        if seen is None:
            return None
        return EngineDetail(
            kv_capacity_tokens=self._read(float(BLOCKS * BLOCK_TOKENS)),
            waiting_prompt_tokens=self._read(float(seen.get("sum_queued_prefill_tokens", 0))),
            context_tokens=self._read(float(seen.get("sum_decode_kv_tokens", 0))),
        )

    def _per_s(self, counts: list[float]) -> float:
        return sum(counts) / sum(w.seconds for w in self._windows)

    def _mean(self, tokens: float, requests: float) -> Signal:
        return self._read(tokens / requests) if requests > 0.0 else self._lost("no request was answered")

    def _lost(self, detail: str) -> Signal:
        return unknown(UnknownReason.ABSENT, detail, now_s=self.now_s, source=_SOURCE)

    def _read(self, number: float) -> Signal:
        return reading(number, sampled_at_s=self.now_s, coverage_ratio=1.0, source=_SOURCE)
