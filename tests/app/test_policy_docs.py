"""The documentation of the policy file is made of the models and the examples; this proves it."""

from pathlib import Path

import pytest

from tidegate.app.config_profile import load_profile, shipped_profiles
from tidegate.app.config_schema import field_table, inventory_schema, policy_schema

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
PROFILE_DOCS = (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("schema", [policy_schema(), inventory_schema()], ids=lambda s: str(s["title"]))
def test_policy_docs_hold_the_table_of_every_field(schema: dict[str, object]) -> None:
    assert field_table(schema) in DOCS, f"docs/policy.md: paste `tidegate schema --table --kind {schema['title']}`"


@pytest.mark.parametrize("example", ["policies/chat.yaml", "nodes.yaml"])
def test_policy_docs_show_the_shipped_example(example: str) -> None:
    text = (ROOT / "examples" / example).read_text(encoding="utf-8")
    assert f"```yaml\n{text}```" in DOCS


def test_chat_example_is_thirty_lines_or_fewer() -> None:
    text = (ROOT / "examples" / "policies" / "chat.yaml").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 30


def test_every_field_has_a_description() -> None:
    rows = [line for s in (policy_schema(), inventory_schema()) for line in field_table(s).splitlines()[2:]]
    assert len(rows) > 50
    assert [row for row in rows if row.rstrip(" |").endswith("|") or row.split(" | ")[-1].strip(" |") == ""] == []


def test_profile_docs_list_every_shipped_profile() -> None:
    profiles = [load_profile(name) for name in shipped_profiles()]
    rows = "\n".join(
        f"| `{p.name}` | `{p.model}` | `{p.accelerator}` | {p.tensor_parallel} | {p.engine} {p.engine_version} "
        f"| {p.fit_error_ratio:.1%} |"
        for p in profiles
    )
    assert f"| --- | --- | --- | --- | --- | --- |\n{rows}\n\n" in PROFILE_DOCS
