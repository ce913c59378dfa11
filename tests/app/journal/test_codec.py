"""Records through JSON and back: equal, and of the very same types."""

import json
import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from enum import StrEnum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.app.codec import CodecError, digest, dumped, from_document, policies_document, policies_from, to_document
from tidegate.app.record import TickRecord
from tidegate.terms.signal import TrueZero, Unknown, UnknownReason, Value

Records = Callable[[int], list[TickRecord]]


def through(record: TickRecord) -> TickRecord:
    return from_document(json.loads(dumped(to_document(record))), record.inputs.policies)


def shape(thing: object) -> object:
    """Return the thing's types all the way down; equality alone takes "hold" for Verdict.HOLD and 3 for 3.0."""
    if is_dataclass(thing):
        return type(thing), [shape(getattr(thing, f.name)) for f in fields(thing)]
    if isinstance(thing, tuple):
        return [shape(one) for one in thing]
    return type(thing)


def test_every_record_of_a_run_comes_back_equal_and_of_the_same_types(records: Records) -> None:
    for record in records(48):
        assert through(record) == record
        assert shape(through(record)) == shape(record)


def test_policies_come_back_equal_and_of_the_same_types(records: Records) -> None:
    policies = records(1)[0].inputs.policies
    back = policies_from(json.loads(dumped(policies_document(policies))))
    assert back == policies
    assert shape(back) == shape(policies)
    assert isinstance(back[0].mode, StrEnum)
    assert digest(policies_document(back)) == digest(policies_document(policies))


@settings(max_examples=200, deadline=None)
@given(number=st.floats(allow_nan=False), sampled_at_s=st.floats(allow_nan=False, allow_infinity=False))
def test_floats_keep_every_bit(records: Records, number: float, sampled_at_s: float) -> None:
    record = replace(records(1)[0], inputs=replace(records(1)[0].inputs, now_s=number))
    assert math.copysign(1.0, through(record).inputs.now_s) == math.copysign(1.0, number)
    assert through(record).inputs.now_s == number
    assert through(replace(record, memory_after=replace(record.memory_after, pools=()))).inputs.now_s == number
    assert json.loads(dumped(sampled_at_s)) == sampled_at_s


def test_nan_survives(records: Records) -> None:
    record = replace(records(1)[0], inputs=replace(records(1)[0].inputs, now_s=math.nan))
    assert math.isnan(through(record).inputs.now_s)


@pytest.mark.parametrize(
    "signal",
    [
        Value(value=5e-324, sampled_at_s=1.5, coverage_ratio=0.5, source="a", at_least=True),
        TrueZero(sampled_at_s=1.5, coverage_ratio=1.0, source="ü 漢"),
        Unknown(reason=UnknownReason.STALE, detail='a "b"\n', sampled_at_s=1.5, coverage_ratio=0.0, source=""),
    ],
)
def test_each_kind_of_signal_stays_its_kind(records: Records, signal: Value | TrueZero | Unknown) -> None:
    record = records(1)[0]
    service = replace(record.inputs.observation.services[0], arrivals_per_s=signal)
    observation = replace(record.inputs.observation, services=(service,))
    back = through(replace(record, inputs=replace(record.inputs, observation=observation)))
    found = back.inputs.observation.services[0].arrivals_per_s
    assert found == signal
    assert type(found) is type(signal)
    assert "\n" not in dumped(to_document(record))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("decision", "sequence"), "7"),
        (("decision", "sequence"), 7.5),
        (("decision", "sequence"), True),
        (("decision", "decided_at_s"), None),
        (("decision", "decided_at_s"), "now"),
        (("decision", "extra"), 1),
        (("decision", "pools"), 3),
        (("memory_after", "pools"), [{}]),
        (("inputs",), []),
        (("inputs", "observation", "services", 0, "arrivals_per_s", "kind"), "zero"),
        (("inputs", "observation", "services", 0, "arrivals_per_s", "kind"), "guess"),
        (("decision", "pools", 0, "verdict"), "explode"),
        (("decision", "pools", 0, "writes"), 1),
    ],
)
def test_a_damaged_document_is_refused(records: Records, path: tuple[str | int, ...], value: object) -> None:
    document = json.loads(dumped(to_document(records(5)[4])))
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(CodecError, match="not a tick record"):
        from_document(document, ())
