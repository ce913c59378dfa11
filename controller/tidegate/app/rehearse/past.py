"""What Prometheus remembers of one service: arrivals, lengths, and how many replicas there were."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.app.rehearse.lengths import Lengths, MeanOnly, TokenCounts
from tidegate.app.rehearse.past_queries import PastQueries, QueryText, defaults
from tidegate.observe.histories import read_histories
from tidegate.observe.prometheus import PrometheusReader
from tidegate.observe.result import Answer, Failure, Series
from tidegate.observe.settings import ObserveSettings
from tidegate.sim.trace import FloatArray
from tidegate.terms.errors import BadInputError, ServerUnreachableError
from tidegate.terms.fleet import PoolKey
from tidegate.terms.forecast import Quantity
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.signal import UnknownReason

# Lengths change with the hour of the day, not with the minute.
LENGTH_STEP_S = 3600.0
# Below this share of known steps the load would be more guess than history.
LEAST_KNOWN_RATIO = 0.5
_AWAY = frozenset({UnknownReason.UNREACHABLE, UnknownReason.BREAKER_OPEN})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Past:
    """The history of one service on a grid; step i is the `step_s` that end at `start_s + (i + 1) * step_s`."""

    start_s: float  # Unix time
    step_s: float
    arrivals_per_s: FloatArray  # (n,) NaN where unknown
    prompt: Lengths
    output: Lengths
    replicas: dict[PoolKey, FloatArray]  # (n,) NaN where unknown; empty when nothing tells
    sources: tuple[tuple[str, str], ...]  # (what, query or metric)

    @property
    def known_ratio(self) -> float:
        """Share of steps whose arrivals are known."""
        return float(np.isfinite(self.arrivals_per_s).mean()) if len(self.arrivals_per_s) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Which history is asked for."""

    start_s: float  # Unix time, a multiple of the step
    end_s: float
    step_s: float

    @property
    def steps(self) -> int:
        """Steps of the grid."""
        return round((self.end_s - self.start_s) / self.step_s)


def read_past(
    reader: PrometheusReader,
    policy: ServicePolicy,
    *,
    queries: PastQueries,
    settings: ObserveSettings,
    span: Span,
    told: Callable[[str], None] = lambda _: None,
) -> Past:
    """Return the service's history.

    Args:
        reader: The backend.
        policy: Which service, engines and pools.
        queries: What the user spelled himself; the rest is tried by the names Tidegate knows.
        settings: Windows and labels.
        span: From when to when, in which steps.
        told: Called with what is being read.

    Raises:
        ServerUnreachableError: The backend did not answer.
        BadInputError: It has no such history, or refuses a query; the text says which was tried.
    """
    ask = _Ask(reader, span)
    told("arrivals")
    arrivals, arrivals_from = _arrivals(ask, policy, queries, settings)
    known = float(np.isfinite(arrivals).mean())
    if known < LEAST_KNOWN_RATIO:
        msg = (
            f"backtest: arrivals of service {policy.name} are known for {100 * known:.0f} % of the time asked for, "
            f"must be {100 * LEAST_KNOWN_RATIO:.0f} %: give a shorter --since, "
            f"or --query-arrivals (read: {arrivals_from})"
        )
        raise BadInputError(msg)
    told("prompt lengths")
    prompt, prompt_from = _lengths(ask, policy, queries.prompt_buckets, settings, "prompt_length")
    told("output lengths")
    output, output_from = _lengths(ask, policy, queries.output_buckets, settings, "output_length")
    told("replicas")
    replicas, replicas_from = _replicas(ask, policy, queries, settings)
    return Past(
        start_s=span.start_s,
        step_s=span.step_s,
        arrivals_per_s=arrivals,
        prompt=prompt,
        output=output,
        replicas=replicas,
        sources=(("arrivals", arrivals_from), ("prompt tokens", prompt_from), ("output tokens", output_from),
                 ("replicas", replicas_from)),
    )  # fmt: skip


class _Ask:
    """Range queries of one span, put on its grid."""

    def __init__(self, reader: PrometheusReader, span: Span) -> None:
        self.reader = reader
        self.span = span

    def rows(self, query: str, *, step_s: float | None = None) -> tuple[Series, ...]:
        """Return the series of a query over the span; the first grid point is one step after its start."""
        step = step_s or self.span.step_s
        answer = self.reader.range_(query, self.span.start_s + step, self.span.end_s, step)
        if isinstance(answer, Failure):
            if answer.reason in _AWAY:
                raise ServerUnreachableError(answer.detail)
            msg = f"backtest: {query}: {answer.detail}"
            raise BadInputError(msg)
        return self._whole(answer, query)

    @staticmethod
    def _whole(answer: Answer, query: str) -> tuple[Series, ...]:
        if answer.partial:
            msg = f"backtest: {query}: the backend says its answer is not complete: half a history is none"
            raise BadInputError(msg)
        return answer.series

    def grid(self, series: Iterable[Series]) -> FloatArray:
        """Return the sum of series on the grid, NaN where none has a number."""
        out = np.full(self.span.steps, math.nan)
        for one in series:
            for at_s, number in one.samples:
                i = round((at_s - self.span.start_s) / self.span.step_s) - 1
                if 0 <= i < len(out) and math.isfinite(number) and number >= 0.0:
                    out[i] = number if math.isnan(out[i]) else out[i] + number
        return out


