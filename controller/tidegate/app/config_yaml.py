"""YAML text to plain data with line numbers, under hard limits.

The loader reads parser events, never constructs objects, and resolves plain scalars by the YAML 1.2 core rules: `on`
and `1:30` stay text, only true/false are booleans. A key given twice, a tag, an alias that expands without end and
nesting without end are problems, not surprises.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tidegate.app.config_problem import FieldPath, Problem, field_name

MAX_FILE_BYTES = 2**20  # 1 MiB: a hundred times the largest sensible policy
MAX_DEPTH = 32
MAX_NODES = 100_000  # after aliases are expanded
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?[0-9]{1,30}\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,30}|[0-9]{1,30}(\.[0-9]{0,30})?)([eE][-+]?[0-9]{1,3})?\Z")
_SPECIAL: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", "+.inf", ".Inf", "+.Inf", ".INF", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One YAML document: `value` of plain data and the line of every path in it."""

    file: str
    line: int
    value: object
    lines: dict[FieldPath, int]

    def problem(self, path: FieldPath, text: str, *, not_built: bool = False) -> Problem:
        """Return a problem at `path`, on the line of its nearest existing ancestor."""
        at = path
        while at and at not in self.lines:
            at = at[:-1]
        return Problem(
            file=self.file,
            line=self.lines.get(at, self.line),
            field=field_name(path),
            text=text,
            not_built=not_built,
        )


@dataclass(slots=True, eq=False)
class _Node:
    line: int
    scalar: object = None
    raw: str = ""
    items: "list[_Node] | None" = None
    pairs: "list[tuple[str, int, _Node]] | None" = None
    pending_key: tuple[str, int] | None = None
    closed: bool = False


class _RefusedError(Exception):
    """Stops reading one file at a line."""

    def __init__(self, line: int | None, text: str) -> None:
        super().__init__(text)
        self.line = line


def read_text(path: Path) -> str | Problem:
    """Return the file's text, or the problem that keeps it from being read."""
    name = str(path)

    def bad(text: str) -> Problem:
        return Problem(file=name, line=None, field="", text=text)

    try:
        if path.is_dir():
            return bad("is a directory, must be a YAML file")
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return bad("no such file")
    except (OSError, ValueError) as exc:
        return bad(f"cannot be read: {getattr(exc, 'strerror', None) or exc}")
    if len(data) > MAX_FILE_BYTES:
        return bad(f"is larger than {MAX_FILE_BYTES} bytes, must be a policy of at most 1 MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        return bad(f"is not text: byte 0x{data[exc.start]:02x} at offset {exc.start}, must be YAML in UTF-8")
    return bad("is not text: holds a NUL byte, must be YAML in UTF-8") if "\0" in text else text


def read_documents(text: str, file: str) -> tuple[tuple[Document, ...], tuple[Problem, ...]]:
    """Return the documents that could be read, and the problems met. Empty documents are left out."""
    problems: list[Problem] = []
    documents: list[Document] = []
    try:
        for root in _roots(text):
            lines: dict[FieldPath, int] = {}
            flatten = _Flatten(file=file, lines=lines, problems=problems)
            value = flatten.plain(root, ())
            if value is not None:
                documents.append(Document(file=file, line=root.line, value=value, lines=lines))
    except _RefusedError as exc:
        problems.append(Problem(file=file, line=exc.line, field="", text=str(exc)))
    except (yaml.YAMLError, UnicodeError) as exc:
        mark = getattr(exc, "problem_mark", None)
        said = getattr(exc, "problem", None) or getattr(exc, "reason", None) or "cannot be parsed"
        line = mark.line + 1 if mark is not None else None
        problems.append(Problem(file=file, line=line, field="", text=f"is not YAML: {said}"))
    return tuple(documents), tuple(problems)


def _roots(text: str) -> Iterator[_Node]:
    """Yield the root node of each document, built from parser events without recursion."""
    stack: list[_Node] = []
    anchors: dict[str, _Node] = {}
    count = 0
    for event in yaml.parse(text, Loader=_LOADER):
        line = _line(event)
        if isinstance(event, yaml.DocumentStartEvent):
            anchors = {}
        if isinstance(event, yaml.CollectionEndEvent):
            node = stack.pop()
            node.closed = True
        elif isinstance(event, yaml.NodeEvent):
            count += 1
            if count > MAX_NODES:
                raise _RefusedError(line, f"holds more than {MAX_NODES} values")
            node = _node(event, line, anchors)
            if not node.closed:
                stack.append(node)
                if len(stack) > MAX_DEPTH:
                    raise _RefusedError(line, f"is nested deeper than {MAX_DEPTH} levels")
                continue
        else:
            continue
        if stack:
            _attach(stack[-1], node)
        else:
            yield node


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 1


def _node(event: yaml.NodeEvent, line: int, anchors: dict[str, _Node]) -> _Node:
    """Return the node an event opens; an alias returns the very node it names."""
    anchor = event.anchor or ""
    if isinstance(event, yaml.AliasEvent):
        known = anchors.get(anchor)
        if known is None:
            raise _RefusedError(line, f"names the unknown anchor {anchor[:40]!r}")
        if not known.closed:
            raise _RefusedError(line, f"anchor {anchor[:40]!r} contains itself")
        return known
    tag = getattr(event, "tag", None)
    if tag is not None:
        raise _RefusedError(line, f"has the YAML tag {tag[:40]!r}; tags are refused")
    node = _Node(line=line)
    if isinstance(event, yaml.ScalarEvent):
        node.raw = event.value
        node.scalar = _scalar(event.value) if event.implicit[0] else event.value
        node.closed = True
    elif isinstance(event, yaml.SequenceStartEvent):
        node.items = []
    else:
        node.pairs = []
    if anchor:
        anchors[anchor] = node
    return node


def _attach(parent: _Node, node: _Node) -> None:
    if parent.items is not None:
        parent.items.append(node)
        return
    if parent.pairs is None:
        return
    if parent.pending_key is None:
        if node.items is not None or node.pairs is not None:
            raise _RefusedError(node.line, "has a key that is a list or a mapping, must be text")
        parent.pending_key = (node.raw, node.line)
    else:
        parent.pairs.append((*parent.pending_key, node))
        parent.pending_key = None


def _scalar(text: str) -> object:
    if text in _SPECIAL:
        return _SPECIAL[text]
    if _INT.match(text):
        return int(text)
    return float(text) if _FLOAT.match(text) else text


@dataclass(slots=True)
class _Flatten:
    """Turns nodes into plain data, expanding aliases under the limits."""

    file: str
    lines: dict[FieldPath, int]
    problems: list[Problem]
    count: int = field(default=0)

    def plain(self, node: _Node, path: FieldPath) -> object:
        """Return the node's plain data; entries without a value are left out, as if not written."""
        self.count += 1
        if self.count > MAX_NODES or len(path) > MAX_DEPTH:
            raise _RefusedError(
                node.line, f"expands to more than {MAX_NODES} values or {MAX_DEPTH} levels by its aliases"
            )
        self.lines.setdefault(path, node.line)
        if node.items is not None:
            return [self.plain(item, (*path, i)) for i, item in enumerate(node.items)]
        if node.pairs is None:
            return node.scalar
        out: dict[str, object] = {}
        seen: dict[str, int] = {}
        for key, line, child in node.pairs:
            at = (*path, key)
            if key in seen:
                text = f"is given twice, first on line {seen[key]}"
                self.problems.append(Problem(file=self.file, line=line, field=field_name(at), text=text))
                continue
            seen[key] = self.lines[at] = line
            value = self.plain(child, at)
            if value is not None:
                out[key] = value
        return out
