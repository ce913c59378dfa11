"""The command line's own words: documented, with examples and defaults, and completed by shells that parse it."""

import argparse
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.app.cli.main import build_parser, main
from tidegate.app.cli.reference import arguments, children, meaning, reference
from tidegate.app.cli.verbs import NOT_BUILT

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"


def parsers(parser: argparse.ArgumentParser, name: str = "tidegate") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield name, parser
    for child, below in children(parser):
        if child not in dict(NOT_BUILT):
            yield from parsers(below, f"{name} {child}")


EVERY = [
    pytest.param(action, id=f"{name} {(action.option_strings or [action.dest])[-1]}")
    for name, parser in parsers(build_parser())
    for action in arguments(parser)
]


def test_reference_is_what_the_parsers_say() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == reference(), "python -m tidegate.app.cli.reference > docs/cli.md"


@pytest.mark.parametrize("action", EVERY)
def test_argument_says_what_it_means(action: argparse.Action) -> None:
    text = meaning(action)
    assert text
    assert not text.endswith(".")
    assert "\n" not in text


@pytest.mark.parametrize("action", EVERY)
def test_flag_with_a_default_says_it(action: argparse.Action) -> None:
    if action.option_strings and action.default not in (None, False, "", [], argparse.SUPPRESS):
        assert "default" in meaning(action)


def test_every_verb_and_action_describes_itself_with_an_example_and_exit_codes() -> None:
    for name, parser in parsers(build_parser()):
        told = parser.format_help()
        assert parser.description, name
        assert "exit codes: 0 done" in told, name
        assert name in told.partition("example: ")[2] or name == "tidegate gateway serve", name
    serve = dict(parsers(build_parser()))["tidegate gateway serve"]
    assert "not built yet" in serve.format_help()


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["chekc"], "check"),
        (["gateway", "rendr"], "render"),
        (["export", "gpus"], "gpu"),
        (["schema", "--kind", "inventory"], "Inventory"),
    ],
)
def test_a_misspelt_word_is_answered_with_the_closest(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert f"(did you mean {meant}?)" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_script_is_valid_and_knows_every_verb(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(f"{name}" in script for name, _ in children(build_parser()))
    assert "--alert-token-file" in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)  # noqa: S607


def test_bash_completes_verbs_and_flags(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    script = capsys.readouterr().out
    ask = 'COMP_WORDS=({words}); COMP_CWORD={at}; _shtab_tidegate; printf "%s\\n" "${{COMPREPLY[@]}}"'

    def completed(*words: str) -> list[str]:
        line = ask.format(words=" ".join(words), at=len(words) - 1)
        told = subprocess.run(["bash"], input=f"{script}\n{line}\n", capture_output=True, text=True, check=True)  # noqa: S607
        return told.stdout.split()

    assert completed("tidegate", "da") == ["dashboards"]
    assert completed("tidegate", "run", "--ads") == ["--ads-listen"]
