"""Parsers with one style of help: what it does, an example, exit codes; and a guess when a word is misspelt."""

import argparse
from typing import Any, TypeVar

_P = TypeVar("_P", bound=argparse.ArgumentParser)
EXIT_CODES = "exit codes: 0 done, 1 refused or failed, 2 bad input, 3 a needed server cannot be reached"


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the examples as written."""


class Parser(argparse.ArgumentParser):
    """Names the closest known word for one that is none; verbs and actions below it do so too."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401  (argparse's signature)
        if action.choices is None or value in action.choices:
            return
        from tidegate.app.config_problem import did_you_mean  # noqa: PLC0415  (only for an error)

        known = [str(choice) for choice in action.choices]
        hint = did_you_mean(str(value), known)
        raise argparse.ArgumentError(action, f"no such choice: {value!r}{hint}; there are {', '.join(known)}")


def epilog(example: str = "") -> str:
    """Return the end of a help text: the example, when there is one, and the exit codes."""
    return f"example: {example}\n{EXIT_CODES}" if example else EXIT_CODES


def add_action(actions: "argparse._SubParsersAction[_P]", name: str, summary: str, *, example: str = "") -> _P:
    """Return the parser of one action of a verb, whose help reads like the verb's own."""
    return actions.add_parser(
        name, help=summary, description=summary, formatter_class=Formatter, epilog=epilog(example)
    )
