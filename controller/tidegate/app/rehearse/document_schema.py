"""The document as plain data, its JSON Schema, and the tables of its fields.

`python -m tidegate.app.rehearse.document_schema` prints the schema, with `--markdown` the tables of docs/rehearse.md.
"""

import dataclasses
import json
import math
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

from tidegate.app.rehearse.document import SCHEMA, Document

_PLAIN: dict[Any, str] = {str: "string", float: "number", int: "integer", bool: "boolean"}


def plain(value: Any) -> Any:  # noqa: ANN401  (JSON)
    """Return a document, or a part of it, as what `json` writes; a number that is not finite is null."""
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the document."""
    definitions: dict[str, Any] = {}
    root = _reference(Document, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Tidegate rehearsal, {SCHEMA}",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _reference(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    name = kind.__name__
    if name not in definitions:
        definitions[name] = {}  # so that a type that holds itself would end
        fields = _fields(kind)
        definitions[name] = {
            "type": "object",
            "description": (kind.__doc__ or "").partition("\n")[0],
            "properties": {name: {**_of(hint, definitions), "description": meaning} for name, hint, meaning in fields},
            "required": [name for name, _, _ in fields],
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{name}"}


def _fields(kind: type) -> list[tuple[str, Any, str]]:
    """Return (name, type, meaning) of each field."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return [(f.name, hints[f.name].__origin__, hints[f.name].__metadata__[0]) for f in dataclasses.fields(kind)]


def _of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401  (a type of any kind)
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _reference(hint, definitions)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return {"type": "array", "items": _of(args[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(args[1], definitions)}
    if origin in {types.UnionType, typing.Union}:
        return {"anyOf": [{"type": "null"} if a is type(None) else _of(a, definitions) for a in args]}
    msg = f"document: a field of {hint} has no JSON type"
    raise TypeError(msg)


def field_tables() -> str:
    """Return every object of the document with its fields, as Markdown."""
    parts = []
    for kind in _kinds():
        heading = f"### {kind.__name__}\n\n{(kind.__doc__ or '').partition(chr(10))[0]}\n"
        rows = [f"| `{name}` | {_shown(hint)} | {meaning} |" for name, hint, meaning in _fields(kind)]
        parts.append("\n".join([heading, "| field | type | meaning |", "| --- | --- | --- |", *rows]) + "\n")
    return "\n".join(parts)


def _kinds() -> Iterator[type]:
    seen: list[type] = []
    left: list[type] = [Document]
    while left:
        kind = left.pop(0)
        if kind in seen:
            continue
        seen.append(kind)
        yield kind
        for _, hint, _ in _fields(kind):
            left += [a for a in (hint, *typing.get_args(hint)) if isinstance(a, type) and dataclasses.is_dataclass(a)]


def _shown(hint: Any) -> str:  # noqa: ANN401
    if hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return f"list of {_shown(args[0])}"
    if origin is dict:
        return f"object of {_shown(args[1])}"
    return " or ".join("null" if a is type(None) else _shown(a) for a in args)


if __name__ == "__main__":
    sys.stdout.write(field_tables() if "--markdown" in sys.argv[1:] else json.dumps(json_schema(), indent=2) + "\n")
