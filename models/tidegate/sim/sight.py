"""What a controller would see of the simulated fleet: scraped gauges and rates, as old as the last scrape.

Membership is the actuator's own knowledge and always fresh. Of everything else only samples are looked at, and only
what the law asks for is worked out.
"""

from collections.abc import Mapping, Sequence

from tidegate.perf.profile import PS_PER_S
from tidegate.sim.fleet_protocol import Fleet
from tidegate.sim.latencies import latency_readings, sli_readings
from tidegate.sim.membership import SOURCE, MembershipView, PoolMembers
from tidegate.sim.metric_faults import UNREADABLE, MetricFaults, Source, rows_of
from tidegate.sim.past import Past
from tidegate.sim.policies import Wants
from tidegate.sim.replica_signals import replica_observations
from tidegate.sim.sample import FleetSample
from tidegate.sim.scrapes import Scrapes
from tidegate.sim.trace import Int64Array
from tidegate.sim.window import Window
from tidegate.terms.fleet import PoolKey
from tidegate.terms.history import History
from tidegate.terms.observation import Observation, PoolObservation, ServiceObservation
from tidegate.terms.policy import PoolPolicy, ServicePolicy
from tidegate.terms.signal import Signal, UnknownReason, unknown


class Sight:
    """Scrapes the fleet when told to, and answers from the scrapes alone.

    Args:
        fleet: Sampled by `scrape`; asked for its members by `observe`.
        policy: Its pools are pools of the fleet.
        wants: What the law reads.
        faults: What happens to metrics.
        scrape_delay_s: The newest sample is at least this old, >= 0.
        past: Gathers the load's history; None when nobody forecasts.
    """

    def __init__(
        self,
        fleet: Fleet,
        *,
        policy: ServicePolicy,
        wants: Wants,
        faults: MetricFaults,
        scrape_delay_s: float = 0.0,
        past: Past | None = None,
    ) -> None:
        self._fleet = fleet
        self._policy = policy
        self._wants = wants
        self._faults = faults
        self._delay_s = scrape_delay_s
        self._past = past
        interval_ps = round(wants.scrape_interval_s * PS_PER_S)
        windows_s = (wants.rate_window_s, *(w for _, _, w in wants.latencies))
        most_delay_s = scrape_delay_s + max((faults.delay_s(f.start_s) for f in faults.faults), default=0.0)
        self._scrapes = Scrapes(
            interval_ps=interval_ps,
            keep=2 + sum(-(-round(s * PS_PER_S) // interval_ps) for s in (max(windows_s), most_delay_s)),
            faults=faults,
        )
        pools = fleet.setup.pools
        self._profiles = {p.key: p.profile for p in pools}
        self._number = {p.key: i for i, p in enumerate(pools)}
        self.membership = MembershipView(keys=tuple(p.key for p in pools), initial=sum(p.initial for p in pools))

    @property
    def scrapes_taken(self) -> int:
        """How often the fleet was scraped."""
        return self._scrapes.taken

    def scrape(self) -> None:
        """Take one sample of everything, now."""
        self._scrapes.add(self._fleet.sample())
        if self._past is not None:
            self._past.advance(self._scrapes, self._fleet.now_ps)

    def observe(self, now_s: float, pending_s: Mapping[PoolKey, Sequence[float]]) -> Observation:
        """Return the fleet as the last scrapes show it; before the first one every signal is unknown.

        Args:
            now_s: The present.
            pending_s: By pool, when each replica that has no node yet was ordered.
        """
        self.membership.update(self._fleet.members(), pending_s)
        gateway, engines = self._window(Source.GATEWAY, now_s), self._window(Source.ENGINE, now_s)
        last = gateway.last
        service = ServiceObservation(
            service=self._policy.name,
            arrivals_per_s=gateway.rate("arrived"),
            prompt_tokens_mean=_mean(gateway, "prompt_tokens"),
            output_tokens_mean=_mean(gateway, "output_tokens"),
            failed_per_s=_failed(gateway),
            slis=sli_readings(self._policy.slos, self._fleet.setup, gateway, self._since(gateway, None))
            if self._wants.slis
            else (),
            pools=tuple(self._pool(p, gateway, engines) for p in self._policy.pools),
            latencies=latency_readings(
                self._wants.latencies, self._fleet.setup, gateway, lambda window_s: self._since(gateway, window_s)
            ),
            pending_prompt_tokens=gateway.gauge(float(gateway.copies * last.pending_prompt_tokens) if last else 0.0),
        )
        return Observation(observed_at_s=now_s, services=(service,))

    def histories(self, now_s: float) -> tuple[History, ...]:
        """Return the load's past on its grid; none when nobody forecasts or Prometheus does not answer."""
        if self._past is None or self._faults.unreadable(now_s):
            return ()
        until_s = now_s - self._delay_of(now_s)
        self._past.advance(self._scrapes, round(until_s * PS_PER_S))
        return self._past.histories(self._policy.name, now_s=now_s, until_s=until_s)

    def _delay_of(self, now_s: float) -> float:
        return self._delay_s + self._faults.delay_s(now_s)

    def _window(self, source: Source, now_s: float) -> Window:
        """Return the ends of the rate window as they can be read now."""
        scrapes = self._scrapes
        number = scrapes.newest(round((now_s - self._delay_of(now_s)) * PS_PER_S))
        unreadable = self._faults.unreadable(now_s)
        last = None if unreadable or number < 0 else scrapes.get(source, number)
        back = -(-round(self._wants.rate_window_s * PS_PER_S) // scrapes.interval_ps)
        at_s = max(0, number) * scrapes.interval_ps / PS_PER_S
        blind = last is None and not unreadable
        return Window(
            source=source,
            now_s=now_s,
            copies=1 if source is Source.ENGINE and self._wants.folds_copies else self._faults.copies(now_s),
            number=number,
            last=last,
            first=scrapes.get(source, number - back) if last is not None else None,
            at_s=at_s,
            span_s=back * scrapes.interval_ps / PS_PER_S,
            why=self._faults.blind(source, at_s if number >= 0 else -1.0) if blind else UNREADABLE,
        )

    def _since(self, window: Window, window_s: float | None) -> FleetSample | None:
        """Return the oldest stored sample within a window of the newest; None: that of rates."""
        if window.last is None:
            return None
        wanted_s = self._wants.rate_window_s if window_s is None else window_s
        back = -(-round(wanted_s * PS_PER_S) // self._scrapes.interval_ps)
        return self._scrapes.earliest(window.source, window.number - back, until=window.number)

    def _pool(self, pool: PoolPolicy, gateway: Window, engines: Window) -> PoolObservation:
        key = pool.key
        roster = self.membership.of(key)
        wants, replicas = self._wants, roster.bare
        if wants.replicas or wants.replica_rates or wants.engine_detail:
            replicas = replica_observations(roster, engines, profile=self._profiles[key], wants=wants)
        sums = _Sums(roster=roster, engines=engines)
        violations = ("engine metrics renamed",) if self._faults.renamed(engines.now_s) else ()
        return PoolObservation(
            key=key,
            replicas=replicas,
            running_requests=sums.gauge("running"),
            waiting_requests=sums.gauge("waiting"),
            finished_per_s=sums.rate("finished"),
            output_tokens_per_s=sums.rate("output_done_tokens"),
            gateway_in_flight_requests=self._in_flight(key, gateway),
            # Without an endpoint the gateway answers 503 at once: it never holds a request.
            gateway_pending_requests=gateway.gauge(0.0),
            violations=violations,
        )

    def _in_flight(self, key: PoolKey, gateway: Window) -> Signal:
        last = gateway.last
        if last is None:
            return gateway.lost()
        live = last.live
        if len(self._number) > 1:
            live = live[self.membership.pool_of(last.member) == self._number[key]]
        return gateway.read(float(gateway.copies * int(live.sum())))


class _Sums:
    """Sums over a pool's ready replicas, with coverage = those that reported / all."""

    def __init__(self, *, roster: PoolMembers, engines: Window) -> None:
        self._engines = engines
        self._ready = len(roster.ready)
        self._last = self._rows(engines.last, roster.ready)
        self._first = self._rows(engines.first, roster.ready)

    @staticmethod
    def _rows(sample: FleetSample | None, ready: Int64Array) -> Int64Array | None:
        return None if sample is None else rows_of(sample.member, ready)

    def gauge(self, column: str) -> Signal:
        engines = self._engines
        if not self._ready:
            return unknown(UnknownReason.ABSENT, "no replica reported", now_s=engines.now_s, source=SOURCE)
        if engines.last is None or self._last is None:
            return engines.lost()
        rows = self._last[self._last >= 0] if self._last[0] < 0 or self._last.min() < 0 else self._last
        if not len(rows):
            return unknown(UnknownReason.ABSENT, "not scraped yet", now_s=engines.now_s, source=SOURCE)
        total = engines.copies * int(getattr(engines.last, column)[rows].sum())
        return engines.read(float(total), coverage_ratio=len(rows) / self._ready)

    def rate(self, column: str) -> Signal:
        engines = self._engines
        if not self._ready:
            return unknown(UnknownReason.ABSENT, "no replica reported", now_s=engines.now_s, source=SOURCE)
        if engines.last is None or self._last is None:
            return engines.lost()
        if engines.first is None or self._first is None:
            return engines.young()
        both = (self._last >= 0) & (self._first >= 0)
        known = int(both.sum())
        if not known:
            return engines.young()
        now, then = getattr(engines.last, column)[self._last[both]], getattr(engines.first, column)[self._first[both]]
        total = engines.copies * (int(now.sum()) - int(then.sum()))
        return engines.read(total / engines.span_s, coverage_ratio=known / self._ready)


def _mean(gateway: Window, tokens: str) -> Signal:
    if gateway.last is None:
        return gateway.lost()
    arrived = gateway.last.arrived - gateway.first.arrived if gateway.first is not None else 0
    if gateway.first is None or not arrived:
        return unknown(UnknownReason.NOT_A_NUMBER, "no request in the window", now_s=gateway.now_s, source=SOURCE)
    return gateway.read((getattr(gateway.last, tokens) - getattr(gateway.first, tokens)) / arrived)


def _failed(gateway: Window) -> Signal:
    last, first = gateway.last, gateway.first
    if last is None:
        return gateway.lost()
    if first is None:
        return gateway.young()
    failed = last.refused + last.lost - first.refused - first.lost
    return gateway.read(gateway.copies * failed / gateway.span_s)
