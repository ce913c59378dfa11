from pathlib import Path

from rich.console import Console

from tidegate.app.journal_read import read
from tidegate.app.live import pools_table, text
from tidegate.terms.signal import UnknownReason, reading, unknown

GOLDEN = Path(__file__).parents[1] / "golden" / "scripted.journal.jsonl"


def test_pools_table_shows_the_counts_of_a_real_tick() -> None:
    record = list(read(GOLDEN))[-1]
    console = Console(width=200, record=True, force_terminal=False)
    console.print(pools_table(record))
    shown = console.export_text()
    for pool in record.decision.pools:
        assert str(pool.key) in shown
        assert str(pool.asked_replicas) in shown


def test_text_says_unknown_and_why_instead_of_a_number() -> None:
    lost = unknown(UnknownReason.UNREACHABLE, "", now_s=1.0, source="x")
    assert text(lost) == "unknown (unreachable)"
    assert text(reading(0.0, sampled_at_s=1.0, coverage_ratio=1.0, source="x")) == "0.00"
    assert text(reading(0.951, sampled_at_s=1.0, coverage_ratio=1.0, source="x"), percent=True) == "95.1 %"
