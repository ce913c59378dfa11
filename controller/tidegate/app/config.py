"""Configuration files to frozen types: policies, inventory, engine profiles. The one door for the rest of the shell."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tidegate.app.config_build import node_of, policy_of, profile_reference
from tidegate.app.config_check import ProfileFacts, check_policy
from tidegate.app.config_model import API_VERSION, InventoryModel, ServicePolicyModel
from tidegate.app.config_problem import (
    PolicyFileError,
    PolicyNotBuiltYetError,
    Problem,
    case_hint,
    did_you_mean,
    got_must,
    raise_problems,
)
from tidegate.app.config_profile import load_profile, shipped_profiles
from tidegate.app.config_quantity import parse_bytes, parse_duration_s
from tidegate.app.config_schema import inventory_schema, policy_schema
from tidegate.app.config_validate import validate
from tidegate.app.config_yaml import Document, read_documents, read_text
from tidegate.terms.errors import TidegateError
from tidegate.terms.observation import NodeInventory
from tidegate.terms.policy import ServicePolicy

__all__ = [
    "PolicyFileError",
    "PolicyNotBuiltYetError",
    "PolicySet",
    "inventory_schema",
    "load_nodes",
    "load_policies",
    "load_policy_set",
    "load_profile",
    "parse_bytes",
    "parse_duration_s",
    "parse_policies",
    "policy_digest",
    "policy_schema",
    "shipped_profiles",
]

_POLICY_KIND = "ServicePolicy"
_NODES_KIND = "Inventory"
_ENOUGH_PROBLEMS = 200  # after which further documents are not looked at
# Kinds whose spelling is fixed and whose behaviour is not built yet.
_LATER_KINDS = ("FleetBudget",)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySet:
    """Policies that passed every check, with what deserves a second look."""

    policies: tuple[ServicePolicy, ...]
    warnings: tuple[str, ...]


def load_policies(paths: Sequence[Path]) -> tuple[ServicePolicy, ...]:
    """Return the policies of one or more files, in the order written.

    Raises:
        PolicyFileError: Anything wrong in any of them; its text lists every problem, one per line.
    """
    return load_policy_set(paths).policies


def load_policy_set(paths: Sequence[Path]) -> PolicySet:
    """Return the policies of one or more files with the warnings about them.

    Raises:
        PolicyFileError: Anything wrong in any of them; its text lists every problem, one per line.
    """
    return _policy_set(*_read(paths))


def parse_policies(text: str, file: str = "policy.yaml") -> tuple[ServicePolicy, ...]:
    """Return the policies of a text; `file` is named in errors, and profile paths are relative to its folder.

    Raises:
        PolicyFileError: Anything wrong in it; its text lists every problem, one per line.
    """
    documents, problems = read_documents(text, file)
    return _policy_set(list(documents), list(problems)).policies


def load_nodes(path: Path) -> tuple[NodeInventory, ...]:
    """Return the nodes that the `Inventory` documents of a file declare, in the order written.

    Raises:
        PolicyFileError: Anything wrong in it; its text lists every problem, one per line.
    """
    documents, problems = _read([path])
    nodes: list[NodeInventory] = []
    first: dict[str, int] = {}
    for document in documents:
        wrong = _wrong_kind(document, _NODES_KIND)
        made = wrong or validate(InventoryModel, document, document.value)
        if isinstance(made, list):
            problems += made
            continue
        for i, node in enumerate(made.spec.nodes):
            at = ("spec", "nodes", i, "name")
            if node.name in first:
                text = f'"{node.name}" is given twice, first on line {first[node.name]}'
                problems.append(document.problem(at, text))
            first.setdefault(node.name, document.lines.get(at, document.line))
            nodes.append(node_of(node))
    if not documents and not problems:
        problems.append(Problem(file=str(path), line=None, field="", text=f"is empty, must hold an {_NODES_KIND}"))
    raise_problems(problems)
    return tuple(nodes)


def policy_digest(policies: Iterable[ServicePolicy]) -> str:
    """Return a hash of what the policies say (16 hex digits), whatever their order, files and spelling."""
    said = [asdict(p) for p in sorted(policies, key=lambda p: p.name)]
    text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read(paths: Sequence[Path]) -> tuple[list[Document], list[Problem]]:
    documents: list[Document] = []
    problems: list[Problem] = []
    for path in paths:
        text = read_text(path)
        if isinstance(text, Problem):
            problems.append(text)
            continue
        found, wrong = read_documents(text, str(path))
        documents += found
        problems += wrong
        if not found and not wrong:
            problems.append(Problem(file=str(path), line=None, field="", text="is empty, must hold a ServicePolicy"))
    return documents, problems


def _policy_set(documents: list[Document], problems: list[Problem]) -> PolicySet:
    policies: list[ServicePolicy] = []
    warnings: list[Problem] = []
    sound: list[tuple[Document, ServicePolicyModel]] = []
    for document in documents:
        if len(problems) > _ENOUGH_PROBLEMS:
            break
        wrong = _wrong_kind(document, _POLICY_KIND)
        if wrong:
            problems += wrong
            continue
        made = validate(ServicePolicyModel, document, document.value)
        found, doubts = check_policy(document, _finder(Path(document.file).parent))
        problems += found
        warnings += doubts
        if isinstance(made, list):
            problems += made
        elif not found:
            sound.append((document, made))
    problems += _shared(documents, ("metadata", "name")) + _shared(documents, ("spec", "model"))
    if not documents and not problems:
        problems.append(Problem(file="policy", line=None, field="", text="is empty, must hold a ServicePolicy"))
    raise_problems(sorted(problems, key=lambda p: (p.file, p.line or 0)))
    policies += [policy_of(model, Path(document.file).parent) for document, model in sound]
    return PolicySet(policies=tuple(policies), warnings=tuple(str(w) for w in warnings))


def _finder(folder: Path) -> Callable[[str], ProfileFacts | str]:
    @lru_cache(maxsize=128)
    def find(name: str) -> ProfileFacts | str:
        try:
            return load_profile(profile_reference(name, folder))
        except TidegateError as exc:
            known = shipped_profiles()
            if "/" in name or name.endswith((".yaml", ".yml")):
                return f"profile cannot be used: {str(exc).replace(chr(10), '; ')}"
            must = f"a shipped engine profile (`tidegate profile list` names all {len(known)}) or a file"
            return got_must(name, must) + did_you_mean(name, known)

    return find


def _wrong_kind(document: Document, kind: str) -> list[Problem]:
    value = document.value
    if not isinstance(value, dict):
        return [document.problem((), got_must(value, f"a mapping with apiVersion: {API_VERSION} and kind: {kind}"))]
    has = value.get("kind")
    if has == kind or not isinstance(has, str):
        return []  # a missing or odd kind is reported with the other fields
    at = ("kind",)
    if has in _LATER_KINDS:
        return [document.problem(at, f"kind {has} is not built yet", not_built=True)]
    if has in (_NODES_KIND, _POLICY_KIND):
        where = "the nodes file" if has == _NODES_KIND else "a policy file"
        return [document.problem(at, got_must(has, kind) + f"; this belongs in {where}")]
    hint = case_hint(has, kind) or did_you_mean(has, (kind, *_LATER_KINDS))
    return [document.problem(at, got_must(has, kind) + hint)]


def _shared(documents: list[Document], path: tuple[str, ...]) -> list[Problem]:
    """Return a problem for each service or model that two documents claim."""
    first: dict[str, Document] = {}
    out: list[Problem] = []
    for document in documents:
        value: Any = document.value
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        if not isinstance(value, str):
            continue
        if value in first:
            have = first[value]
            place = f"{have.file}:{have.lines.get(path, have.line)}"
            out.append(document.problem(path, f"{json.dumps(value[:60])} is given twice, first in {place}"))
        first.setdefault(value, document)
    return out
