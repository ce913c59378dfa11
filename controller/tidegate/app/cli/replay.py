"""`tidegate replay`: decide every journal line again and prove it identical."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

EXAMPLE = "tidegate replay journal.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("journal", type=Path, metavar="JOURNAL", help="the journal's newest file; older ones are found")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Return 0 when every decision came out identical, 1 when one differs."""
    from tidegate.app.journal_read import read_located  # noqa: PLC0415  (keeps `--help` fast)
    from tidegate.app.replay import Replay, replay  # noqa: PLC0415

    torn: list[str] = []
    found: Replay = replay(read_located(args.journal, on_torn=torn.append))
    if args.json:
        document = {"identical": found.different == 0, **asdict(found), "torn": torn}
        sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
    elif found.first is None:
        print(f"{found.records} records, {found.pools} pool decisions: all identical")
    else:
        print(f"{found.records} records, {found.pools} pool decisions: {found.different} records differ")
        first = found.first
        print(f"first: {first.where}: decision {first.sequence}: {first.field}")
        print(f"  journalled: {first.journalled}")
        print(f"  replayed:   {first.replayed}")
        print(f"written by tidegate {', '.join(found.written_by)}")
    if torn and not args.json:
        print(f"1 torn last line ignored: {torn[0]}")
    return 0 if found.different == 0 else 1
