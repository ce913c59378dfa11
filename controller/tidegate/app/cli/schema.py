"""`tidegate schema`: the JSON Schema of the policy file."""

import argparse
import json
import sys

EXAMPLE = "tidegate schema > policy.schema.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "--kind",
        choices=("ServicePolicy", "Inventory"),
        default="ServicePolicy",
        help="which kind (default: ServicePolicy)",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON, which is also the default")
    form.add_argument("--table", action="store_true", help="print the fields as a Markdown table, as in docs/policy.md")


def run(args: argparse.Namespace) -> int:
    """Print the schema and return 0."""
    from tidegate.app import config_schema  # noqa: PLC0415  (pydantic is slow to import)

    schema = config_schema.policy_schema() if args.kind == "ServicePolicy" else config_schema.inventory_schema()
    text = config_schema.field_table(schema) if args.table else json.dumps(schema, indent=2) + "\n"
    sys.stdout.write(text)
    return 0
