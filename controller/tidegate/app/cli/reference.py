"""docs/cli.md, written from the parsers themselves: `python -m tidegate.app.cli.reference > docs/cli.md`."""

import argparse
import sys
from collections.abc import Iterator

from tidegate.app.cli import main as cli
from tidegate.app.cli.verbs import NOT_BUILT

_HEAD = """\
# Command line

Written from the program's own `--help` by `python -m tidegate.app.cli.reference > docs/cli.md`; do not edit.

Exit codes: 0 done, 1 refused or failed, 2 bad input, 3 a needed server cannot be reached.
"""


def reference() -> str:
    """Return the document: every verb, action and flag, in the order of `--help`."""
    parts = [_HEAD]
    verbs = dict(children(cli.build_parser()))
    later = [name for name, _ in NOT_BUILT]
    for name, parser in verbs.items():
        if name not in later:
            parts += _sections(f"tidegate {name}", parser, level=2)
    parts.append("## Not built yet\n")
    parts.append("\n".join(f"- `tidegate {name}`: {summary}" for name, summary in NOT_BUILT) + "\n")
    return "\n".join(parts)


def children(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the parser's verbs or actions by name, in order."""
    for action in parser._actions:  # noqa: SLF001  (argparse offers no other way to its tree)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            yield from action.choices.items()


def arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the parser's own arguments and flags, `--help` excepted."""
    for action in parser._actions:  # noqa: SLF001
        if not isinstance(action, argparse._SubParsersAction | argparse._HelpAction):  # noqa: SLF001
            yield action


def meaning(action: argparse.Action) -> str:
    """Return an argument's help with its default filled in; empty when it has none."""
    return (action.help or "") % {"prog": "tidegate", **vars(action)}


def _sections(name: str, parser: argparse.ArgumentParser, *, level: int) -> list[str]:
    parts = [f"{'#' * level} {name}\n"]
    about = parser.description or ""
    if about:
        parts.append(f"{about[:1].upper()}{about[1:]}.\n")
    examples = [line for line in (parser.epilog or "").splitlines() if line.startswith("example: ")]
    parts += [f"```sh\n{line.removeprefix('example: ')}\n```\n" for line in examples]
    rows = [f"| {_spelled(action)} | {_cell(action)} |" for action in arguments(parser)]
    if rows:
        parts.append("\n".join(["| Argument | Meaning |", "| --- | --- |", *rows]) + "\n")
    for child, below in children(parser):
        parts += _sections(f"{name} {child}", below, level=level + 1)
    return parts


def _spelled(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{_value(action)}`"
    value = "" if action.nargs == 0 else f" {_value(action)}"
    return ", ".join(f"`{flag}{value}`" for flag in action.option_strings)


def _value(action: argparse.Action) -> str:
    if action.metavar is None and action.choices is not None:
        one = ",".join(map(str, action.choices))
    else:
        one = str(action.metavar or action.dest.upper())
    return f"{one} …" if action.nargs in {"+", "*"} else one


def _cell(action: argparse.Action) -> str:
    text = meaning(action)
    if action.option_strings and action.required:
        text += " (required)"
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
