"""The policy's JSON Schema, and the same as a table for people."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from tidegate.app.config_model import InventoryModel, ServicePolicyModel

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

_TYPES = {"integer": "a whole number", "number": "a number", "boolean": "`true`, `false`", "array": "a list"}
_LIMITS = (("minimum", ">="), ("exclusiveMinimum", ">"), ("maximum", "<="), ("exclusiveMaximum", "<"))


def policy_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a `ServicePolicy` document."""
    return _schema(ServicePolicyModel, "ServicePolicy")


def inventory_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of an `Inventory` document."""
    return _schema(InventoryModel, "Inventory")


def field_table(schema: dict[str, Any]) -> str:
    """Return a Markdown table of every field of a schema, in the order of the file."""
    rows = ["| field | what it must be | default | meaning |", "| --- | --- | --- | --- |"]
    rows += [f"| `{name}` | {must} | {default} | {text} |" for name, must, default, text in _fields(schema, schema, "")]
    return "\n".join(rows) + "\n"


def _schema(model: type[BaseModel], name: str) -> dict[str, Any]:
    made = model.model_json_schema(by_alias=True, mode="validation")
    clean: dict[str, Any] = _clean(made)
    return {"$schema": _DIALECT, "$id": f"urn:tidegate:v1alpha1:{name}", "title": name, **clean}


def _clean(node: Any) -> Any:  # noqa: ANN401  (any JSON)
    """Return the schema without generated titles, and without `null`: a field without a value is left out."""
    if isinstance(node, list):
        return [_clean(item) for item in node]
    if not isinstance(node, dict):
        return node
    out = {k: _clean(v) for k, v in node.items() if not (k == "title" and isinstance(v, str))}
    if out.get("default", "") is None:
        del out["default"]
    options = [o for o in out.get("anyOf", []) if o != {"type": "null"}]
    if "anyOf" in out and len(options) == 1:
        del out["anyOf"]
        # A field that may be absent carries its type in a branch of its own; one branch needs no choice.
        return {**options[0], **out}
    return out


def _fields(root: dict[str, Any], node: dict[str, Any], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    required = node.get("required", [])
    for name, raw in node.get("properties", {}).items():
        field = _resolved(root, raw)
        path = f"{prefix}{name}"
        below, suffix = field, "."
        if field.get("type") == "array" and isinstance(field.get("items"), dict):
            below, suffix = _resolved(root, field["items"]), "[]."
        text = raw.get("description", field.get("description", "")).replace("|", "\\|")
        yield path, _must(field), _default(raw, required=name in required), text
        yield from _fields(root, below, path + suffix)


def _resolved(root: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in node:
        return node
    target: dict[str, Any] = root["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    return target


def _default(field: dict[str, Any], *, required: bool) -> str:
    if required:
        return "**required**"
    if "x-default" in field:
        return str(field["x-default"])
    default = field.get("default")
    if default is None or default == {}:
        return "none"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _must(field: dict[str, Any]) -> str:
    if "x-range" in field:
        return str(field["x-range"])
    if "const" in field or "enum" in field:
        return ", ".join(f"`{v}`" for v in field.get("enum", [field.get("const")]))
    if field.get("type") == "string":
        return "a name" if field.get("maxLength") is None else "text"
    limits = [f"{sign} {field[key]:.10g}" for key, sign in _LIMITS if key in field]
    return f"{_TYPES.get(str(field.get('type')), 'a mapping')} {', '.join(limits)}".strip()
