"""All boards and rules as files: the same bytes for the same input."""

import json
from collections.abc import Sequence
from pathlib import Path

import yaml

from tidegate.dashboards.fleet import FLEET
from tidegate.dashboards.panels import Board, board_json
from tidegate.dashboards.rules import rules_file
from tidegate.dashboards.slo_rules import DEFAULT_OBJECTIVES, Objective

BOARDS: tuple[Board, ...] = (FLEET,)
RULES_NAME = "tidegate.rules.yaml"
_HEAD = "# Made by `tidegate dashboards render`; change its source, not this file.\n"


class _Dumper(yaml.SafeDumper):
    """Writes equal values out each time: an anchor in a rules file helps nobody."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  (the base class's signature)
        """Return True: no value is written as a reference to another."""
        return True


def rendered(watched: Sequence[Objective] = DEFAULT_OBJECTIVES) -> dict[str, str]:
    """Return file name to text, one JSON file a board and one YAML file of rules."""
    files = {
        f"{board.uid}.json": json.dumps(board_json(board), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        for board in BOARDS
    }
    # A line of YAML may be as long as its query: wrapped PromQL is hard to copy.
    return files | {RULES_NAME: _HEAD + yaml.dump(rules_file(watched), Dumper=_Dumper, sort_keys=False, width=10_000)}


def differing(folder: Path, files: dict[str, str]) -> tuple[str, ...]:
    """Return the names of `files` that are missing from `folder` or differ there, ascending."""
    return tuple(sorted(name for name, text in files.items() if _read(folder / name) != text))


def write(folder: Path, files: dict[str, str]) -> None:
    """Write `files` into `folder`, which is made if missing.

    Raises:
        OSError: It cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        return None
