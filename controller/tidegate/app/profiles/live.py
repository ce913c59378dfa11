"""Cases from a running fleet's own histograms: what Prometheus remembers of it, window by window.

Histograms do not say which request came when, so arrivals are drawn: as many as were counted, at random moments
(Poisson), with lengths drawn from the length histograms, prompt and answer apart. Latencies are judged by the means
(sum over count) and, where the buckets are fine enough to tell, by the quantiles, read off equal buckets on both sides.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tidegate.app.profiles.cases import Case, Figure, Metric, read_off
from tidegate.app.profiles.log import FloatArray, Int64Array
from tidegate.catalogue import canonical
from tidegate.catalogue.quantity import EngineCatalogue, Quantity
from tidegate.observe.histogram import Histogram, histogram, quantile
from tidegate.observe.matchers import Matcher, duration, selector
from tidegate.observe.prometheus import PrometheusReader
from tidegate.observe.queries import bucket_rates
from tidegate.observe.result import Failure, Series
from tidegate.observe.settings import ObserveSettings
from tidegate.terms.errors import RefusedError, ServerUnreachableError

MOST_REQUESTS = 20_000  # per window; more would not tell more
_LEAST_REQUESTS = 30  # per window; fewer say little of a distribution
_SEED = 20_261_201
# (quantity, metric, spread of the mean's relative error)
_MEANS: tuple[tuple[Quantity, Metric, float], ...] = (
    (canonical.TTFT, Metric.TTFT, 0.08),
    (canonical.TPOT, Metric.TPOT, 0.025),
    (canonical.E2E, Metric.E2E, 0.03),
)
_LEVELS = (0.5, 0.9)
_LEVEL_SPREAD = 0.15  # of a quantile off buckets
_LIVE_SPREAD = 0.10
_LEAST_LIVE = 1.0  # a gauge is read every few seconds: fewer requests than that are there by luck


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where to look."""

    reader: PrometheusReader
    catalogue: EngineCatalogue
    matchers: tuple[Matcher, ...]  # which replicas
    replica_label: str
    scrape_interval_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The cases found, and the windows that could not be used, with why."""

    cases: tuple[Case, ...]
    left_out: tuple[str, ...]


def live_cases(source: Source, *, now_s: float, since_s: float, window_s: float) -> Seen:
    """Return one case per window, oldest first, every other one held out.

    Args:
        source: Where to look.
        now_s: End of the last window, Unix time.
        since_s: How far back the first one begins, >= 2 * window_s.
        window_s: Length of a window.

    Raises:
        ServerUnreachableError: Prometheus did not answer.
        RefusedError: No window has a load that did not change its replicas.
    """
    cases: list[Case] = []
    left_out: list[str] = []
    for place in range(int(since_s // window_s), 0, -1):
        at_s = now_s - (place - 1) * window_s
        name = f"{place * window_s / 60:.0f} min ago"
        found = _Window(source=source, at_s=at_s, window_s=window_s, name=name).case()
        if isinstance(found, str):
            left_out.append(f"{name}: {found}")
        else:
            cases.append(replace(found, held_out=len(cases) % 2 == 1))
    if not cases:
        msg = f"profile not fitted: no window can be used: {'; '.join(left_out)}"
        raise RefusedError(msg)
    return Seen(cases=tuple(cases), left_out=tuple(left_out))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """One stretch of time, and the questions asked of it."""

    source: Source
    at_s: float
    window_s: float
    name: str

    def case(self) -> Case | str:
        """Return the case, or why there is none."""
        before, after = self.replicas(self.at_s - self.window_s), self.replicas(self.at_s)
        if before != after or not after:
            return f"had {before} replicas at its beginning and {after} at its end"
        prompts, outputs = self.lengths(canonical.PROMPT_LENGTH), self.lengths(canonical.OUTPUT_LENGTH)
        if prompts is None or outputs is None:
            return "no request finished, or the histograms of prompt and answer lengths are missing"
        finished = round(prompts.of.total_per_s * self.window_s)
        if finished < _LEAST_REQUESTS:
            return f"{finished} requests finished, need {_LEAST_REQUESTS}"
        figures = tuple(self.figures(after))
        if not any(f.metric in {Metric.TPOT, Metric.ITL} for f in figures):
            return "has no histogram of TPOT or ITL"
        count = min(finished, MOST_REQUESTS)
        seconds = self.window_s * count / finished
        random = np.random.default_rng(_SEED)
        return Case(
            name=self.name,
            workload="",
            replicas=after,
            arrival_s=np.sort(random.uniform(0.0, seconds, count)),
            prompt_tokens=prompts.drawn(count, random),
            output_tokens=outputs.drawn(count, random),
            seconds=seconds,
            first=0,
            until=count,
            figures=figures,
            held_out=False,
        )

    def figures(self, replicas: int) -> Iterator[Figure]:
        for quantity, metric, spread in _MEANS:
            mean = self.mean(quantity)
            if mean is not None:
                yield Figure(metric=metric, level=None, value=mean, spread_ratio=spread)
            of = self.histogram(quantity)
            if of is None or of.total_per_s <= 0.0 or metric is Metric.E2E:
                continue
            bounds = tuple(b for b, _ in of.buckets if np.isfinite(b))
            for level in _LEVELS:
                value, at_least = quantile(of, level)
                if not at_least and value > 0.0:
                    yield Figure(metric=metric, level=level, value=value, spread_ratio=_LEVEL_SPREAD, bounds_s=bounds)
        itl = self.mean(canonical.ITL)
        if itl is not None:
            yield Figure(metric=Metric.ITL, level=None, value=itl, spread_ratio=0.025)
        live = sum(self.gauge(q) or 0.0 for q in (canonical.RUNNING, canonical.WAITING)) / replicas
        if live >= _LEAST_LIVE:
            yield Figure(metric=Metric.LIVE, level=None, value=live, spread_ratio=_LIVE_SPREAD)

    def replicas(self, at_s: float) -> int:
        """Return how many replicas report at a moment."""
        for name, _ in self.source.catalogue.spellings(canonical.RUNNING.name):
            inner = selector([name], *self.source.matchers)
            rows = self.ask(f"count(count by ({self.source.replica_label}) ({inner}))", at_s)
            if rows:
                return int(rows[0].samples[-1][1])
        return 0

    def histogram(self, quantity: Quantity) -> Histogram | None:
        settings = ObserveSettings(
            rate_window_s=self.window_s, scrape_interval_s=self.source.scrape_interval_s, stale_after_s=self.window_s
        )
        for name, alias in self.source.catalogue.spellings(quantity.name):
            rows = self.ask(bucket_rates(name, (), settings, *self.source.matchers), self.at_s)
            if rows:
                return histogram(rows, scale_s=alias.scale)
        return None

    def lengths(self, quantity: Quantity) -> "_Lengths | None":
        of, mean = self.histogram(quantity), self.mean(quantity)
        return _Lengths(of=of, mean_tokens=mean) if of is not None and mean is not None else None

    def mean(self, quantity: Quantity) -> float | None:
        """Return sum over count of a histogram; None when nothing was counted."""
        span = duration(self.window_s)
        for name, alias in self.source.catalogue.spellings(quantity.name):
            total, count = (selector([f"{name}_{part}"], *self.source.matchers) for part in ("sum", "count"))
            rows = self.ask(f"sum (rate({total}[{span}])) / sum (rate({count}[{span}]))", self.at_s)
            if rows and np.isfinite(value := rows[0].samples[-1][1]) and value > 0.0:
                return value * alias.scale
        return None

    def gauge(self, quantity: Quantity) -> float | None:
        """Return a gauge's mean over the window, summed over replicas."""
        for name, alias in self.source.catalogue.spellings(quantity.name):
            inner = selector([name], *self.source.matchers)
            rows = self.ask(f"sum (avg_over_time({inner}[{duration(self.window_s)}]))", self.at_s)
            if rows:
                return rows[0].samples[-1][1] * alias.scale
        return None

    def ask(self, query: str, at_s: float) -> tuple[Series, ...]:
        """Return the series of one query.

        Raises:
            ServerUnreachableError: There was no answer.
        """
        result = self.source.reader.instant(query, at_s)
        if isinstance(result, Failure):
            raise ServerUnreachableError(result.detail)
        return result.series


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lengths:
    """Tokens per request: their distribution as far as buckets tell, and their true mean."""

    of: Histogram
    mean_tokens: float

    def drawn(self, count: int, random: np.random.Generator) -> Int64Array:
        """Return lengths in random order: uniform within a bucket, then scaled to the mean.

        Beyond the last finite bound a length is that bound.
        """
        bounds: FloatArray = np.array([0.0, *(b for b, _ in self.of.buckets if np.isfinite(b))])
        rates = np.array([0.0, *(r for b, r in self.of.buckets if np.isfinite(b))])
        shares: FloatArray = rates / self.of.total_per_s
        levels = (np.arange(count) + 0.5) / count
        found = read_off(levels, shares, bounds)
        scaled = random.permutation(found) * (self.mean_tokens / float(np.mean(found)))
        tokens: Int64Array = np.maximum(1, np.round(scaled)).astype(np.int64)
        return tokens
