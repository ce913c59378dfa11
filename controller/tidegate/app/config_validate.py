"""A YAML document against its pydantic model; every complaint in our own words, with line and spelling."""

import typing
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tidegate.app.config_model import LABEL_PATTERN, MODEL_PATTERN
from tidegate.app.config_problem import FieldPath, Problem, case_hint, did_you_mean, got_must
from tidegate.app.config_yaml import Document

_M = TypeVar("_M", bound=BaseModel)
_PERCENT = 100
_MAX_PROBLEMS = 100  # of one document: more are no help, and "did you mean" costs time
_KINDS: dict[str, str] = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "text (write it in quotes)",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping of fields",
    "model_type": "a mapping of fields",
    "model_attributes_type": "a mapping of fields",
    "string_too_short": "text that is not empty",
}
# Kind of error: the sentence's end, and the key of the limit in pydantic's context.
_LIMITS: dict[str, tuple[str, str]] = {
    "enum": ("one of {}", "expected"),
    "literal_error": ("one of {}", "expected"),
    "greater_than": ("> {}", "gt"),
    "greater_than_equal": (">= {}", "ge"),
    "less_than": ("< {}", "lt"),
    "less_than_equal": ("<= {}", "le"),
    "too_short": ("at least {} long", "min_length"),
    "too_long": ("at most {} long", "max_length"),
    "string_too_long": ("at most {} characters", "max_length"),
}
_PATTERNS: dict[str, str] = {
    LABEL_PATTERN: "lower-case letters, digits and dashes, at most 63, beginning and ending with a letter or digit",
    MODEL_PATTERN: "printable ASCII characters without spaces",
}


def validate(model: type[_M], document: Document, value: object, path: FieldPath = ()) -> _M | list[Problem]:
    """Return the model of `value`, which sits at `path` of the document, or all that is wrong with it."""
    try:
        return model.model_validate(value)
    except ValidationError as exc:
        return [_problem(model, document, path, error) for error in exc.errors(include_url=False)[:_MAX_PROBLEMS]]


def _problem(model: type[BaseModel], document: Document, path: FieldPath, error: ErrorDetails) -> Problem:
    at = (*path, *error["loc"])
    kind = error["type"]
    if kind == "extra_forbidden":
        parent = _model_at(model, error["loc"][:-1])
        known = [f.alias or n for n, f in parent.model_fields.items()] if parent is not None else []
        return document.problem(at, "unknown field" + did_you_mean(str(error["loc"][-1]), known))
    if kind == "missing":
        return document.problem(at, "missing, must be given")
    return document.problem(at, got_must(error["input"], _must(error)) + _suggestion(error))


def _must(error: ErrorDetails) -> str:
    """Return what the value must be, for the end of "must be …"."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])  # our own parsers raise exactly this text
    if kind in _LIMITS:
        form, key = _LIMITS[kind]
        limit = context[key]
        return form.format(f"{limit:g}" if isinstance(limit, float) else limit)
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(context["pattern"], "text on one line, without control characters")
    return _KINDS.get(kind, error["msg"])


def _suggestion(error: ErrorDetails) -> str:
    given = error["input"]
    if error["type"] in ("enum", "literal_error") and isinstance(given, str):
        expected = error.get("ctx", {})["expected"].replace(" or ", ", ").split(", ")
        words = [w.strip("'") for w in expected]
        return did_you_mean(given, words) if len(words) > 1 else case_hint(given, words[0])
    return _scale_hint(error)


def _scale_hint(error: ErrorDetails) -> str:
    """Return a hint for a share written in percent, or a percentage written as a share."""
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    if not isinstance(given, int | float) or isinstance(given, bool):
        return ""
    if kind in ("less_than", "less_than_equal") and context.get("lt", context.get("le")) == 1 and 1 < given < _PERCENT:
        return f" (a share: did you mean {given / _PERCENT:.10g}?)"
    if error["loc"][-1:] == ("percentile",) and kind == "greater_than_equal" and given * _PERCENT >= context["ge"]:
        return f" (in percent: did you mean {given * _PERCENT:.10g}?)"
    return ""


def _model_at(model: type[BaseModel], path: FieldPath) -> type[BaseModel] | None:
    """Return the model that describes the mapping at `path` below `model`."""
    here: type[BaseModel] | None = model
    for part in path:
        if here is None:
            return None
        if isinstance(part, int):
            continue  # an index into a list: the field before already led to the item's model
        found = [f for n, f in here.model_fields.items() if part in (n, f.alias)]
        here = _model_in(found[0].annotation) if found else None
    return here


def _model_in(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401  (a typing construct)
    if typing.get_origin(annotation) is None and isinstance(annotation, type):
        return annotation if issubclass(annotation, BaseModel) else None
    return next((m for m in map(_model_in, typing.get_args(annotation)) if m is not None), None)
