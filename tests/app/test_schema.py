import json

import pytest

from tidegate.app.cli.main import main
from tidegate.app.config import inventory_schema, policy_schema


def test_schema_prints_the_policys_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == policy_schema()


def test_schema_prints_the_inventorys_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--kind", "Inventory", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == inventory_schema()


def test_schema_prints_a_table_of_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--table"]) == 0
    assert "| `spec.pools[].minReplicas` | a whole number >= 0, <= 10000 | **required** |" in capsys.readouterr().out
