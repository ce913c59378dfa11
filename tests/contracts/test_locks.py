"""The locks cover what the code imports, agree with each other, and pin every file by hash."""

import ast
import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
ROOTS = ("controller", "exporters", "models", "dashboards")
LOCKS = ("runtime", "dev")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def entries(lock: str) -> dict[str, str]:
    """Return each pinned name with the text of its entry."""
    text = (CHECKOUT / "requirements" / f"{lock}.lock").read_text()
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+[^\n]*\n(?:    --hash=\S+[^\n]*\n)*)", text, flags=re.MULTILINE)
    return {normal(name): rest for name, rest in found}


def version(entry: str) -> str:
    return entry.split(maxsplit=1)[0]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_hashes(lock: str) -> None:
    pins = entries(lock)
    assert pins
    assert [name for name, entry in pins.items() if "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_names_no_place_to_fetch_from(lock: str) -> None:
    text = (CHECKOUT / "requirements" / f"{lock}.lock").read_text()
    assert re.findall(r"https?:|file:/|^-|--(?:index|extra|find|trusted)\S*", text, flags=re.MULTILINE) == []


def test_dev_lock_contains_the_runtime_lock() -> None:
    runtime, dev = entries("runtime"), entries("dev")
    assert {name: version(entry) for name, entry in runtime.items()}.items() <= {
        name: version(entry) for name, entry in dev.items()
    }.items()


def test_locks_hold_what_the_project_declares() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    declared = project["project"]["dependencies"] + project["project"]["optional-dependencies"]["demo"]
    names = {normal(re.split(r"[\s<>=!~\[;]", line)[0]) for line in declared}
    tools = {normal(re.split(r"[\s<>=!~\[;]", line)[0]) for line in project["dependency-groups"]["dev"]}
    assert names - set(entries("runtime")) == set()
    assert tools - set(entries("dev")) == set()


@pytest.mark.parametrize(("lock", "roots"), [("runtime", ROOTS), ("dev", ("tests", "benchmarks"))])
def test_code_imports_only_locked_packages(lock: str, roots: tuple[str, ...]) -> None:
    providers = importlib.metadata.packages_distributions()
    locked = set(entries(lock))
    own = {"tidegate", "tests", "benchmarks"}
    missing = set()
    for path in (file for root in roots for file in (CHECKOUT / root).rglob("*.py")):
        for name in imported(ast.parse(path.read_text())) - sys.stdlib_module_names - own:
            if not {normal(provider) for provider in providers.get(name, [])} & locked:
                missing.add(f"{path.relative_to(CHECKOUT)}: {name}")
    assert missing == set()


def imported(tree: ast.Module) -> set[str]:
    """Return the top-level names that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names
