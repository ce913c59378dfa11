"""What is wrong with a configuration file, one line each, and the error that carries all of it."""

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidegate.terms.errors import BadInputError, NotBuiltYetError

FieldPath = tuple[str | int, ...]
_MAX_SHOWN = 50  # problems listed before "and N more"
_MAX_VALUE_CHARS = 60
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.\-/]{1,60}\Z")


class PolicyFileError(BadInputError):
    """Configuration files that cannot be used; the text lists every problem, one per line."""


class PolicyNotBuiltYetError(PolicyFileError, NotBuiltYetError):
    """The files are well formed, but ask only for behaviour that does not exist yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong: where, what it is, what it must be."""

    file: str
    line: int | None  # first line is 1; None: about the file as a whole
    field: str  # in the file's own spelling; "" for the file as a whole
    text: str  # e.g. 'got 5, must be <= 4'
    not_built: bool = False

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (place, self.field, self.text) if part)


def field_name(path: FieldPath) -> str:
    """Return a path as people write it, e.g. `spec.pools[0].maxReplicas`."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            shown = part if _PLAIN_KEY.match(part) else shown_value(part)
            out += f".{shown}" if out else shown
    return out


def shown_value(value: object) -> str:
    """Return a value in one short line, safe to print on a terminal."""
    match value:
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case None:
            return "nothing"
        case str():
            text = json.dumps(value if len(value) <= _MAX_VALUE_CHARS else value[:_MAX_VALUE_CHARS])
            return text if len(value) <= _MAX_VALUE_CHARS else f"{text}… ({len(value)} characters)"
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


def got_must(value: object, must: str) -> str:
    """Return the standard sentence for a wrong value."""
    return f"got {shown_value(value)}, must be {must}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean X?)` for the closest known word, or an empty text."""
    known = list(known)
    by_lower = {k.lower(): k for k in known}
    # snake_case of a camelCase field is the commonest slip, so underscores and dashes do not count.
    bare = word.lower().replace("_", "").replace("-", "")
    close = difflib.get_close_matches(bare[:_MAX_VALUE_CHARS], list(by_lower), n=1, cutoff=0.6)
    if not close:
        close = difflib.get_close_matches(word.lower()[:_MAX_VALUE_CHARS], list(by_lower), n=1, cutoff=0.6)
    return f" (did you mean {by_lower[close[0]]}?)" if close else ""


def case_hint(word: str, allowed: str) -> str:
    """Return a hint when `word` is the one allowed word but for capitals, or an empty text."""
    same = word != allowed and word.casefold() == allowed.casefold()
    return " (spelled exactly so: capitals count)" if same else ""


def raise_problems(problems: Sequence[Problem]) -> None:
    """Raise one error that lists all problems; return when there is none.

    Raises:
        PolicyFileError: At least one problem; the subclass `PolicyNotBuiltYetError` when all say "not built yet".
    """
    if not problems:
        return
    lines = [str(p) for p in problems[:_MAX_SHOWN]]
    if len(problems) > _MAX_SHOWN:
        lines.append(f"… and {len(problems) - _MAX_SHOWN} more")
    text = "\n".join(lines)
    if all(p.not_built for p in problems):
        raise PolicyNotBuiltYetError(text)
    raise PolicyFileError(text)
