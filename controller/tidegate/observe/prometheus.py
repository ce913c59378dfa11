"""Reading a Prometheus-compatible backend: every call returns a value, also when the server is in trouble."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

from prometheus_api_client.prometheus_connect import PrometheusConnect
from urllib3.util.retry import Retry

from tidegate.observe.breaker import Breaker
from tidegate.observe.prometheus_config import PrometheusConfig
from tidegate.observe.refusals import TransportError
from tidegate.observe.result import Answer, Failure, QueryResult, Series
from tidegate.observe.split import chunks, merge
from tidegate.observe.transport import HardenedSession, Rows
from tidegate.terms.signal import UnknownReason

__all__ = ["PrometheusConfig", "PrometheusReader"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PrometheusReader:
    """Instant and range queries within deadlines, behind a circuit breaker. Safe to share between threads.

    Args:
        config: Address, credentials and limits.
        monotonic_s: Monotonic clock, for tests.
        sleep: Waits between attempts, for tests.
    """

    def __init__(
        self,
        config: PrometheusConfig,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.config = config
        self._session = HardenedSession(config, monotonic_s=monotonic_s, sleep=sleep)
        self._connect = PrometheusConnect(
            url=config.url.rstrip("/"),
            session=self._session,
            method="POST" if config.post else "GET",
            retry=Retry(0),
        )
        self._breaker = Breaker(
            failures_to_open=config.breaker_failures,
            first_pause_s=config.breaker_first_pause_s,
            longest_pause_s=config.breaker_longest_pause_s,
            monotonic_s=monotonic_s,
        )
        self._last_trouble = f"{config.name}: not asked yet"  # an open breaker says why it opened

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def instant(self, query: str, at_s: float) -> QueryResult:
        """Return the query's value at Unix time `at_s`; a range selector gives raw samples with their own times."""
        params = {"time": self._time(at_s), "timeout": f"{self.config.total_timeout_s:g}s"}
        return self._guarded(lambda: self._connect.custom_query(query, params=params))

    def range_(self, query: str, start_s: float, end_s: float, step_s: float) -> QueryResult:
        """Return the query on the grid of multiples of `step_s` within the range, however many points that is.

        The first piece that fails fails the whole: half a history would look like a drop in load.
        """
        parts: list[Answer] = []
        for first_s, last_s in chunks(start_s, end_s, step_s, max_steps=self.config.max_steps):
            part = self._range_once(query, first_s, last_s, step_s)
            if isinstance(part, Failure):
                return part
            parts.append(part)
        newest = [p.newest_at_s for p in parts if p.newest_at_s is not None]
        return Answer(
            series=merge(p.series for p in parts),
            warnings=tuple(dict.fromkeys(w for p in parts for w in p.warnings)),
            partial=any(p.partial for p in parts),
            newest_at_s=max(newest, default=None),
        )

    def _range_once(self, query: str, first_s: float, last_s: float, step_s: float) -> QueryResult:
        # `custom_query_range` rounds its two datetimes to whole seconds; what stands in `params` wins over them.
        params = {
            "start": self._time(first_s),
            "end": self._time(last_s),
            "timeout": f"{self.config.total_timeout_s:g}s",
        }
        return self._guarded(
            lambda: self._connect.custom_query_range(
                query, start_time=_EPOCH, end_time=_EPOCH, step=f"{step_s:.{self.config.time_decimals}f}", params=params
            )
        )

    def _time(self, at_s: float) -> str:
        return f"{at_s:.{self.config.time_decimals}f}"

    def _guarded(self, call: Callable[[], object]) -> QueryResult:
        wait_s = self._breaker.wait_s()
        if wait_s is not None:
            return Failure(
                reason=UnknownReason.BREAKER_OPEN,
                detail=f"{self._last_trouble}; not asked again for {wait_s:.1f} s",
            )
        try:
            answer = _parsed(_rows(call, self.config), self.config)
        except TransportError as exc:
            if exc.server_trouble:
                self._last_trouble = exc.detail
                self._breaker.failed()
            else:
                self._breaker.succeeded()
            return Failure(reason=exc.reason, detail=exc.detail)
        self._breaker.succeeded()
        return answer


def _rows(call: Callable[[], object], config: PrometheusConfig) -> object:
    try:
        return call()
    except (KeyError, TypeError) as exc:
        # `PrometheusConnect` indexes ["data"]["result"] without looking.
        raise _malformed(config, "no data.result") from exc


def _parsed(rows: object, config: PrometheusConfig) -> Answer:
    if not isinstance(rows, Rows):
        raise _malformed(config, "no result list")
    if rows.result_type == "scalar":
        found = [Series(labels={}, samples=_samples([rows], config))]
    elif rows.result_type in {"vector", "matrix"}:
        found = [series for row in rows if (series := _series(row, config)) is not None]
    else:
        raise _malformed(config, f"result type {rows.result_type!r}")
    return Answer(
        series=tuple(found),
        warnings=rows.warnings,
        partial=rows.partial,
        newest_at_s=max((s.newest_at_s for s in found), default=None),
        answered_at_s=rows.answered_at_s,
    )


def _series(row: object, config: PrometheusConfig) -> Series | None:
    """Return one series; None for a native histogram, which no query of ours asks for."""
    if not isinstance(row, Mapping) or not isinstance(row.get("metric"), Mapping):
        raise _malformed(config, "a row without labels")
    points = [row["value"]] if "value" in row else row.get("values")
    if points is None and ("histogram" in row or "histograms" in row):
        return None
    if not isinstance(points, Sequence) or not points:
        raise _malformed(config, "a series without samples")
    return Series(labels=dict(row["metric"]), samples=_samples(points, config))


def _samples(points: Sequence[object], config: PrometheusConfig) -> tuple[tuple[float, float], ...]:
    pairs = cast("Sequence[tuple[str, str]]", points)  # a claim, tested by the conversion
    try:
        samples = tuple([(float(at), float(number)) for at, number in pairs])
    except (TypeError, ValueError) as exc:
        raise _malformed(config, "a sample that is not [time, number]") from exc
    # A time that is not finite would sort anywhere; the sum shows it without a second loop.
    if not math.isfinite(math.fsum([at for at, _ in samples])):
        raise _malformed(config, "a sample time that is not a number")
    return samples


def _malformed(config: PrometheusConfig, what: str) -> TransportError:
    return TransportError(
        UnknownReason.REJECTED, f"{config.name}: the answer is malformed: {what}", server_trouble=False
    )
