"""The document: plain data under its own schema, whatever could not be worked out."""

import json
import math
from pathlib import Path

import jsonschema
import pytest
from tests.app.rehearse.documents import document, figures, result

from tidegate.app.rehearse.document import SCHEMA, SeedFigures
from tidegate.app.rehearse.document_schema import field_tables, json_schema, plain

ROOT = Path(__file__).parents[3]


def test_schema_is_a_schema_and_takes_a_document() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(plain(document()), schema)


def test_schema_takes_what_could_not_be_worked_out() -> None:
    bare = document(
        policies=(result("x", 0.5, 1.0, None, replicas=None, knob=None, frontier=(), seeds=(), faults=()),),
        forecast=None,
    )
    jsonschema.validate(plain(bare), json_schema())


@pytest.mark.parametrize("field", ["attainment_ratio", "gap_closed_ratio", "matched_gpu_hours", "capacity_check"])
def test_schema_refuses_a_policy_without_a_field(field: str) -> None:
    printed = plain(document())
    del printed["policies"][0][field]
    with pytest.raises(jsonschema.ValidationError, match=f"'{field}' is a required property"):
        jsonschema.validate(printed, json_schema())


def test_schema_refuses_text_for_a_number_and_an_unknown_field() -> None:
    printed = plain(document())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(printed | {"extra": 1}, json_schema())
    printed["trace"]["requests"] = "many"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(printed, json_schema())


def test_document_begins_with_its_schema_and_holds_the_fields_promised() -> None:
    printed = json.loads(json.dumps(plain(document())))
    assert printed["schema"] == SCHEMA
    promised = {
        "name", "attainment_ratio", "gpu_hours", "cost_usd", "goodput_per_s", "ttft_p50_s", "ttft_p95_s", "ttft_p99_s",
        "tpot_p50_s", "tpot_p95_s", "tpot_p99_s", "scale_events", "gap_closed_ratio", "matched_gpu_hours",
    }  # fmt: skip
    assert all(promised <= policy.keys() for policy in printed["policies"])


def test_number_that_is_not_finite_is_null() -> None:
    seen = SeedFigures(**(figures(0.5, math.inf) | {"ttft_p99_s": math.nan}), seed=0)
    assert plain(seen) == figures(0.5, 1.0) | {"gpu_hours": None, "cost_usd": None, "ttft_p99_s": None, "seed": 0}


def test_every_null_of_a_policy_has_its_reason_beside_it() -> None:
    policy = plain(result("x", 0.5, 1.0, None))
    for field in ("matched_gpu_hours", "gap_closed_ratio"):
        assert policy[field] is None
        assert policy[f"{field}_reason"]


def test_tables_list_every_object_of_the_schema() -> None:
    told = field_tables()
    for name, definition in json_schema()["$defs"].items():
        assert f"### {name}\n" in told
        for field, said in definition["properties"].items():
            assert f"| `{field}` | " in told
            assert said["description"] in told


def test_documentation_lists_the_fields_as_they_are() -> None:
    shown = (ROOT / "docs" / "rehearse.md").read_text(encoding="utf-8").partition("<!-- fields -->\n")[2]
    assert shown == field_tables(), "python -m tidegate.app.rehearse.document_schema --markdown"