def _arrivals(
    ask: _Ask, policy: ServicePolicy, queries: PastQueries, settings: ObserveSettings
) -> tuple[FloatArray, str]:
    if queries.arrivals:
        found = ask.grid(ask.rows(queries.arrivals))
        if not np.isfinite(found).any():
            msg = f"--query-arrivals: must give requests/s, gave no number in the time asked for: {queries.arrivals}"
            raise BadInputError(msg)
        return found, queries.arrivals
    span = ask.span
    histories = read_histories(
        ask.reader, [policy], settings=settings, now_s=span.end_s, span_s=span.end_s - span.start_s, step_s=span.step_s
    )
    for history in histories:
        if history.quantity is Quantity.REQUESTS_PER_S:
            series = Series(labels={}, samples=history.samples)
            return ask.grid([series]), f"gateway attempts less retries ({history.source})"
    tried = defaults(policy, settings, span.step_s)
    for query in tried.arrivals:
        found = ask.grid(ask.rows(query.text))
        if np.isfinite(found).any():
            return found, query.what
    names = ("the gateway's attempts", *(q.what for q in tried.arrivals))
    raise BadInputError(_nothing("arrivals", names, "--query-arrivals"))


def _lengths(
    ask: _Ask, policy: ServicePolicy, own: str, settings: ObserveSettings, quantity: str
) -> tuple[Lengths, str]:
    step_s = min(LENGTH_STEP_S, ask.span.end_s - ask.span.start_s)
    side = quantity.removesuffix("_length")
    if own:
        counts = token_counts(ask.rows(own, step_s=step_s), start_s=ask.span.start_s, step_s=step_s, mean=None)
        if counts is None:
            msg = f"--query-{side}-buckets: must give requests by token bucket (label le), gave none: {own}"
            raise BadInputError(msg)
        return counts, own
    tried = defaults(policy, settings, step_s)
    candidates = tried.lengths(quantity)
    for query in candidates:
        mean = _mean(ask, query, step_s)
        if mean is None:
            continue
        rows = ask.rows(query.text, step_s=step_s)
        counts = token_counts(rows, start_s=ask.span.start_s, step_s=step_s, mean=mean)
        return (counts, query.what) if counts else (MeanOnly(mean_tokens=mean), f"{query.what} (mean only)")
    names = tuple(q.what for q in candidates)
    raise BadInputError(_nothing(f"{side} lengths", names, f"--query-{side}-buckets"))


def _mean(ask: _Ask, query: QueryText, step_s: float) -> float | None:
    sums, counts = (
        sum(n for s in ask.rows(text, step_s=step_s) for _, n in s.samples if math.isfinite(n))
        for text in (query.sums, query.counts)
    )
    return sums / counts if counts > 0.0 and sums > 0.0 else None


def token_counts(rows: Sequence[Series], *, start_s: float, step_s: float, mean: float | None) -> TokenCounts | None:
    """Return bucket increases as counts per stretch, or None when they hold no request.

    Args:
        rows: One per bucket, with `le`; samples are increases over the stretch that ends at their time.
        start_s: Unix time of the first stretch's beginning.
        step_s: Length of a stretch.
        mean: Mean tokens over all of them, if known.
    """
    cumulative: dict[float, dict[int, float]] = {}
    for row in rows:
        try:
            bound = float(row.labels.get("le", ""))
        except ValueError:
            continue
        into = cumulative.setdefault(bound, {})
        for at_s, number in row.samples:
            i = round((at_s - start_s) / step_s) - 1
            if math.isfinite(number):
                into[i] = into.get(i, 0.0) + number
    bounds = sorted(b for b in cumulative if math.isfinite(b))
    if not bounds or math.inf not in cumulative:
        return None
    stretches = 1 + max((i for by_time in cumulative.values() for i in by_time), default=-1)
    table = np.zeros((max(stretches, 1), len(bounds) + 1))
    for j, bound in enumerate((*bounds, math.inf)):
        for i, number in cumulative[bound].items():
            table[i, j] = number
    # Separate increases of neighbouring buckets may cross by a little.
    counts = np.diff(np.maximum.accumulate(table, axis=1), axis=1, prepend=0.0)
    if counts.sum() <= 0.0:
        return None
    return TokenCounts(bounds=np.array(bounds), counts=counts, mean_tokens=mean)


def _replicas(
    ask: _Ask, policy: ServicePolicy, queries: PastQueries, settings: ObserveSettings
) -> tuple[dict[PoolKey, FloatArray], str]:
    tried = [QueryText(text=queries.replicas, what=queries.replicas)] if queries.replicas else (
        defaults(policy, settings, ask.span.step_s).replicas
    )  # fmt: skip
    for query in tried:
        series = ask.rows(query.text)
        by_pool = {
            pool.key: ask.grid([s for s in series if len(policy.pools) == 1 or s.labels.get("pool") == pool.key.pool])
            for pool in policy.pools
        }
        if all(np.isfinite(counts).any() for counts in by_pool.values()):
            return by_pool, query.what
    return {}, f"none (tried: {'; '.join(q.what for q in tried)})"


def _nothing(what: str, tried: Sequence[str], flag: str) -> str:
    return f"backtest: Prometheus knows no {what} in the time asked for (tried: {'; '.join(tried)}); give {flag}"
