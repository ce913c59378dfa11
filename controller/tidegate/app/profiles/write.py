"""An engine profile as YAML, with what is known of it in comments."""

import json
import os
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path

from tidegate.app.config_profile import camel
from tidegate.perf.profile import EngineProfile
from tidegate.terms.errors import BadInputError

_COMMENT_COLUMNS = 118


def profile_yaml(profile: EngineProfile, notes: Sequence[str] = ()) -> str:
    """Return the profile in the order of its fields; an optional field that has its default is left out."""
    lines = [f"# {line}" for note in notes for line in _wrapped(note)]
    for field in fields(EngineProfile):
        value = getattr(profile, field.name)
        if field.default is not MISSING and value == field.default:
            continue
        lines.append(f"{camel(field.name)}: {_scalar(value)}")
    return "\n".join(lines) + "\n"


def write_profile(path: Path, profile: EngineProfile, notes: Sequence[str] = ()) -> None:
    """Write the profile whole or not at all.

    Raises:
        BadInputError: The file cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(profile_yaml(profile, notes), encoding="utf-8")
        beside.replace(path)
    except OSError as exc:
        beside.unlink(missing_ok=True)
        msg = f"{path}: must be a file that can be written: {exc.strerror or exc}"
        raise BadInputError(msg) from exc


def _scalar(value: object) -> str:
    if not isinstance(value, str):
        return str(value)
    # Words stay as they are; whatever YAML might read as a number or a mark is quoted as JSON, which is YAML too.
    plain = value[:1].isalpha() and all(c.isalnum() or c in "-_./" for c in value)
    return value if plain else json.dumps(value, ensure_ascii=False)


def _wrapped(note: str) -> list[str]:
    lines = [""]
    for word in note.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > _COMMENT_COLUMNS:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
