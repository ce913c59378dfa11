"""What a controller would see of the simulated fleet: scraped gauges and rates, as old as the last scrape.

Membership is the actuator's own knowledge and always fresh. Of everything else only samples are looked at, and only
what the law asks for is worked out.
"""

from collections.abc import Mapping, Sequence

from tidegate.perf.profile import PS_PER_S
from tidegate.sim.fleet_protocol import Fleet
from tidegate.sim.latencies import latency_readings, sli_readings
from tidegate.sim.membership import NOT_ASKED, SOURCE, MembershipView
from tidegate.sim.metric_faults import UNREADABLE, MetricFaults, Source
from tidegate.sim.past import Past
from tidegate.sim.policies import Wants
from tidegate.sim.pool_sums import PoolSums
from tidegate.sim.replica_signals import replica_observations
from tidegate.sim.sample import FleetSample
from tidegate.sim.scrapes import Scrapes
from tidegate.sim.window import Window
from tidegate.terms.fleet import PoolKey
from tidegate.terms.history import History
from tidegate.terms.observation import LatencyReading, Observation, PoolObservation, ServiceObservation, SliReading
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
        most_delay_s = scrape_delay_s + max((faults.delay_s(f.start_s) for f in faults.faults), default=0.0)
        self._back = _scrapes_in(wants.rate_window_s, interval_ps)
        most_back = max([self._back, *(_scrapes_in(w, interval_ps) for _, _, w in wants.latencies)])
        self._scrapes = Scrapes(
            interval_ps=interval_ps, keep=2 + most_back + _scrapes_in(most_delay_s, interval_ps), faults=faults
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
        arrivals, prompts, outputs, failed = self._load(gateway)
        service = ServiceObservation(
            service=self._policy.name,
            arrivals_per_s=arrivals,
            prompt_tokens_mean=prompts,
            output_tokens_mean=outputs,
            failed_per_s=failed,
            slis=self._slis(gateway) if self._wants.slis else (),
            pools=tuple([self._pool(p, gateway, engines) for p in self._policy.pools]),
            latencies=self._latencies(gateway) if self._wants.latencies else (),
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

    def _load(self, gateway: Window) -> tuple[Signal, Signal, Signal, Signal]:
        """Return arrivals/s, mean prompt and output tokens, and failures/s."""
        if not self._wants.rates:
            return NOT_ASKED, NOT_ASKED, NOT_ASKED, NOT_ASKED
        return (
            gateway.rate("arrived"),
            _mean(gateway, "prompt_tokens"),
            _mean(gateway, "output_tokens"),
            _failed(gateway),
        )

    def _slis(self, gateway: Window) -> tuple[SliReading, ...]:
        return sli_readings(self._policy.slos, self._fleet.setup, gateway, self._since(gateway, self._back))

    def _latencies(self, gateway: Window) -> tuple[LatencyReading, ...]:
        def since(window_s: float) -> FleetSample | None:
            return self._since(gateway, _scrapes_in(window_s, self._scrapes.interval_ps))

        return latency_readings(self._wants.latencies, self._fleet.setup, gateway, since)

    def _window(self, source: Source, now_s: float) -> Window:
        """Return the ends of the rate window as they can be read now."""
        scrapes, faults, back = self._scrapes, self._faults, self._back
        number = scrapes.newest(round((now_s - self._delay_of(now_s)) * PS_PER_S))
        unreadable = faults.unreadable(now_s)
        last = None if unreadable or number < 0 else scrapes.get(source, number)
        at_s = max(0, number) * scrapes.interval_ps / PS_PER_S
        why = UNREADABLE
        if last is None and not unreadable:
            why = faults.blind(source, at_s if number >= 0 else -1.0)
        return Window(
            source=source,
            now_s=now_s,
            copies=1 if source is Source.ENGINE and self._wants.folds_copies else faults.copies(now_s),
            number=number,
            last=last,
            first=scrapes.get(source, number - back) if last is not None else None,
            at_s=at_s,
            span_s=back * scrapes.interval_ps / PS_PER_S,
            why=why,
        )

    def _since(self, window: Window, back: int) -> FleetSample | None:
        """Return the oldest stored sample at most `back` scrapes before the newest."""
        if window.last is None:
            return None
        return self._scrapes.earliest(window.source, window.number - back, until=window.number)

    def _pool(self, pool: PoolPolicy, gateway: Window, engines: Window) -> PoolObservation:
        key = pool.key
        roster = self.membership.of(key)
        wants, replicas = self._wants, roster.bare
        if wants.replicas or wants.replica_rates or wants.engine_detail:
            replicas = replica_observations(roster, engines, profile=self._profiles[key], wants=wants)
        sums = PoolSums(roster, engines)
        finished, output_tokens = NOT_ASKED, NOT_ASKED
        if wants.rates:
            finished, output_tokens = sums.rates("finished", "output_done_tokens")
        violations = ("engine metrics renamed",) if self._faults.renamed(engines.now_s) else ()
        return PoolObservation(
            key=key,
            replicas=replicas,
            running_requests=sums.gauge("running"),
            waiting_requests=sums.gauge("waiting"),
            finished_per_s=finished,
            output_tokens_per_s=output_tokens,
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


def _scrapes_in(window_s: float, interval_ps: int) -> int:
    """Return how many scrapes back a window reaches: one that is no whole number of scrapes reaches farther."""
    return -(-round(window_s * PS_PER_S) // interval_ps)


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
