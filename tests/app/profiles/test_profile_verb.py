"""`tidegate profile`: what it prints, writes, refuses and calls bad input."""

import dataclasses
import gzip
import json
from pathlib import Path

import pytest
from tests.app.profiles.logs import PRIOR, made_load, write_csv

from tidegate.app.cli.main import EXIT_BAD_INPUT, EXIT_DONE, EXIT_REFUSED, main
from tidegate.app.config_profile import load_profile, shipped_profiles
from tidegate.sim.fleet import FleetSim

HEADER = "arrival_s,input_tokens,output_tokens,ttft_s,decode_s"
GOOD = "0.5,100,10,0.1,0.2"


@pytest.fixture(autouse=True)
def plain_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    # Equal to the compiled one to the picosecond, and nothing has to be compiled first.
    monkeypatch.setattr("tidegate.app.profiles.fit.FastFleet", FleetSim)


def test_list_names_every_profile_with_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "list"]) == EXIT_DONE

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(shipped_profiles())
    assert all("%" in line for line in lines[1:])


def test_list_and_show_print_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "list", "--json"]) == EXIT_DONE
    assert len(json.loads(capsys.readouterr().out)) == len(shipped_profiles())
    assert main(["profile", "show", "h100-llama8b-tp1", "--json"]) == EXIT_DONE
    assert json.loads(capsys.readouterr().out)["kv_capacity_tokens"] == PRIOR.kv_capacity_tokens


def test_show_says_what_one_replica_carries(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "show", "b200-qwen32b-tp1"]) == EXIT_DONE

    out = capsys.readouterr().out
    assert "Qwen/Qwen3-32B on 1 x nvidia-b200-180gb" in out
    assert out.count("carries") == 3


def test_fit_writes_a_profile_that_a_policy_can_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth = dataclasses.replace(PRIOR, front_end_ps=25_000_000_000)
    log = write_csv(tmp_path / "log.csv", [made_load(q, truth=truth, count=60) for q in (3.0, 5.0, 7.0, 9.0)])
    out = tmp_path / "mine.yaml"

    words = ["profile", "fit", str(log), "--prior", "h100-llama8b-tp1", "--replicas", "2", "--fit", "front-end"]
    assert main([*words, "--reuse", "none", "--out", str(out)]) == EXIT_DONE

    profile = load_profile(str(out))
    assert profile.name == "mine"
    assert profile.front_end_ps == pytest.approx(25_000_000_000, rel=0.05)
    assert profile.kv_capacity_tokens == PRIOR.kv_capacity_tokens
    assert "log.csv" in profile.source
    assert 0.0 < profile.fit_error_ratio < 0.05
    printed = capsys.readouterr().out
    assert "held out" in printed
    assert "TTFT p50" in printed
    assert "prefix reuse of chat: none" in printed


def test_fit_that_misses_the_loads_held_out_is_refused_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = dataclasses.replace(PRIOR, kv_read_ps_per_token=PRIOR.kv_read_ps_per_token * 60)
    log = write_csv(tmp_path / "log.csv", [made_load(q, truth=other, count=60) for q in (3.0, 5.0, 7.0, 9.0)])
    out = tmp_path / "mine.yaml"

    words = ["profile", "fit", str(log), "--prior", "h100-llama8b-tp1", "--replicas", "2", "--fit", "front-end"]
    assert main([*words, "--reuse", "none", "--out", str(out), "--json"]) == EXIT_REFUSED

    said = capsys.readouterr()
    assert "profile refused" in said.err
    assert "TPOT p50 is off by" in said.err
    assert json.loads(said.out)["refused"]
    assert not out.exists()


def test_fit_of_too_few_requests_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.csv"
    log.write_text(f"{HEADER}\n" + "\n".join([GOOD] * 20) + "\n", encoding="utf-8")

    assert main(["profile", "fit", str(log), "--prior", "h100-llama8b-tp1"]) == EXIT_REFUSED
    assert "12 requests to fit to, need 100" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must have the columns arrival_s"),
        ("arrival,input_tokens,output_tokens,ttft_s,decode_s\n", r"must have the columns arrival_s; found arrival,"),
        (f"{HEADER}\n", "must hold at least one request"),
        (f"{HEADER}\n0.5,100,10,0.1\n", "row 2: must have 5 columns"),
        (f"{HEADER}\nnan,100,10,0.1,0.2\n", "row 2: arrival_s: must be a number >= 0, got 'nan'"),
        (f"{HEADER}\n-1,100,10,0.1,0.2\n", "row 2: arrival_s: must be a number >= 0, got '-1'"),
        (f"{HEADER}\n0,1.5,10,0.1,0.2\n", "row 2: input_tokens: must be a whole number >= 1, got '1.5'"),
        (f"{HEADER}\n0,100,0,0.1,0.2\n", "row 2: output_tokens: must be a whole number >= 1, got '0'"),
        (f"{HEADER}\n0,100,10,0,0.2\n", "row 2: ttft_s: must be a number > 0, got '0'"),
        (f"{HEADER}\n0,100,10,0.1,-2\n", "row 2: decode_s: must be a number >= 0, got '-2'"),
        (f"{HEADER}\n{GOOD}\n0.2,100,10,0.1,0.2\n", "row 3: arrival_s: must not fall within a load: 0.5, then 0.2"),
    ],
)
def test_log_with_a_slip_names_row_and_column(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    log.write_text(text, encoding="utf-8")

    assert main(["profile", "fit", str(log), "--prior", "h100-llama8b-tp1"]) == EXIT_BAD_INPUT
    err = capsys.readouterr().err
    assert said in err
    assert "log.csv" in err


def test_log_that_is_cut_gzip_or_missing_or_not_text_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = gzip.compress((f"{HEADER}\n" + f"{GOOD}\n" * 5000).encode())
    (tmp_path / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x01" * 50)

    for name in ("cut.csv.gz", "binary.csv", "none.csv"):
        assert main(["profile", "fit", str(tmp_path / name), "--prior", "h100-llama8b-tp1"]) == EXIT_BAD_INPUT
        assert f"{name}: cannot be read as CSV" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give either a CSV or --prometheus URL"),
        (["LOG", "--prometheus", "http://127.0.0.1:1"], "give either a CSV or --prometheus URL"),
        (["--prometheus", "http://127.0.0.1:1"], "--service: must name the service"),
        (["LOG", "--replicas", "0"], "--replicas: must be >= 1, got 0"),
        (["LOG", "--fit", "frontend"], "got 'frontend' (did you mean front-end?)"),
        (["LOG", "--train", "chat 9"], "--train: there is no load 'chat 9'"),
        (["LOG", "--out", "no-such-folder/mine.yaml"], "--out: no-such-folder: must be a folder that exists"),
        (["LOG", "--prior", "h100-lama8b-tp1"], "did you mean h100-llama8b-tp1"),
        (["--prometheus", "http://127.0.0.1:1", "--service", "chat", "--window", "1x"], "--window: must be"),
    ],
)
def test_flag_with_a_slip_is_named(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    log.write_text(f"{HEADER}\n{GOOD}\n", encoding="utf-8")
    given = [str(log) if w == "LOG" else w for w in words]
    prior = [] if "--prior" in given else ["--prior", "h100-llama8b-tp1"]

    assert main(["profile", "fit", *given, *prior]) == EXIT_BAD_INPUT
    assert said in capsys.readouterr().err
