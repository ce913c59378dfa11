"""Typed PromQL selectors: label values are escaped, so no value can change the query."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
# RE2 syntax characters. `re.escape` is not used: it also escapes characters that PromQL's string does not expect.
_REGEX_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")


def quoted(text: str) -> str:
    """Return `text` as a double-quoted PromQL string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """One label matcher: any of `values`, or (with `negate`) none of them."""

    label: str
    values: tuple[str, ...]
    negate: bool = False

    def __post_init__(self) -> None:
        if not _LABEL.fullmatch(self.label):
            msg = f"matcher.label: must be a Prometheus label name, got {self.label!r}"
            raise ValueError(msg)
        if not self.values:
            msg = f"matcher.values: must not be empty (label {self.label})"
            raise ValueError(msg)

    def __str__(self) -> str:
        if len(self.values) == 1:
            return f"{self.label}{'!=' if self.negate else '='}{quoted(self.values[0])}"
        # A plain alternation of literals is answered from the index, without running the expression on every value.
        pattern = "|".join(_REGEX_SPECIAL.sub(r"\\\1", value) for value in self.values)
        return f"{self.label}{'!~' if self.negate else '=~'}{quoted(pattern)}"


def any_of(label: str, values: Iterable[str]) -> Matcher:
    """Return the matcher for `label` being one of `values` (at least one), sorted so that the query text is stable."""
    return Matcher(label=label, values=tuple(sorted(set(values))))


def selector(names: Iterable[str], *matchers: Matcher) -> str:
    """Return an instant selector for any of the metric `names`."""
    wanted = tuple(sorted(set(names)))
    for name in wanted:
        if not _NAME.fullmatch(name):
            msg = f"selector.names: must be Prometheus metric names, got {name!r}"
            raise ValueError(msg)
    inner = ",".join(str(m) for m in matchers)
    if len(wanted) == 1:
        return f"{wanted[0]}{{{inner}}}" if inner else wanted[0]
    return "{" + ",".join([str(Matcher(label="__name__", values=wanted)), *([inner] if inner else [])]) + "}"


def duration(seconds: float) -> str:
    """Return a PromQL duration, to the millisecond."""
    return f"{max(1, round(seconds * 1000))}ms"
