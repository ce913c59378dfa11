"""The journal on real files: torn, damaged, full, rotated, killed, fought over."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.app.journal import Journal, JournalDamagedError, JournalFullError, last, read
from tidegate.app.journal_lines import wrap
from tidegate.app.record import TickRecord
from tidegate.terms.decision import PoolDecision
from tidegate.terms.errors import BadInputError, RefusedError

Records = Callable[[int], list[TickRecord]]

# Appends records for ever; says after each how many are on the disk.
WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from tidegate.app.journal import Journal, read
record = next(read(Path(sys.argv[1])))
with Journal(Path(sys.argv[2])) as journal:
    for n in range(1, 1_000_000):
        journal.append(replace(record, decision=replace(record.decision, sequence=n)))
        print(n, flush=True)
"""

# Appends until the file size limit (argument 3) stops it, lifts the limit and appends once more.
FILLER = """
import resource, sys
from pathlib import Path
from tidegate.app.journal import Journal, JournalFullError, read
record = next(read(Path(sys.argv[1])))
limit = int(sys.argv[3])
with Journal(Path(sys.argv[2])) as journal:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    written = 0
    try:
        while True:
            journal.append(record)
            written += 1
    except JournalFullError as exc:
        print(exc)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    journal.append(record)
    print(written + 1)
"""


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def test_journal_gives_back_exactly_what_was_appended(tmp_path: Path, records: Records) -> None:
    path = tmp_path / "deep" / "journal.jsonl"
    given = records(5)
    with Journal(path) as journal:
        for record in given:
            journal.append(record)
    assert list(read(path)) == given
    assert last(path) == given[-1]


def test_journal_takes_text_that_is_no_valid_unicode(tmp_path: Path, records: Records) -> None:
    path = tmp_path / "j"
    (record,) = records(1)
    odd = replace(record, decision=replace(record.decision, pools=_renamed(record, "half \ud800 pair")))
    with Journal(path) as journal:
        journal.append(odd)
        journal.append(record)
    assert list(read(path)) == [odd, record]
    assert last(path) == record


def _renamed(record: TickRecord, text: str) -> tuple[PoolDecision, ...]:
    first, *others = record.decision.pools
    note, *notes = first.notes
    return (replace(first, notes=(replace(note, text=text), *notes)), *others)


def test_journal_goes_on_after_reopening(tmp_path: Path, records: Records) -> None:
    path = tmp_path / "j"
    given = records(4)
    for half in (given[:2], given[2:]):
        with Journal(path) as journal:
            for record in half:
                journal.append(record)
    assert list(read(path)) == given


def test_policies_are_written_once_until_they_change(tmp_path: Path, records: Records) -> None:
    path = tmp_path / "j"
    first, second, third = records(3)
    other = replace(second.inputs.policies[0], priority=7)
    changed = replace(second, inputs=replace(second.inputs, policies=(other,)))
    with Journal(path) as journal:
        for record in (first, first, changed, changed, third):
            journal.append(record)
    assert sum(b'"kind":"policies"' in line for line in lines_of(path)) == 3
    assert list(read(path)) == [first, first, changed, changed, third]
    assert last(path) == third


def test_an_empty_or_missing_journal_has_no_last_record(tmp_path: Path) -> None:
    assert last(tmp_path / "none") is None
    (tmp_path / "empty").touch()
    assert last(tmp_path / "empty") is None
    assert list(read(tmp_path / "empty")) == []
    with pytest.raises(BadInputError, match="no such journal"):
        list(read(tmp_path / "none"))


@pytest.mark.parametrize("cut", [1, 2, 40, 4_000])
def test_a_torn_last_line_is_tolerated_and_cut_on_reopening(tmp_path: Path, records: Records, cut: int) -> None:
    path = tmp_path / "j"
    given = records(4)
    with Journal(path) as journal:
        for record in given[:3]:
            journal.append(record)
    os.truncate(path, path.stat().st_size - cut)
    assert list(read(path)) == given[:2]
    assert last(path) == given[1]
    with Journal(path) as journal:
        journal.append(given[3])
    assert list(read(path)) == [*given[:2], given[3]]


def test_a_last_line_of_zeros_after_a_power_cut_is_cut(tmp_path: Path, records: Records) -> None:
    path = tmp_path / "j"
    given = records(3)
    with Journal(path) as journal:
        for record in given[:2]:
            journal.append(record)
    with path.open("ab") as stream:
        stream.write(b"\0" * 300 + b"\n")
    assert list(read(path)) == given[:2]
    with Journal(path) as journal:
        journal.append(given[2])
    assert list(read(path)) == given


