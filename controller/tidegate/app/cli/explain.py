"""`tidegate explain`: why a pool was sized as it was, from the journal."""

import argparse
import contextlib
import datetime as dt
import difflib
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.terms.errors import BadInputError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.app.record import TickRecord
    from tidegate.terms.decision import PoolDecision

EXAMPLE = "tidegate explain chat/main --journal journal.jsonl --at 2026-12-01T09:30:00Z"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("pool", metavar="POOL", help="SERVICE/POOL, or the pool's name alone when only one has it")
    parser.add_argument("--journal", type=Path, required=True, metavar="PATH", help="the journal's newest file")
    parser.add_argument(
        "--at", metavar="TIME", help="the decision in force then: ISO 8601 (UTC unless it says) or Unix seconds"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Print the newest decision (or the one in force at `--at`) of a pool with its reasons, and return 0."""
    from tidegate.app.journal_read import last, read  # noqa: PLC0415  (keeps `--help` fast)

    at_s = parse_time_s(args.at) if args.at else None
    if at_s is None:
        if not args.journal.exists():
            msg = f"{args.journal}: no such journal"
            raise BadInputError(msg)
        record = last(args.journal)
    else:
        record = in_force(read(args.journal), at_s)
    if record is None:
        when = f" at or before {args.at}" if args.at else ""
        msg = f"{args.journal}: holds no decision{when}"
        raise RefusedError(msg)
    pool = find_pool(record, args.pool)
    document = explained(record, pool)
    if args.json:
        sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
    else:
        _print(document)
    return 0


def parse_time_s(text: str) -> float:
    """Return Unix seconds.

    Raises:
        BadInputError: Neither a number nor an ISO 8601 time.
    """
    with contextlib.suppress(ValueError):
        if math.isfinite(float(text)):
            return float(text)
    try:
        parsed = dt.datetime.fromisoformat(text)
    except ValueError as exc:
        msg = f"--at: must be an ISO 8601 time or Unix seconds, got {text!r}; for example 2026-12-01T09:30:00Z"
        raise BadInputError(msg) from exc
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=dt.UTC)).timestamp()


def in_force(records: "Iterable[TickRecord]", at_s: float) -> "TickRecord | None":
    """Return the last record decided at or before `at_s`; None when all are later."""
    found = None
    for record in records:
        if record.decision.decided_at_s > at_s:
            break
        found = record
    return found


def find_pool(record: "TickRecord", name: str) -> "PoolDecision":
    """Return the pool called `name`.

    Raises:
        BadInputError: No pool or several are called so.
    """
    pools = record.decision.pools
    found = [p for p in pools if name in {str(p.key), p.key.pool}]
    if len(found) == 1:
        return found[0]
    known = sorted(str(p.key) for p in pools)
    if found:
        msg = f"pool {name}: several services have one; say which: {', '.join(sorted(str(p.key) for p in found))}"
        raise BadInputError(msg)
    near = difflib.get_close_matches(name, [*known, *(p.key.pool for p in pools)], n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]}?" if near else ""
    msg = f"pool {name}: no such pool; there is {', '.join(known) or 'none'}{hint}"
    raise BadInputError(msg)


def explained(record: "TickRecord", pool: "PoolDecision") -> dict[str, Any]:
    """Return all that is known about the pool's decision, as one JSON document."""
    from tidegate.core.explain import counterfactual, sentence  # noqa: PLC0415  (keeps `--help` fast)

    told = counterfactual(pool)
    return {
        "pool": str(pool.key),
        "sequence": record.decision.sequence,
        "decided_at_s": record.decision.decided_at_s,
        "sentence": sentence(pool),
        "verdict": str(pool.verdict),
        "binding": str(pool.binding),
        "asked_before_replicas": pool.asked_before_replicas,
        "wanted_replicas": pool.wanted_replicas,
        "asked_replicas": pool.asked_replicas,
        "ready_replicas": pool.ready_replicas,
        "starting_replicas": pool.starting_replicas,
        "draining_replicas": pool.draining_replicas,
        "drain_first": list(pool.drain_first),
        "writes": pool.writes,
        "one_more": told.one_more,
        "one_fewer": told.one_fewer,
        "notes": [
            {
                "reason": str(note.reason),
                "before_replicas": note.before_replicas,
                "after_replicas": note.after_replicas,
                "facts": dict(note.facts),
                "text": note.text,
            }
            for note in pool.notes
        ],
    }


def _print(document: dict[str, Any]) -> None:
    when = dt.datetime.fromtimestamp(document["decided_at_s"], tz=dt.UTC)
    wanted = "unknown" if document["wanted_replicas"] is None else document["wanted_replicas"]
    print(document["sentence"])
    print(f"  decision {document['sequence']} at {when:%Y-%m-%d %H:%M:%S} UTC, bound by {document['binding']}")
    print(
        f"  replicas: {document['ready_replicas']} ready, {document['starting_replicas']} starting, "
        f"{document['draining_replicas']} draining; wanted {wanted}, asked {document['asked_replicas']}"
    )
    print(f"  one more would take: {document['one_more'] or 'nothing would'}")
    print(f"  one fewer would take: {document['one_fewer'] or 'nothing would'}")
    if document["drain_first"]:
        print(f"  leaving first: {', '.join(document['drain_first'])}")
