"""Deciding a journal again, and finding where a decision differs."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass

from tidegate.app.journal_read import Located
from tidegate.app.record import TickRecord
from tidegate.core.decide import decide
from tidegate.terms.decision import Decision, Memory

# Longest value printed of a difference.
_BRIEF_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first field in which a decision made again differs from the one that was journalled."""

    where: str  # file:line
    sequence: int
    field: str  # e.g. "decision.pools[0].asked_replicas"
    journalled: str
    replayed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What came of deciding again."""

    records: int
    pools: int  # pool decisions compared
    different: int  # records
    first: Difference | None
    from_s: float | None  # Unix time of the first and last decision; None when there was none
    until_s: float | None
    written_by: tuple[str, ...]  # versions, in order of appearance


def replay(located: Iterable[Located]) -> Replay:
    """Return the comparison of every record with what `decide` makes of its inputs now."""
    records = pools = different = 0
    first: Difference | None = None
    times: list[float] = []
    versions: dict[str, None] = {}
    for one in located:
        records += 1
        pools += len(one.record.decision.pools)
        versions.setdefault(one.tidegate)
        times = [times[0] if times else one.record.inputs.now_s, one.record.inputs.now_s]
        found = difference(one.record, one.where)
        different += found is not None
        first = first or found
    return Replay(
        records=records,
        pools=pools,
        different=different,
        first=first,
        from_s=times[0] if times else None,
        until_s=times[1] if times else None,
        written_by=tuple(versions),
    )


def difference(record: TickRecord, where: str) -> Difference | None:
    """Return the first difference of the record from what its inputs give now; None when they are identical."""
    decision, memory = decided_again(record)
    pairs = (("decision", record.decision, decision), ("memory_after", record.memory_after, memory))
    for name, journalled, replayed in pairs:
        for path, before, after in _differences(name, journalled, replayed):
            return Difference(
                where=where,
                sequence=record.decision.sequence,
                field=path,
                journalled=_brief(before),
                replayed=_brief(after),
            )
    return None


def decided_again(record: TickRecord) -> tuple[Decision, Memory]:
    """Return what `decide` makes of the record's inputs."""
    given = record.inputs
    return decide(given.observation, given.forecasts, given.capacity, given.policies, given.memory, now_s=given.now_s)


def _differences(path: str, before: object, after: object) -> Iterator[tuple[str, object, object]]:
    if type(before) is not type(after):
        yield path, before, after
    elif is_dataclass(before) and is_dataclass(after):
        for field in fields(before):
            yield from _differences(f"{path}.{field.name}", getattr(before, field.name), getattr(after, field.name))
    elif isinstance(before, tuple) and isinstance(after, tuple):
        for i, (one, other) in enumerate(zip(before, after, strict=False)):
            yield from _differences(f"{path}[{i}]", one, other)
        if len(before) != len(after):
            yield f"len({path})", len(before), len(after)
    # NaN differs from itself, and is the same bad number all the same.
    elif before != after and not (before != before and after != after):  # noqa: PLR0124
        yield path, before, after


def _brief(value: object) -> str:
    text = repr(value) if not isinstance(value, str) else str(value)
    return text if len(text) <= _BRIEF_CHARS else f"{text[:_BRIEF_CHARS]}…"
