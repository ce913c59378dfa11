"""Frozen dataclasses to JSON and back, exactly.

Floats keep every bit (`repr` round trip), signals keep their kind by a `kind` tag, tuples stay tuples and enums are
their values. NaN and infinity are written as Python's JSON does (`NaN`, `Infinity`): bad data must be replayable too.
"""

import hashlib
import json
from dataclasses import replace
from typing import Any

from cattrs import Converter
from cattrs.errors import ForbiddenExtraKeysError
from cattrs.strategies import configure_tagged_union

from tidegate.app.record import TickRecord
from tidegate.terms.errors import BadInputError
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.signal import Signal, TrueZero, Unknown, Value

Document = dict[str, Any]

_KINDS: dict[type, str] = {Value: "value", TrueZero: "zero", Unknown: "unknown"}
# What structuring a damaged document may raise.
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, ForbiddenExtraKeysError)


class CodecError(BadInputError):
    """A document does not have the shape of the record it should be."""


# cattrs would call float("3"), int(3.7) and str(3): a journal that needs such help was damaged.
def _float(value: object, _: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        msg = f"must be a number, got {value!r}"
        raise TypeError(msg)
    return float(value)


def _int(value: object, _: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        msg = f"must be a whole number, got {value!r}"
        raise TypeError(msg)
    return value


def _bool(value: object, _: object) -> bool:
    if not isinstance(value, bool):
        msg = f"must be true or false, got {value!r}"
        raise TypeError(msg)
    return value


def _text(value: object, kind: type[str]) -> str:
    """Return text, or the member when `kind` is an enum: cattrs hands every subclass of `str` to the hook of `str`."""
    if not isinstance(value, str):
        msg = f"must be text, got {value!r}"
        raise TypeError(msg)
    return value if kind is str else kind(value)


def _converter() -> Converter:
    converter = Converter(forbid_extra_keys=True, detailed_validation=False)
    configure_tagged_union(Signal, converter, tag_name="kind", tag_generator=_KINDS.__getitem__)
    converter.register_structure_hook(float, _float)
    converter.register_structure_hook(int, _int)
    converter.register_structure_hook(bool, _bool)
    converter.register_structure_hook(str, _text)
    return converter


_CONVERTER = _converter()


def to_document(record: TickRecord) -> Document:
    """Return the record as plain dicts, lists and numbers, without its policies (those go by `policies_document`)."""
    document: Document = _CONVERTER.unstructure(replace(record, inputs=replace(record.inputs, policies=())), TickRecord)
    del document["inputs"]["policies"]
    return document


def from_document(document: Document, policies: tuple[ServicePolicy, ...]) -> TickRecord:
    """Return the record of a document.

    Raises:
        CodecError: A field is missing, unknown or of another type.
    """
    try:
        whole = {**document, "inputs": {**document["inputs"], "policies": []}}
        record = _CONVERTER.structure(whole, TickRecord)
    except _DAMAGE as exc:
        msg = f"not a tick record: {type(exc).__name__}: {exc}"
        raise CodecError(msg) from exc
    return replace(record, inputs=replace(record.inputs, policies=policies))


def policies_document(policies: tuple[ServicePolicy, ...]) -> list[Document]:
    """Return the policies as plain dicts, lists and numbers."""
    documents: list[Document] = _CONVERTER.unstructure(policies, tuple[ServicePolicy, ...])
    return list(documents)


def policies_from(documents: object) -> tuple[ServicePolicy, ...]:
    """Return the policies of `policies_document`.

    Raises:
        CodecError: A field is missing, unknown or of another type.
    """
    try:
        return _CONVERTER.structure(documents, tuple[ServicePolicy, ...])
    except _DAMAGE as exc:
        msg = f"not a list of policies: {type(exc).__name__}: {exc}"
        raise CodecError(msg) from exc


def dumped(document: object) -> str:
    """Return compact JSON on one line."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def digest(document: object) -> str:
    """Return the SHA-256 of the document's JSON with sorted keys, as hex."""
    text = json.dumps(document, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
