"""`tidegate explain` on the golden journal."""

import json
from pathlib import Path

import pytest

from tidegate.app.cli.main import main

GOLDEN = str(Path(__file__).parents[2] / "golden" / "scripted.journal.jsonl")


def test_explain_takes_the_newest_decision_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "chat/main", "--journal", GOLDEN]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("chat/main: ")
    assert said[1].startswith("  decision 48 at 2027-01-15 08:07:50 UTC, bound by ")
    assert any(line.startswith("  one more would take: ") for line in said)
    assert any(line.startswith("  one fewer would take: ") for line in said)


@pytest.mark.parametrize(
    "at", ["1800000239.9", "2027-01-15T08:03:59Z", "2027-01-15T10:03:59+02:00", "2027-01-15 08:03:59"]
)
def test_explain_takes_the_decision_in_force_at_a_time(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "main", "--journal", GOLDEN, "--at", at, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["sequence"], document["binding"], document["verdict"]) == (24, "stale_metrics", "hold")
    assert "hold: metrics unknown" in document["sentence"]
    assert document["notes"]


def test_explain_refuses_a_time_before_the_first_decision(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "main", "--journal", GOLDEN, "--at", "1"]) == 1
    assert "holds no decision at or before 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["chat/mian", "--journal", GOLDEN],
            "pool chat/mian: no such pool; there is chat/main; did you mean chat/main?",
        ),
        (["main", "--journal", GOLDEN, "--at", "noon"], "--at: must be an ISO 8601 time or Unix seconds, got 'noon'"),
        (["main", "--journal", GOLDEN, "--at", "nan"], "--at: must be"),
        (["main", "--journal", "/nowhere/j"], "/nowhere/j: no such journal"),
    ],
)
def test_explain_answers_bad_input_with_two(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *arguments]) == 2
    assert words in capsys.readouterr().err
