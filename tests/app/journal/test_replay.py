"""Replay proves decisions identical, names the first that is not, and the golden journal guards `decide`."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.app.cli.main import main
from tidegate.app.journal import Journal, read
from tidegate.app.record import TickRecord
from tidegate.terms.decision import Reason, Verdict

Records = Callable[[int], list[TickRecord]]
GOLDEN = Path(__file__).parents[2] / "golden" / "scripted.journal.jsonl"


def test_golden_journal_is_decided_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    """A change of `decide` that is meant is journalled again: python tests/golden/scripted_run.py."""
    assert main(["replay", str(GOLDEN)]) == 0, capsys.readouterr().out
    assert capsys.readouterr().out == "48 records, 48 pool decisions: all identical\n"


def test_golden_journal_holds_the_harms_it_was_made_for() -> None:
    pools = [record.decision.pools[0] for record in read(GOLDEN)]
    bindings = {pool.binding for pool in pools}
    assert {
        Reason.DEMAND_FORECAST,
        Reason.STALE_METRICS,
        Reason.CONTRACT_VIOLATION,
        Reason.STABILISATION,
        Reason.DRAINING,
        Reason.FROZEN,
        Reason.FLOOR,
        Reason.AT_MAXIMUM,
    } <= bindings
    assert any(note.reason is Reason.REPLACE_FAILED for pool in pools for note in pool.notes)
    blind = [pool for pool in pools if pool.binding is Reason.STALE_METRICS]
    assert len(blind) == 4
    assert all(pool.verdict is Verdict.HOLD for pool in blind)


def test_replay_names_the_first_difference(
    tmp_path: Path, records: Records, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "j"
    given = records(9)
    pool = replace(given[6].decision.pools[0], asked_replicas=99)
    given[6] = replace(given[6], decision=replace(given[6].decision, pools=(pool,)))
    given[8] = replace(given[8], memory_after=replace(given[8].memory_after, sequence=0))
    with Journal(path) as journal:
        for record in given:
            journal.append(record)
    assert main(["replay", str(path)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "9 records, 9 pool decisions: 2 records differ"
    assert said[1] == f"first: {path}:8: decision 7: decision.pools[0].asked_replicas"
    assert said[2:4] == ["  journalled: 99", "  replayed:   2"]
    assert main(["replay", str(path), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["identical"], document["different"], document["first"]["sequence"]) == (False, 2, 7)


def test_replay_reads_all_segments(tmp_path: Path, records: Records, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "j"
    with Journal(path, max_bytes=30_000, keep=50) as journal:
        for record in records(12):
            journal.append(record)
    assert (tmp_path / "j.2").exists()
    assert main(["replay", str(path)]) == 0
    assert "12 records" in capsys.readouterr().out


@pytest.mark.parametrize("content", [None, b"hello\nworld\n", b"\x00" * 50 + b"\n" + b"\x00" * 50 + b"\n"])
def test_replay_of_a_bad_file_answers_two(
    tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "j"
    if content is not None:
        path.write_bytes(content)
    assert main(["replay", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_replay_of_an_empty_journal_is_identical(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "j").touch()
    assert main(["replay", str(tmp_path / "j")]) == 0
    assert capsys.readouterr().out == "0 records, 0 pool decisions: all identical\n"


@pytest.mark.parametrize("words", [["replay", "{}"], ["explain", "chat/main", "--journal", "{}"]])
def test_folder_given_as_a_journal_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main([w.format(tmp_path) for w in words]) == 2
    said = f"tidegate: {tmp_path}: must be a journal file such as {tmp_path}/journal.jsonl, is a folder\n"
    assert capsys.readouterr().err == said


def test_replay_tells_of_a_torn_last_line(tmp_path: Path, records: Records, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        for record in records(3):
            journal.append(record)
    path.write_bytes(path.read_bytes()[:-9])
    assert main(["replay", str(path)]) == 0
    said = f"2 records, 2 pool decisions: all identical\n1 torn last line ignored: {path}:4\n"
    assert capsys.readouterr().out == said
    assert main(["replay", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["torn"] == [f"{path}:4"]
