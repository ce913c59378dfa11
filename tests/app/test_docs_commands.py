"""Every command that a document shows is one the program takes, and the walk-through's Prometheus file is sound."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.app.cli.main import build_parser
from tidegate.app.cli.verbs import NOT_BUILT
from tidegate.app.servers import find_binary

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_LINE = re.compile(r"^(?:\$ )?(tidegate [a-z].*)$")
_INLINE = re.compile(r"`(tidegate [^`]+)`")


def commands(path: Path) -> Iterator[str]:
    """Yield the commands in code blocks, and those in running text that have a flag with a value."""
    fenced = False
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            fenced = not fenced
            continue
        if fenced:
            yield from _LINE.findall(line)
        else:
            yield from (c for c in _INLINE.findall(line) if "--" in c and "…" not in c)


SHOWN = [pytest.param(c, id=f"{path.name}: {c}") for path in DOCUMENTS for c in dict.fromkeys(commands(path))]


@pytest.mark.parametrize("command", SHOWN)
def test_command_in_a_document_is_taken(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command.replace("$$", "1"), comments=True)[1:]
    words = words[: words.index(">")] if ">" in words else words
    if words[0] in dict(NOT_BUILT):
        return
    try:
        build_parser(only=words[0]).parse_args(words)
    except SystemExit as ended:
        said = capsys.readouterr().err
        # A flag named in passing stands without what the verb requires beside it.
        assert ended.code == 0 or "the following arguments are required" in said, said  # noqa: PT017


def test_walk_through_shows_a_prometheus_file_that_prometheus_takes(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "run.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```yaml\n(# prometheus\.yml\n.*?)```", text, re.DOTALL)
    file = tmp_path / "prometheus.yml"
    file.write_text(shown, encoding="utf-8")
    said = subprocess.run(
        [find_binary("promtool"), "check", "config", file], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
