"""Per-replica signals, built only for laws that ask for them."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tidegate.perf.profile import EngineProfile
from tidegate.sim.membership import NOT_ASKED, SOURCE, PoolMembers
from tidegate.sim.metric_faults import rows_of
from tidegate.sim.policies import Wants
from tidegate.sim.sample import FleetSample
from tidegate.sim.trace import FloatArray, Int64Array
from tidegate.sim.window import Window
from tidegate.terms.observation import EngineDetail, ReplicaObservation
from tidegate.terms.signal import Signal, TrueZero, UnknownReason, Value, unknown

BoolArray = npt.NDArray[np.bool_]


def replica_observations(
    roster: PoolMembers, engines: Window, *, profile: EngineProfile, wants: Wants
) -> tuple[ReplicaObservation, ...]:
    """Return the pool's replicas, by name, with what the law reads of their engines."""
    columns = _Columns(roster, engines)
    count = len(roster.replicas)
    finished = prompts = outputs = preemptions = [NOT_ASKED] * count
    if wants.replica_rates:
        finished, preemptions = columns.rate("finished"), columns.rate("preemptions")
        prompts, outputs = columns.rate("prompt_done_tokens"), columns.rate("output_done_tokens")
    return tuple(
        ReplicaObservation(
            replica=replica,
            running_requests=running,
            waiting_requests=waiting,
            kv_used_ratio=kv_used,
            finished_per_s=done,
            prompt_tokens_per_s=prompted,
            output_tokens_per_s=answered,
            preemptions_per_s=preempted,
            engine=detail,
        )
        for replica, running, waiting, kv_used, done, prompted, answered, preempted, detail in zip(
            roster.replicas,
            columns.gauge("running"),
            columns.gauge("waiting"),
            columns.gauge("kv_used_blocks", per=float(profile.kv_blocks), copies=1),  # copies have one mean
            finished,
            prompts,
            outputs,
            preemptions,
            _details(columns, profile, count) if wants.engine_detail else [None] * count,
            strict=True,
        )
    )


def _details(columns: "_Columns", profile: EngineProfile, count: int) -> list[EngineDetail | None]:
    capacity = columns.constant(float(profile.kv_blocks * profile.block_tokens))
    waiting, context = columns.gauge("waiting_prompt_tokens"), columns.gauge("context_tokens")
    return [
        EngineDetail(kv_capacity_tokens=capacity[i], waiting_prompt_tokens=waiting[i], context_tokens=context[i])
        for i in range(count)
    ]


class _Columns:
    """One signal per replica for each column of the samples."""

    def __init__(self, roster: PoolMembers, engines: Window) -> None:
        self._engines = engines
        self._roster = roster
        self._last = _rows(engines.last, roster)
        self._scraped: BoolArray = self._last >= 0
        # Equal numbers of one scrape are one signal: most replicas wait for nothing, many run as much as another.
        self._made: dict[float, Signal] = {0.0: TrueZero(sampled_at_s=engines.at_s, coverage_ratio=1.0, source=SOURCE)}

    def gauge(self, column: str, *, per: float = 1.0, copies: int | None = None) -> list[Signal]:
        last = self._engines.last
        if last is None:
            return [self._unscraped()] * len(self._last)
        times = self._engines.copies if copies is None else copies
        numbers = _taken(getattr(last, column), self._last) * times / per
        return self._signals(numbers, self._scraped, self._unscraped)

    def rate(self, column: str) -> list[Signal]:
        last, first = self._engines.last, self._engines.first
        if last is None or first is None:
            return [self._engines.young() if last is not None else self._engines.lost()] * len(self._last)
        rows = _rows(first, self._roster)
        grown = _taken(getattr(last, column), self._last) - _taken(getattr(first, column), rows)
        known = self._scraped & (rows >= 0)
        return self._signals(grown * self._engines.copies / self._engines.span_s, known, self._engines.young)

    def constant(self, number: float) -> list[Signal]:
        return self._signals(np.full(len(self._last), number), self._scraped, self._unscraped)

    def _unscraped(self) -> Signal:
        if self._engines.last is None:
            return self._engines.lost()
        return unknown(UnknownReason.ABSENT, "not scraped yet", now_s=self._engines.now_s, source=SOURCE)

    def _signals(self, numbers: FloatArray, known: BoolArray, why_not: Callable[[], Signal]) -> list[Signal]:
        made, listed = self._made, numbers.tolist()
        for n in set(listed).difference(made):
            made[n] = Value(value=n, sampled_at_s=self._engines.at_s, coverage_ratio=1.0, source=SOURCE)
        if known.all():
            return [made[n] for n in listed]
        otherwise = why_not()
        return [made[n] if there else otherwise for n, there in zip(listed, known.tolist(), strict=True)]


def _rows(sample: FleetSample | None, roster: PoolMembers) -> Int64Array:
    """Return each replica's row, in the roster's order (by name); -1 where it was not scraped."""
    if sample is None:
        return np.full(len(roster.members), -1, dtype=np.int64)
    return rows_of(sample.member, roster.members)


def _taken(column: Int64Array, rows: Int64Array) -> Int64Array:
    taken: Int64Array = column[rows] if len(column) else np.zeros(len(rows), dtype=np.int64)
    return taken
