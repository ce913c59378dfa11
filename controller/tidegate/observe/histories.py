"""Past load as the forecaster reads it: rates on a step grid, gaps simply missing."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tidegate.catalogue import gateway
from tidegate.catalogue.canonical import OUTPUT_TOKENS, PROMPT_TOKENS
from tidegate.observe import queries
from tidegate.observe.matchers import Matcher, any_of
from tidegate.observe.prometheus import PrometheusReader
from tidegate.observe.result import Answer, Failure
from tidegate.observe.settings import ObserveSettings
from tidegate.terms.forecast import Quantity
from tidegate.terms.history import History
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.signal import UnknownReason

_ENGINE_QUANTITIES = ((Quantity.PROMPT_TOKENS_PER_S, PROMPT_TOKENS), (Quantity.OUTPUT_TOKENS_PER_S, OUTPUT_TOKENS))
_AWAY = frozenset({UnknownReason.UNREACHABLE, UnknownReason.BREAKER_OPEN})

_ByTime = dict[float, float]


def read_histories(
    reader: PrometheusReader,
    policies: Sequence[ServicePolicy],
    *,
    settings: ObserveSettings,
    now_s: float,
    span_s: float,
    step_s: float,
) -> tuple[History, ...]:
    """Return the histories of all services; what has no sample, or could not be read whole, is left out."""
    if not policies:
        return ()
    read = _Reader(reader, settings, now_s - span_s, now_s, step_s)
    found = _arrivals(read, policies)
    for quantity, canonical in _ENGINE_QUANTITIES:
        names = [n for c in queries.engines_of(policies) for n, _ in c.spellings(canonical.name)]
        found += _tokens(read, policies, quantity, names)
    return tuple(h for h in found if h.samples)


class _Reader:
    def __init__(
        self, reader: PrometheusReader, settings: ObserveSettings, start_s: float, end_s: float, step_s: float
    ) -> None:
        self._reader = reader
        self.settings = settings
        self._start_s = start_s
        self._end_s = end_s
        self.step_s = step_s
        self.window_s = max(settings.rate_window_s, step_s)
        self._away = False

    def by(self, label: str, query: str) -> dict[str, _ByTime] | None:
        """Return samples by label value and time, or None when they could not be read whole."""
        answer = self.ask(query)
        return None if answer is None else _table(answer, label)

    def ask(self, query: str) -> Answer | None:
        """Return the answer, or None when there is none or a part is missing."""
        if self._away:
            return None
        result = self._reader.range_(query, self._start_s, self._end_s, self.step_s)
        if isinstance(result, Failure):
            self._away = result.reason in _AWAY
            return None
        return None if result.partial else result


def _table(answer: Answer, label: str) -> dict[str, _ByTime]:
    table: dict[str, _ByTime] = defaultdict(dict)
    for series in answer.series:
        for at_s, number in series.samples:
            if math.isfinite(number) and number >= 0:
                into = table[series.labels.get(label, "")]
                into[at_s] = into.get(at_s, 0.0) + number
    return table


def _arrivals(read: _Reader, policies: Sequence[ServicePolicy]) -> list[History]:
    """Attempts less retries, as in `gateway_signals.arrivals_of`; a time without attempts has no sample."""
    job = Matcher(label="job", values=(read.settings.gateway_job,))
    clusters = any_of(gateway.CLUSTER_LABEL, (str(pool.key) for p in policies for pool in p.pools))
    tables: dict[str, dict[str, _ByTime]] = {}
    for name in (*gateway.ATTEMPTS, gateway.RETRIES):
        query = queries.counter_rate(name, gateway.CLUSTER_LABEL, read.window_s, read.settings, job, clusters)
        table = read.by(gateway.CLUSTER_LABEL, query)
        if table is None:
            return []
        tables[name] = table
    found = []
    for policy in policies:
        keys = [str(pool.key) for pool in policy.pools]
        attached = [tables[gateway.ATTEMPTS_ATTACHED].get(key, {}) for key in keys]
        # Every pool must have a sample: a sum over some of them would look like a drop in load.
        times = set.intersection(*(set(a) for a in attached)) if attached else set()
        samples = {}
        for at_s in times:
            ended = sum(tables[name].get(key, {}).get(at_s, 0.0) for name in gateway.ATTEMPTS for key in keys)
            again = sum(tables[gateway.RETRIES].get(key, {}).get(at_s, 0.0) for key in keys)
            samples[at_s] = max(0.0, ended - again)
        found.append(_history(policy.name, Quantity.REQUESTS_PER_S, samples, read.step_s, gateway.ATTEMPTS_ATTACHED))
    return found


def _tokens(
    read: _Reader, policies: Sequence[ServicePolicy], quantity: Quantity, names: Iterable[str]
) -> list[History]:
    """Sum over spellings: at any time a replica has one, and while it changes each carries its part of the window."""
    label = read.settings.service_label
    services = any_of(label, (p.name for p in policies))
    answer = read.ask(queries.spelled_rates(names, label, read.window_s, read.settings, services))
    if answer is None:
        return []
    total = _table(answer, label)
    used = sorted({s.labels.get(queries.SPELLING, "") for s in answer.series})
    return [_history(p.name, quantity, total.get(p.name, {}), read.step_s, ", ".join(used)) for p in policies]


def _history(service: str, quantity: Quantity, samples: _ByTime, step_s: float, source: str) -> History:
    return History(
        service=service, quantity=quantity, step_s=step_s, samples=tuple(sorted(samples.items())), source=source
    )
