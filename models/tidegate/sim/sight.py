"""What a controller would see of the simulated fleet: scraped gauges and rates, as old as the last scrape."""

import bisect
import math
from dataclasses import dataclass, field

from tidegate.perf.profile import PS_PER_S
from tidegate.sim.fleet import FleetSim, Member
from tidegate.sim.outcome import measured, met
from tidegate.terms.fleet import PoolKey, Replica, ReplicaState
from tidegate.terms.forecast import Quantity
from tidegate.terms.history import History
from tidegate.terms.observation import Observation, PoolObservation, ReplicaObservation, ServiceObservation, SliReading
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.signal import Signal, UnknownReason, combine, reading, unknown
from tidegate.terms.slo import Slo

_SOURCE = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """One replica at one scrape."""

    running: int
    waiting: int
    kv_used_ratio: float
    finished: int
    prompt_tokens: int
    output_tokens: int
    preemptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scrape:
    """The gateway's counters and every living replica at one moment."""

    at_s: float
    arrived: int
    refused: int
    prompt_tokens: int
    output_tokens: int
    in_flight: int
    replicas: dict[str, _Sample]


@dataclass(slots=True, kw_only=True)
class Sight:
    """Scrapes the fleet when told to, and answers from the scrapes alone.

    Args:
        fleet: Looked at by `scrape` only; membership is the actuator's own knowledge and always fresh.
        policy: Exactly one pool.
        rate_window_s: Rates are over this long, > one scrape interval.
    """

    fleet: FleetSim
    policy: ServicePolicy
    rate_window_s: float
    _scrapes: list[_Scrape] = field(default_factory=list)
    _times_s: list[float] = field(default_factory=list)

    def scrape(self) -> None:
        """Take one sample of everything, now."""
        fleet, now_s = self.fleet, self.fleet.now_ps / PS_PER_S
        self._times_s.append(now_s)
        living = [m for m in fleet.members if m.ended_ps is None and m.state is not ReplicaState.STARTING]
        self._scrapes.append(
            _Scrape(
                at_s=now_s,
                arrived=fleet.arrived,
                refused=fleet.refused,
                prompt_tokens=fleet.prompt_tokens,
                output_tokens=fleet.output_tokens,
                in_flight=sum(m.engine.live for m in living),
                replicas={m.name: _sample(m, fleet.now_ps) for m in living},
            )
        )

    def observe(self, now_s: float) -> Observation:
        """Return the fleet as the last scrapes show it; before the first one every signal is unknown."""
        key = self.policy.pools[0].key
        members = [m for m in self.fleet.members if m.ended_ps is None]
        replicas = tuple(self._replica(m, key, now_s) for m in sorted(members, key=lambda m: m.name))
        ready = [r for r in replicas if r.replica.state is ReplicaState.READY]

        def total(signals: list[Signal]) -> Signal:
            return combine(signals, expected=len(ready), source=_SOURCE, now_s=now_s)

        pool = PoolObservation(
            key=key,
            replicas=replicas,
            running_requests=total([r.running_requests for r in ready]),
            waiting_requests=total([r.waiting_requests for r in ready]),
            finished_per_s=total([r.finished_per_s for r in ready]),
            output_tokens_per_s=total([r.output_tokens_per_s for r in ready]),
            gateway_in_flight_requests=self._gauge(now_s),
            gateway_pending_requests=self._pending(now_s),
        )
        arrived = self._increase("arrived", now_s)
        service = ServiceObservation(
            service=self.policy.name,
            arrivals_per_s=self._rate("arrived", now_s),
            prompt_tokens_mean=self._mean("prompt_tokens", arrived, now_s),
            output_tokens_mean=self._mean("output_tokens", arrived, now_s),
            failed_per_s=self._rate("refused", now_s),
            slis=tuple(self._sli(slo, now_s) for slo in self.policy.slos),
            pools=(pool,),
        )
        return Observation(observed_at_s=now_s, services=(service,))

    def histories(self, now_s: float, *, step_s: float, steps: int) -> tuple[History, ...]:
        """Return past arrival and token rates on multiples of `step_s`; none where no full window was scraped."""
        fields = {
            Quantity.REQUESTS_PER_S: "arrived",
            Quantity.PROMPT_TOKENS_PER_S: "prompt_tokens",
            Quantity.OUTPUT_TOKENS_PER_S: "output_tokens",
        }
        last = math.floor(now_s / step_s)
        grid = [k * step_s for k in range(max(0, last - steps + 1), last + 1)]
        return tuple(
            History(
                service=self.policy.name,
                quantity=quantity,
                step_s=step_s,
                samples=tuple((t, rate) for t in grid if (rate := self._rate_at(name, t)) is not None),
                source=_SOURCE,
            )
            for quantity, name in fields.items()
        )

    def _replica(self, member: Member, key: PoolKey, now_s: float) -> ReplicaObservation:
        ready_s = _seconds(member.ready_ps)
        replica = Replica(
            name=member.name,
            pool=key,
            state=member.state,
            address=f"{member.name}:8000",
            ordered_at_s=member.ordered_ps / PS_PER_S,
            ready_at_s=ready_s,
            draining_since_s=_seconds(member.draining_since_ps),
        )

        def gauge(name: str) -> Signal:
            sample = self._scrapes[-1].replicas.get(member.name) if self._scrapes else None
            if sample is None:
                return unknown(UnknownReason.ABSENT, "not scraped yet", now_s=now_s, source=_SOURCE)
            return self._read(float(getattr(sample, name)))

        def rate(name: str) -> Signal:
            pair = self._window(now_s)
            ends = [s.replicas.get(member.name) for s in pair] if pair else []
            if len(ends) < 2 or ends[0] is None or ends[1] is None or pair is None:  # noqa: PLR2004
                return unknown(UnknownReason.TOO_YOUNG, "scraped for less than the window", now_s=now_s, source=_SOURCE)
            return self._read((getattr(ends[1], name) - getattr(ends[0], name)) / (pair[1].at_s - pair[0].at_s))

        return ReplicaObservation(
            replica=replica,
            running_requests=gauge("running"),
            waiting_requests=gauge("waiting"),
            kv_used_ratio=gauge("kv_used_ratio"),
            finished_per_s=rate("finished"),
            prompt_tokens_per_s=rate("prompt_tokens"),
            output_tokens_per_s=rate("output_tokens"),
            preemptions_per_s=rate("preemptions"),
        )

    def _window(self, at_s: float) -> tuple[_Scrape, _Scrape] | None:
        """Return the newest scrape at `at_s` and the one a window before it; None until a full window was scraped."""
        last = bisect.bisect_right(self._times_s, at_s) - 1
        if last < 0:
            return None
        first = bisect.bisect_right(self._times_s, self._times_s[last] - self.rate_window_s) - 1
        return (self._scrapes[first], self._scrapes[last]) if first >= 0 else None

    def _rate_at(self, name: str, at_s: float) -> float | None:
        pair = self._window(at_s)
        if pair is None:
            return None
        return float(getattr(pair[1], name) - getattr(pair[0], name)) / (pair[1].at_s - pair[0].at_s)

    def _rate(self, name: str, now_s: float) -> Signal:
        rate = self._rate_at(name, now_s)
        if rate is None:
            return unknown(UnknownReason.TOO_YOUNG, "scraped for less than the window", now_s=now_s, source=_SOURCE)
        return self._read(rate)

    def _increase(self, name: str, now_s: float) -> float:
        pair = self._window(now_s)
        return float(getattr(pair[1], name) - getattr(pair[0], name)) if pair else 0.0

    def _mean(self, name: str, arrived: float, now_s: float) -> Signal:
        if not arrived:
            return unknown(UnknownReason.NOT_A_NUMBER, "no request in the window", now_s=now_s, source=_SOURCE)
        return self._read(self._increase(name, now_s) / arrived)

    def _gauge(self, now_s: float) -> Signal:
        if not self._scrapes:
            return unknown(UnknownReason.ABSENT, "not scraped yet", now_s=now_s, source=_SOURCE)
        return self._read(float(self._scrapes[-1].in_flight))

    def _pending(self, now_s: float) -> Signal:
        # Without an endpoint the gateway answers 503 at once: it never holds a request.
        return self._read(0.0) if self._scrapes else self._gauge(now_s)

    def _read(self, number: float) -> Signal:
        return reading(number, sampled_at_s=self._times_s[-1], coverage_ratio=1.0, source=_SOURCE)

    def _sli(self, slo: Slo, now_s: float) -> SliReading:
        until_s = self._times_s[-1] if self._times_s else 0.0
        since_ps = round((until_s - self.rate_window_s) * PS_PER_S)
        ended = self.fleet.ended_within(since_ps, round(until_s * PS_PER_S)) if self._scrapes else []
        empty = unknown(UnknownReason.NOT_A_NUMBER, "no request ended in the window", now_s=now_s, source=_SOURCE)
        seen = sorted(s for o in ended if (s := measured(o, slo.indicator)) is not None)
        rank = math.ceil(slo.objective_ratio * len(seen)) - 1
        return SliReading(
            slo=slo.name,
            attained_ratio=self._read(sum(met(o, slo) for o in ended) / len(ended))
            if ended and self._scrapes
            else empty,
            quantile_s=self._read(seen[max(0, rank)]) if seen else empty,
            source="gateway (simulated)",
            threshold_s=slo.threshold_s,
        )


def _sample(member: Member, now_ps: int) -> _Sample:
    engine = member.engine
    return _Sample(
        running=engine.running,
        waiting=engine.waiting(now_ps),
        kv_used_ratio=engine.kv_used_blocks / engine.profile.kv_blocks,
        finished=member.finished,
        prompt_tokens=member.prompt_tokens,
        output_tokens=member.output_tokens,
        preemptions=member.preemptions,
    )


def _seconds(at_ps: int | None) -> float | None:
    return None if at_ps is None else at_ps / PS_PER_S
