"""Trace files: three formats, plain and packed, and one clear error for whatever is wrong with them."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from tidegate.app.traces.blocks import runs_text
from tidegate.app.traces.read import TraceFileError, read_trace, read_traces

OWN = "arrival_s,input_tokens,output_tokens\n0.5,100,10\n0.5,200,1\n3.25,7,2000\n"
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n"
    "2023-11-16 18:15:50.9951690,396,109\r\n2023-11-17 00:00:00.0000000,1,1\r\n"
)
MOONCAKE = (
    '{"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [0, 1]}\n'
    '{"timestamp": 3000, "input_length": 1600, "output_length": 6, "hash_ids": [0, 1, 7, 9]}\n'
)
HASHED = (
    "arrival_s,input_tokens,output_tokens,prefix_id,reusable_tokens,hash_blocks,client\n"
    "0.0,6758,500,1,0,0-13,3\n0.0,7322,490,14,512,0 14-27,3\n1,100,1,2,0,,4\n"
)


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    raw = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_own_csv_is_read_plain_and_packed(tmp_path: Path, name: str) -> None:
    read = read_trace(written(tmp_path, name, OWN))
    assert (read.format, read.trace.name) == ("tidegate-csv", "t")
    assert read.trace.arrival_ps.tolist() == [500_000_000_000, 500_000_000_000, 3_250_000_000_000]
    assert read.trace.prompt_tokens.tolist() == [100, 200, 7]
    assert read.trace.output_tokens.tolist() == [10, 1, 2000]
    assert not read.trace.hash_block_tokens


def test_packed_file_is_told_by_its_bytes_not_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(gzip.compress(OWN.encode()))
    assert len(read_trace(path).trace) == 3


def test_byte_order_mark_windows_lines_blank_lines_and_further_columns_are_taken(tmp_path: Path) -> None:
    text = "\ufeff" + OWN.replace("\n", ",x\r\n").replace("tokens,x", "tokens,note") + "\r\n\r\n"
    assert len(read_trace(written(tmp_path, "t.csv", text)).trace) == 3


def test_columns_may_stand_in_any_order(tmp_path: Path) -> None:
    read = read_trace(written(tmp_path, "t.csv", "output_tokens,arrival_s,input_tokens\n5,1,9\n"))
    assert (read.trace.prompt_tokens[0], read.trace.output_tokens[0]) == (9, 5)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_azure_csv_starts_at_its_first_row_to_the_tenth_of_a_microsecond(tmp_path: Path, name: str) -> None:
    read = read_trace(written(tmp_path, name, AZURE))
    assert read.format == "azure-csv"
    assert read.trace.arrival_ps.tolist() == [0, 4_314_579_000_000, 20_653_319_410_000_000]
    assert read.trace.prompt_tokens.tolist() == [374, 396, 1]


def test_azure_csv_with_time_zones_is_read(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,3,4\n2024-05-10 00:00:01+00:00,3,4\n"
    )
    read = read_trace(written(tmp_path, "a.csv", text))
    assert read.trace.arrival_ps.tolist() == [0, 990_070_000_000]


@pytest.mark.parametrize("name", ["m.jsonl", "m.jsonl.gz"])
def test_mooncake_lines_are_milliseconds_and_ids_of_whole_blocks(tmp_path: Path, name: str) -> None:
    read = read_trace(written(tmp_path, name, MOONCAKE))
    assert read.format == "mooncake-jsonl"
    assert read.trace.arrival_ps.tolist() == [0, 3_000_000_000_000]
    assert read.trace.hash_block_tokens == 512
    # 1600 tokens are three whole blocks and a part: the fourth id stands for the part.
    assert [read.trace.hashes_of(i) for i in range(2)] == [(0, 1), (0, 1, 7)]


def test_mooncake_without_ids_has_no_blocks(tmp_path: Path) -> None:
    read = read_trace(written(tmp_path, "m.jsonl", '{"timestamp": 0, "input_length": 9, "output_length": 5}\n'))
    assert not read.trace.hash_block_tokens


def test_hash_blocks_of_a_csv_are_runs_and_trimmed_to_whole_blocks(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "t.csv.gz", HASHED)).trace
    assert trace.hashes_of(0) == tuple(range(13))
    assert trace.hashes_of(1) == (0, *range(14, 27))
    assert trace.hashes_of(2) == ()
    assert trace.prefix_id.tolist() == [1, 14, 2]
    assert trace.reusable_tokens.tolist() == [0, 512, 0]
    assert trace.client.tolist() == [3, 3, 4]


def test_hash_block_size_can_be_given(tmp_path: Path) -> None:
    text = "arrival_s,input_tokens,output_tokens,hash_blocks\n0,64,1,5-7 9\n"
    trace = read_trace(written(tmp_path, "t.csv", text), block_tokens=16).trace
    assert trace.hashes_of(0) == (5, 6, 7, 9)
    assert trace.hash_block_tokens == 16


@pytest.mark.parametrize("ids", [(), (3,), (0, 1, 2), (5, 4, 3), (1, 2, 9, 10, 4)])
def test_runs_say_what_the_ids_are(tmp_path: Path, ids: tuple[int, ...]) -> None:
    text = f"arrival_s,input_tokens,output_tokens,hash_blocks\n0,512,1,{runs_text(ids)}\n"
    assert read_trace(written(tmp_path, "t.csv", text), block_tokens=16).trace.hashes_of(0) == ids


HEAD = "arrival_s,input_tokens,output_tokens\n"
WHOLE = "must be a whole number from 1 to 10000000"
SECONDS = "must be a number of seconds from 0 to 8640000"
WRONG: dict[str, tuple[str | bytes, str]] = {
    "unsorted": (HEAD + "1,5,5\n3,5,5\n2.5,5,5\n", ':4: arrival_s: got "2.5", must be not earlier than the row before'),
    "negative time": (HEAD + "-1,5,5\n", f':2: arrival_s: got "-1", {SECONDS}'),
    "time is nan": (HEAD + "0,5,5\nnan,5,5\n", f':3: arrival_s: got "nan", {SECONDS}'),
    "time is infinite": (HEAD + "0,5,5\ninf,5,5\n", f':3: arrival_s: got "inf", {SECONDS}'),
    "time of a year": (HEAD + "0,5,5\n31536000,5,5\n", f':3: arrival_s: got "31536000", {SECONDS}'),
    "time is no number": (HEAD + "0,5,5\nnoon,5,5\n", f':3: arrival_s: got "noon", {SECONDS}'),
    "empty time": (HEAD + ",5,5\n", f':2: arrival_s: got "", {SECONDS}'),
    "negative tokens": (HEAD + "0,-5,5\n", f':2: input_tokens: got "-5", {WHOLE}'),
    "zero tokens": (HEAD + "0,5,0\n", f':2: output_tokens: got "0", {WHOLE}'),
    "nan tokens": (HEAD + "0,NaN,5\n", f':2: input_tokens: got "NaN", {WHOLE}'),
    "broken tokens": (HEAD + "0,5.5,5\n", f':2: input_tokens: got "5.5", {WHOLE}'),
    "huge tokens": (HEAD + "0,10000001,5\n", f':2: input_tokens: got "10000001", {WHOLE}'),
    "tokens beyond 64 bits": (HEAD + "0,18446744073709551617,5\n", f'got "18446744073709551617", {WHOLE}'),
    "true tokens": (HEAD + "0,True,5\n", f':2: input_tokens: got "True", {WHOLE}'),
    "digits with underscores": (HEAD + "0,1_000,5\n", f'got "1_000", {WHOLE}'),
    "too few fields": (HEAD + "0,5,5\n1,5\n", "line 3: must have 3 fields, has 2"),
    "too many fields": (HEAD + "0,5,5\n1,5,5,9\n", "line 3: must have 3 fields, has 4"),
    "every row has one more": (HEAD + "0,5,5,1\n1,5,5,9\n", "line 2: must have 3 fields, has 4"),
    "second header": (HEAD + HEAD + "0,5,5\n", f':2: arrival_s: got "arrival_s", {SECONDS}'),
    "empty": ("", "is empty, must hold a header"),
    "header alone": (HEAD, "holds no request, must have at least one row under its header"),
    "wrong header": (
        "time,prompt,answer\n0,1,1\n",
        "header: found the columns time, prompt, answer; needs arrival_s,input_tokens,output_tokens (tidegate-csv); or",
    ),
    "no header": ("0,1,1\n1,1,1\n", "header: found the columns 0, 1, 1; needs arrival_s"),
    "header half right": ("arrival_s,input_tokens\n0,1\n", "header: found the columns arrival_s, input_tokens; needs"),
    "semicolons": (
        "arrival_s;input_tokens;output_tokens\n0;1;1\n",
        "columns arrival_s;input_tokens;output_tokens; needs",
    ),
    "column twice": ("arrival_s,input_tokens,output_tokens,client,client\n0,1,1,1,1\n", "column client is given twice"),
    "column misspelt": (
        "arrival_s,input_tokens,output_tokens,hash_block\n0,1,1,1\n",
        "unknown column 'hash_block' (did you mean hash_blocks?)",
    ),
    "reuse beyond the prompt": (
        "arrival_s,input_tokens,output_tokens,reusable_tokens\n0,5,1,6\n",
        ':2: reusable_tokens: got "6", must be a whole number from 0 to input_tokens (5)',
    ),
    "client without number": (
        "arrival_s,input_tokens,output_tokens,client\n0,5,1,bob\n",
        ':2: client: got "bob", must be a whole number from 0',
    ),
    "too many blocks": (
        "arrival_s,input_tokens,output_tokens,hash_blocks\n0,513,1,0-2\n",
        ':2: hash_blocks: got "0-2", must be at most 2 ids for 513 prompt tokens in blocks of 512',
    ),
    "endless run": (
        "arrival_s,input_tokens,output_tokens,hash_blocks\n0,513,1,0-999999999999\n",
        ':2: hash_blocks: got "0-999999999999", must be at most 2 ids',
    ),
    "falling run": (
        "arrival_s,input_tokens,output_tokens,hash_blocks\n0,5000,1,7-3\n",
        ':2: hash_blocks: got "7-3", must be runs that ascend, such as 3-7',
    ),
    "words for blocks": (
        "arrival_s,input_tokens,output_tokens,hash_blocks\n0,5000,1,a b\n",
        ':2: hash_blocks: got "a b", must be ids or runs of ids such as 0-13',
    ),
    "azure unsorted": (
        AZURE + "2023-11-16 18:15:46.0000000,1,1\r\n",
        ':5: TIMESTAMP: got "2023-11-16 18:15:46.0000000", must be not earlier than the row before',
    ),
    "azure without a date": (AZURE + "18:15,1,1\r\n", ':5: TIMESTAMP: got "18:15", must be a date and time such as'),
    "azure of a year": (
        AZURE + "2024-11-16 18:15:46.0000000,1,1\r\n",
        ':5: TIMESTAMP: got "2024-11-16 18:15:46.0000000", must be within 8640000 s of the first row',
    ),
    "azure zero tokens": (AZURE.replace("374,44", "374,0"), f':2: GeneratedTokens: got "0", {WHOLE}'),
    "binary": (b"\x7fELF\x02\x01\x01\x00\x00\x00", "must be a text file (CSV or JSON lines), holds a zero byte"),
    "latin-1 header": (b"arriv\xe9e,input_tokens\n", "must be a text file (CSV or JSON lines), its first line is not"),
    "latin-1 row": (HEAD.encode() + b"0,5,\xe9\n", "must be UTF-8 text"),
    "zero byte later": (HEAD.encode() + b"0,5,5\n" * 99_999 + b"0,5,\x00\n", "holds a zero byte"),
    "endless line": (HEAD + "0,5,5" * 60_000, "must be lines of at most 131072 bytes, holds a longer one"),
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("what", list(WRONG))
def test_bad_csv_is_one_error_that_names_the_place(tmp_path: Path, what: str, *, packed: bool) -> None:
    text, said = WRONG[what]
    path = written(tmp_path, "bad.csv.gz" if packed else "bad.csv", text)
    with pytest.raises(TraceFileError) as raised:
        read_trace(path)
    assert str(raised.value).startswith(str(path))
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


GOOD_LINE = {"timestamp": 5, "input_length": 600, "output_length": 5, "hash_ids": [1]}
BAD_LINES = {
    "unsorted": (GOOD_LINE | {"timestamp": 4}, ":2: timestamp: got 4, must be not earlier than the row before"),
    "negative": (GOOD_LINE | {"timestamp": -4}, ":2: timestamp: got -4, must be a number of milliseconds from 0"),
    "nan": (GOOD_LINE | {"timestamp": float("nan")}, ":2: timestamp: got nan, must be a number of milliseconds"),
    "text": (GOOD_LINE | {"input_length": "9"}, ':2: input_length: got "9", must be a whole number from 1'),
    "zero": (GOOD_LINE | {"output_length": 0}, ":2: output_length: got 0, must be a whole number from 1 to 10000000"),
    "true": (GOOD_LINE | {"output_length": True}, ":2: output_length: got true, must be a whole number"),
    "huge": (GOOD_LINE | {"output_length": 10**9}, ":2: output_length: got 1000000000, must be a whole number"),
    "missing": ({"timestamp": 5, "in": 3}, "line 2: fields input_length, output_length are missing; found timestamp"),
    "ids text": (GOOD_LINE | {"hash_ids": "1 2"}, ':2: hash_ids: got "1 2", must be a list of whole numbers'),
    "ids negative": (GOOD_LINE | {"hash_ids": [-1]}, ":2: hash_ids: got a list, must be whole numbers from 0"),
    "ids too many": (GOOD_LINE | {"hash_ids": [1, 2, 3]}, "must be at most 2 ids for 600 prompt tokens"),
}


@pytest.mark.parametrize("what", list(BAD_LINES))
def test_bad_json_line_is_one_error_that_names_the_place(tmp_path: Path, what: str) -> None:
    row, said = BAD_LINES[what]
    path = written(tmp_path, "bad.jsonl", json.dumps(GOOD_LINE) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(TraceFileError) as raised:
        read_trace(path)
    assert said in str(raised.value)


@pytest.mark.parametrize("second", ['{"timestamp": 5,', "[1]", "{" * 5000, "3"])
def test_line_that_is_no_json_object_is_named(tmp_path: Path, second: str) -> None:
    path = written(tmp_path, "bad.jsonl", json.dumps(GOOD_LINE) + "\n" + second + "\n")
    with pytest.raises(TraceFileError, match=r"line 2: must be one JSON object"):
        read_trace(path)


def test_ids_that_come_later_are_refused(tmp_path: Path) -> None:
    first = {k: v for k, v in GOOD_LINE.items() if k != "hash_ids"}
    path = written(tmp_path, "bad.jsonl", json.dumps(first) + "\n" + json.dumps(GOOD_LINE) + "\n")
    with pytest.raises(TraceFileError, match=r"hash_ids: .*given from the first line on, or never"):
        read_trace(path)


def test_missing_file_and_directory_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceFileError, match=r"absent.csv: cannot be read: No such file"):
        read_trace(tmp_path / "absent.csv")
    with pytest.raises(TraceFileError, match="must be a file, is a directory"):
        read_trace(tmp_path)


@pytest.mark.parametrize("keep", [3, 12, 40, -9, -1])
def test_truncated_gzip_is_named(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress((OWN + "4,5,6\n" * 10_000).encode())[:keep])
    with pytest.raises(TraceFileError, match="must be a whole gzip file, ends in the middle"):
        read_trace(path)


def test_damaged_gzip_is_named(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress((OWN + "4,5,6\n" * 10_000).encode()))
    packed[-6] ^= 0xFF
    path = tmp_path / "t.csv.gz"
    path.write_bytes(packed)
    with pytest.raises(TraceFileError, match="must be a sound gzip file"):
        read_trace(path)


def test_order_is_checked_across_chunks(tmp_path: Path) -> None:
    rows = "".join(f"{i},5,5\n" for i in range(200_000))
    path = written(tmp_path, "t.csv", HEAD + rows + "199998,5,5\n")
    with pytest.raises(TraceFileError, match=r":200002: arrival_s: got \"199998\""):
        read_trace(path)


def test_files_are_laid_on_top_of_each_other_and_their_prefixes_kept_apart(tmp_path: Path) -> None:
    one, two = written(tmp_path, "a.csv", HASHED), written(tmp_path, "b.jsonl", MOONCAKE)
    read = read_traces([one, two])
    assert read.format == "tidegate-csv+mooncake-jsonl"
    assert read.trace.name == "a+b"
    assert read.trace.arrival_ps.tolist() == [0, 0, 0, 10**12, 3 * 10**12]
    own = {h for i in (0, 1) for h in read.trace.hashes_of(i)}
    assert own.isdisjoint(read.trace.hashes_of(2))
    assert read.trace.hashes_of(2) == read.trace.hashes_of(4)[:2]
    assert not len(read.trace.client)  # the second file has none


def test_reader_tells_how_far_it_is(tmp_path: Path) -> None:
    told: list[tuple[Path, int]] = []
    path = written(tmp_path, "t.csv", OWN)
    read_trace(path, told=lambda p, n: told.append((p, n)))
    assert told == [(path, 3)]


def test_columns_are_whole_numbers_of_64_bits(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "t.csv", OWN.replace("100,10", "1e2,10.0"))).trace
    assert trace.prompt_tokens[0] == 100
    columns = (trace.arrival_ps, trace.prompt_tokens, trace.output_tokens)
    assert all(c.dtype == np.int64 for c in columns)


def test_wrong_header_names_every_format_there_is(tmp_path: Path) -> None:
    with pytest.raises(TraceFileError) as raised:
        read_trace(written(tmp_path, "t.csv", "time,prompt\n0,1\n"))
    for needed in ("arrival_s,input_tokens,output_tokens", "TIMESTAMP,ContextTokens,GeneratedTokens", "input_length"):
        assert needed in str(raised.value)
