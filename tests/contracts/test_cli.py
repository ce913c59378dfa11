"""Every verb is listed, shows an example, and what is not built says so."""

import subprocess
import sys

import pytest

from tidegate.app.cli.main import EXIT_BAD_INPUT, main
from tidegate.app.cli.verbs import NOT_BUILT, VERBS


def test_help_lists_every_verb() -> None:
    answer = subprocess.run([sys.executable, "-m", "tidegate", "--help"], capture_output=True, text=True, check=True)
    listed = {line.split()[0] for line in answer.stdout.splitlines() if line.startswith("    ")}
    assert {verb.name for verb in VERBS} | {name for name, _ in NOT_BUILT} <= listed


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_help_of_verb_shows_an_example_of_that_verb(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    [example] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("example: ")]
    assert f"tidegate {verb}" in example


@pytest.mark.parametrize("verb", [name for name, _ in NOT_BUILT])
def test_verb_that_is_not_built_says_so(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb]) == EXIT_BAD_INPUT
    assert "not built yet" in capsys.readouterr().err