def test_a_damaged_middle_line_is_named_with_file_and_line(tmp_path: Path, records: Records) -> None:
    path = tmp_path / "j"
    given = records(3)
    with Journal(path) as journal:
        for record in given:
            journal.append(record)
    lines = lines_of(path)
    lines[2] = lines[2].replace(b'"chat"', b'"chap"', 1)
    path.write_bytes(b"".join(lines))
    reading = read(path)
    assert next(reading) == given[0]
    with pytest.raises(JournalDamagedError, match=rf"^{path}:3: CRC-32 is [0-9a-f]{{8}}, the line says"):
        next(reading)
    assert last(path) == given[-1]


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\0", b"hello\n\n", b"\x80\xff\n" * 5, b'{"crc":"00000000","body":{}}\n{}\n']
)
def test_a_file_that_is_no_journal_is_refused_or_empty(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "j"
    path.write_bytes(content)
    if content.count(b"\n") > 1:
        with pytest.raises(JournalDamagedError, match=r":1: "):
            list(read(path))
    else:
        assert list(read(path)) == []


def test_a_line_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(wrap('{"kind":"tick","format":99,"tidegate":"9.9"}') + wrap("{}"))
    with pytest.raises(JournalDamagedError, match=r":1: format 99 written by tidegate 9\.9"):
        list(read(path))


def test_rotation_keeps_the_newest_segments_and_each_reads_alone(tmp_path: Path, records: Records) -> None:
    path = tmp_path / "j"
    given = records(12)
    with Journal(path) as journal:
        journal.append(max(given, key=lambda r: len(repr(r))))
    one_bytes = path.stat().st_size
    path.unlink()
    with Journal(path, max_bytes=2 * one_bytes, keep=2) as journal:
        for record in given:
            journal.append(record)
    assert sorted(f.name for f in tmp_path.iterdir() if not f.name.endswith(".lock")) == ["j", "j.1", "j.2"]
    assert all(f.stat().st_size <= 2 * one_bytes for f in tmp_path.iterdir())
    kept = list(read(path))
    assert kept == given[-len(kept) :]
    assert len(kept) >= 3
    assert last(path) == given[-1]
    assert list(read(tmp_path / "j.1"))[-1] in kept


def test_rotation_without_older_segments_keeps_one_file(tmp_path: Path, records: Records) -> None:
    path = tmp_path / "j"
    with Journal(path, max_bytes=1, keep=0) as journal:
        for record in records(3):
            journal.append(record)
    assert [f.name for f in tmp_path.iterdir() if not f.name.endswith(".lock")] == ["j"]
    assert list(read(path)) == records(3)[-1:]


def test_a_crash_between_the_renames_of_a_rotation_loses_nothing(tmp_path: Path, records: Records) -> None:
    path = tmp_path / "j"
    given = records(3)
    for record in given[:2]:
        with Journal(path) as journal:
            journal.append(record)
        path.rename(tmp_path / f"j.{3 - 2 * given.index(record)}")  # j.3 is older than j.1, j.2 and j are missing
    assert last(path) == given[1]
    with Journal(path) as journal:
        journal.append(given[2])
    assert list(read(path)) == given


def test_a_full_device_is_said_with_the_path_and_nothing_is_left_behind(tmp_path: Path, records: Records) -> None:
    path = tmp_path / "j"
    path.symlink_to("/dev/full")
    with Journal(path) as journal:
        for record in records(2):
            with pytest.raises(JournalFullError, match=rf"{path}: journal cannot be written: No space left on device"):
                journal.append(record)


def test_a_write_that_fails_half_way_is_taken_back_and_the_next_one_succeeds(tmp_path: Path, records: Records) -> None:
    given, path = tmp_path / "given", tmp_path / "j"
    with Journal(given) as journal:
        journal.append(records(1)[0])
    line_bytes = given.stat().st_size
    done = subprocess.run(
        [sys.executable, "-c", FILLER, str(given), str(path), str(3 * line_bytes + line_bytes // 2)],
        check=True,
        capture_output=True,
        text=True,
    )
    said, written = done.stdout.splitlines()
    assert said.startswith(f"{path}: journal cannot be written: File too large")
    assert list(read(path)) == records(1) * int(written)


def test_a_folder_that_may_not_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="is a folder"):
        Journal(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(BadInputError, match="not usable as a journal"):
        Journal(tmp_path / "file" / "j")


def test_a_second_writer_is_refused_and_the_lock_ends_with_the_first(tmp_path: Path, records: Records) -> None:
    path = tmp_path / "j"
    with Journal(path) as first:
        with pytest.raises(RefusedError, match=rf"{path}: is written by another controller \(pid {os.getpid()}\)"):
            Journal(path)
        first.append(records(1)[0])
    with Journal(path) as second:
        second.append(records(1)[0])
    assert len(list(read(path))) == 2


def test_a_writer_killed_while_writing_loses_at_most_the_line_it_was_writing(tmp_path: Path, records: Records) -> None:
    given, path = tmp_path / "given", tmp_path / "j"
    with Journal(given) as journal:
        journal.append(records(1)[0])
    for round_number in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(given), str(path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            acknowledged = [int(writer.stdout.readline()) for _ in range(20)]
            time.sleep(0.003 * round_number)  # to be killed at another place each time
            writer.send_signal(signal.SIGKILL)
            acknowledged += [int(line) for line in writer.stdout if line.endswith("\n")]
        sequences = [r.decision.sequence for r in read(path)]
        newest = sequences[-len(acknowledged) - 1 :]
        assert acknowledged[-1] in newest
        assert newest[-1] <= acknowledged[-1] + 1
        assert last(path) is not None
    with Journal(path) as journal:
        journal.append(records(1)[0])


def test_reading_the_last_record_does_not_read_the_whole_journal(tmp_path: Path, records: Records) -> None:
    path = tmp_path / "j"
    with Journal(path) as journal:
        for record in records(3) * 40:
            journal.append(record)
    lines = lines_of(path)
    lines[30] = b"x" * (len(lines[30]) - 1) + b"\n"  # damage far from the end is not even looked at
    path.write_bytes(b"".join(lines))
    assert last(path) == records(3)[-1]
