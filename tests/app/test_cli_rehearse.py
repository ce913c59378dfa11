"""`tidegate rehearse` from the command line: a real load, real laws, and one clear error for what cannot be used."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tidegate.app.cli.main import main
from tidegate.app.rehearse.document_schema import json_schema

ROOT = Path(__file__).parents[2]
POLICY = str(ROOT / "examples" / "policies" / "chat.yaml")
TRACE = str(ROOT / "examples" / "traces" / "azure2023_conv_10min.csv")
QUICK = ("--no-match", "--no-oracles", "--no-capacity-check", "--jobs", "1")
Told = Callable[..., tuple[int, str, str]]


@pytest.fixture(name="tidegate")
def command(capsys: pytest.CaptureFixture[str]) -> Told:
    """Runs the verb and returns its exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["rehearse", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def played(tidegate: Told, *words: str) -> dict[str, Any]:
    code, out, err = tidegate("--trace", TRACE, "--policy", POLICY, *QUICK, "--json", *words)
    assert code == 0, err
    document: dict[str, Any] = json.loads(out)
    jsonschema.validate(document, json_schema())
    return document


def test_json_is_one_document_under_its_schema(tidegate: Told) -> None:
    document = played(tidegate, "--against", "hpa-queue,static-peak")
    assert document["trace"]["requests"] == 4521
    assert [p["name"] for p in document["policies"]] == ["tidegate", "tidegate-reactive", "hpa-queue", "static-peak"]
    for policy in document["policies"]:
        assert 0.5 < policy["attainment_ratio"] <= 1.0
        assert policy["gpu_hours"] > 0.1
        assert policy["replicas"]["existing"]
    assert document["forecast"]["on"]["gpu_hours"] == document["policies"][0]["gpu_hours"]


def test_same_call_gives_the_same_document(tidegate: Told) -> None:
    one, two = (played(tidegate, "--seeds", "2", "--scale", "1.5") for _ in range(2))
    assert one == two
    assert one["conditions"]["seeds"] == [0, 1]
    first, second = one["policies"][0]["seeds"]
    assert first["gpu_hours"] != second["gpu_hours"]
    assert one["trace"]["requests"] == pytest.approx(1.5 * 4521, rel=0.05)


@pytest.mark.timeout(240)  # sixty plays
def test_every_policy_is_matched_at_the_target_or_says_why_not() -> None:
    # In a process of its own: it starts workers, and Python keeps a helper of theirs as long as it runs.
    words = ("--trace", TRACE, "--policy", POLICY, "--against", "hpa-queue,keda-queue", "--target", "0.97", "--json")
    said = subprocess.run(
        [sys.executable, "-m", "tidegate", "rehearse", *words, "--jobs", "2", "--quiet"],
        check=True,
        capture_output=True,
        text=True,
    )
    document = json.loads(said.stdout)
    jsonschema.validate(document, json_schema())
    by_name = {p["name"]: p for p in document["policies"]}
    assert {"best-static", "clairvoyant"} <= by_name.keys()
    for policy in document["policies"]:
        if policy["matched_gpu_hours"] is None:
            assert policy["matched_gpu_hours_reason"]
            continue
        assert policy["matched"]["attainment_ratio"] >= 0.97
        assert policy["matched"]["gpu_hours"] == policy["matched_gpu_hours"]
        assert policy["gap_closed_ratio"] is not None or policy["gap_closed_ratio_reason"]
        if policy["name"] != "instant-bound":
            assert [c["capacity_ratio"] for c in policy["capacity_check"]] == [0.9, 1.1]
    assert by_name["best-static"]["matched_gpu_hours"] is not None
    assert len(by_name["hpa-queue"]["frontier"]) > 2


def test_faults_are_played_around_the_busiest_minutes(tidegate: Told) -> None:
    document = played(tidegate, "--faults", "replica-crash,metric-renamed")
    for policy in document["policies"]:
        crash, renamed = policy["faults"]
        assert (crash["fault"], renamed["fault"]) == ("replica-crash", "metric-renamed")
        assert renamed["duration_s"] is None
        assert crash["attainment_ratio"] <= policy["attainment_ratio"]


def test_prefixes_of_a_trace_hit_when_requests_of_one_prefix_meet(tidegate: Told, tmp_path: Path) -> None:
    rows = [{"timestamp": 400 * i, "input_length": 4096, "output_length": 20} for i in range(300)]
    told = {}
    for name, ids in (("shared", list(range(8))), ("apart", None)):
        path = tmp_path / f"{name}.jsonl"
        lines = [row | {"hash_ids": ids or list(range(8 * i, 8 * i + 8))} for i, row in enumerate(rows)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        code, out, err = tidegate(
            "--trace", str(path), "--policy", POLICY, *QUICK, "--json", "--routing", "prefix_hash"
        )
        assert code == 0, err
        told[name] = json.loads(out)
    assert told["shared"]["conditions"]["routing"] == "prefix_hash"
    assert "prefix cache" in "".join(told["shared"]["notes"])
    assert told["shared"]["policies"][0]["ttft_p50_s"] < 0.6 * told["apart"]["policies"][0]["ttft_p50_s"]


def test_hashes_that_fit_no_engine_block_are_noted_and_not_used(tidegate: Told, tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 700, "output_length": 9, "hash_ids": [1, 2]}\n')
    words = ("--trace", str(path), "--hash-block-tokens", "500", "--policy", POLICY, *QUICK, "--json")
    code, out, err = tidegate(*words)
    assert code == 0, err
    assert "prefix hashes are not used: their blocks of 500 tokens" in "".join(json.loads(out)["notes"])


def test_table_and_page_say_the_same(tidegate: Told, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    code, out, err = tidegate("--trace", TRACE, "--policy", POLICY, *QUICK, "--html", str(page), "--quiet")
    assert (code, err) == (0, "")
    row = next(line for line in out.splitlines() if line.startswith("tidegate "))
    attained = row.split()[1]
    assert f"<td>{attained} %</td>" in page.read_text(encoding="utf-8")
    assert f"report: {page}" in out


def test_progress_is_told_on_stderr(tidegate: Told) -> None:
    code, out, err = tidegate("--trace", TRACE, "--policy", POLICY, *QUICK)
    assert code == 0
    assert "tidegate: 4521 reading azure2023_conv_10min.csv" in err
    assert "reading" not in out


def test_series_with_lengths_is_played(tidegate: Told, tmp_path: Path) -> None:
    series = tmp_path / "load.csv"
    series.write_text("t_s,requests\n" + "".join(f"{60 * i},{120 + 60 * (i % 5)}\n" for i in range(10)))
    words = ("--series", f"{series}:requests", "--lengths-from", TRACE, "--policy", POLICY, *QUICK, "--json")
    code, out, err = tidegate(*words)
    assert code == 0, err
    assert json.loads(out)["trace"]["requests"] == pytest.approx(2400, rel=0.1)
    assert json.loads(out)["trace"]["format"] == "series+tidegate-csv"


def test_mooncake_and_azure_files_are_played_together(tidegate: Told, tmp_path: Path) -> None:
    moon, azure = tmp_path / "m.jsonl", tmp_path / "a.csv"
    moon.write_text(
        "".join(f'{{"timestamp": {3000 * i}, "input_length": 900, "output_length": 9}}\n' for i in range(50))
    )
    azure.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n")
    code, out, err = tidegate("--trace", str(moon), str(azure), "--policy", POLICY, *QUICK, "--json")
    assert code == 0, err
    assert json.loads(out)["trace"]["requests"] == 51
    assert json.loads(out)["trace"]["format"] == "mooncake-jsonl+azure-csv"


BAD_FLAGS = {
    "no load": ((), "must be given a load: either --trace FILE or --series"),
    "two loads": (("--trace", TRACE, "--series", "a:b"), "must be given a load: either --trace FILE or --series"),
    "lengths alone": (("--trace", TRACE, "--lengths-from", TRACE), "--lengths-from: only goes with --series"),
    "unit alone": (("--trace", TRACE, "--series-unit", "tokens"), "--series-unit: only goes with --series"),
    "series alone": (("--series", "a.csv:b"), "--series: must come with --lengths-from TRACE"),
    "spread series": (("--series", "a.csv:b", "--spread", "3s"), "--spread: only goes with --trace"),
    "spread of nothing": (("--trace", TRACE, "--spread", "0s"), "--spread: must be at least 0.001s, got 0s"),
    "spread without unit": (("--trace", TRACE, "--spread", "3"), "--spread: must be a duration with its unit"),
    "scale zero": (("--trace", TRACE, "--scale", "0"), "--scale: must be a number above 0, at most 100000, got '0'"),
    "scale nan": (("--trace", TRACE, "--scale", "nan"), "--scale: must be a number above 0"),
    "target one": (("--trace", TRACE, "--target", "1"), "--target: must be a share above 0 and below 1"),
    "target percent": (("--trace", TRACE, "--target", "99"), "--target: must be a share above 0 and below 1"),
    "no seeds": (("--trace", TRACE, "--seeds", "0"), "--seeds: must be a whole number from 1 to 1000, got '0'"),
    "half a seed": (("--trace", TRACE, "--seeds", "1.5"), "--seeds: must be a whole number from 1 to 1000, got '1.5'"),
    "no jobs": (("--trace", TRACE, "--jobs", "0"), "--jobs: must be a whole number from 1 to 1024, got '0'"),
    "block size": (
        ("--trace", TRACE, "--hash-block-tokens", "0"),
        "must be from 1 to 1048576, got 0",
    ),
    "unknown rival": (
        ("--trace", TRACE, "--against", "hpa-que"),
        "'hpa-que' (did you mean hpa-queue?); there are",
    ),
    "unknown fault": (("--trace", TRACE, "--faults", "metric-abent"), "'metric-abent' (did you mean metric-absent?)"),
    "page nowhere": (
        ("--trace", TRACE, "--html", "/nowhere/at/all.html"),
        "its folder must exist, /nowhere/at",
    ),
}


@pytest.mark.parametrize("what", list(BAD_FLAGS))
def test_flag_that_cannot_be_used_is_named_with_exit_code_2(what: str, tidegate: Told) -> None:
    words, said = BAD_FLAGS[what]
    code, out, err = tidegate("--policy", POLICY, *QUICK, *words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


BAD_FILES = {
    "unsorted": (
        b"arrival_s,input_tokens,output_tokens\n2,5,5\n1,5,5\n",
        ':3: arrival_s: got "1", must be not earlier',
    ),
    "truncated": (gzip.compress(b"arrival_s,input_tokens,output_tokens\n" + b"2,5,5\n" * 999)[:40], "whole gzip file"),
    "binary": (b"\x7fELF\0\0", "must be a text file"),
    "empty": (b"", "is empty"),
    "wrong header": (b"a,b\n1,2\n", "found the columns a, b; needs arrival_s,input_tokens,output_tokens"),
}


@pytest.mark.parametrize("what", list(BAD_FILES))
def test_trace_that_cannot_be_used_is_one_line_with_exit_code_2(what: str, tidegate: Told, tmp_path: Path) -> None:
    raw, said = BAD_FILES[what]
    path = tmp_path / "bad.csv"
    path.write_bytes(raw)
    code, out, err = tidegate("--trace", str(path), "--policy", POLICY, *QUICK, "--quiet")
    assert (code, out) == (2, "")
    assert err.startswith(f"tidegate: {path}")
    assert said in err
    assert err.count("\n") == 1


def test_policy_of_two_services_is_refused(tidegate: Told, tmp_path: Path) -> None:
    text = Path(POLICY).read_text(encoding="utf-8")
    two = tmp_path / "two.yaml"
    other = text.replace("name: chat", "name: other").replace("Llama-3.1-8B-Instruct", "Other")
    two.write_text(f"{text}---\n{other}", encoding="utf-8")
    code, _, err = tidegate("--trace", TRACE, "--policy", str(two), *QUICK)
    assert code == 2
    assert "must hold one service, holds 2 (chat, other)" in err


@pytest.mark.parametrize("who", ["the terminal", "only the parent"])
def test_ctrl_c_ends_the_comparison_and_its_workers(who: str) -> None:
    words = ("--trace", TRACE, "--scale", "200", "--policy", POLICY, "--against", "all", "--jobs", "2")
    running = subprocess.Popen(
        [sys.executable, "-m", "tidegate", "rehearse", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stderr is not None
    try:
        for line in running.stderr:  # the workers are there when it says so
            if "processes" in line:
                break
        workers = [int(pid) for pid in Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()]
        assert len(workers) >= 2
        if who == "the terminal":
            os.killpg(running.pid, signal.SIGINT)
        else:
            running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=30)
    finally:
        running.kill()
    assert running.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    ends_s = time.monotonic() + 10.0
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < ends_s, workers
        time.sleep(0.05)
