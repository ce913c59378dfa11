"""The layout of docs/adr/0001: four source roots, one namespace, dependencies in one direction."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
ROOTS = ("controller", "exporters", "models", "dashboards")
MOST_LINES = 400


def portions() -> list[Path]:
    return [CHECKOUT / root / "tidegate" for root in ROOTS]


def packages() -> list[Path]:
    return [
        folder
        for portion in portions()
        for folder in sorted(portion.iterdir())
        if folder.is_dir() and folder.name != "__pycache__"
    ]


def sources() -> list[Path]:
    folders = [CHECKOUT / name for name in (*ROOTS, "tests", "benchmarks", "deploy", ".ci")]
    return [path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix in {".py", ".sh", ".lua"}]


@pytest.mark.parametrize("portion", portions(), ids=lambda path: path.parent.name)
def test_portion_of_the_namespace_holds_packages_only(portion: Path) -> None:
    modules = {path.name for path in portion.iterdir() if path.is_file()}
    # `python -m tidegate` needs the one module; an __init__.py here would hide the other three portions.
    assert modules <= {"__main__.py"}


@pytest.mark.parametrize("package", packages(), ids=lambda path: path.name)
def test_package_is_typed_and_its_init_is_a_docstring(package: Path) -> None:
    assert (package / "py.typed").is_file()
    body = ast.parse((package / "__init__.py").read_text()).body
    assert len(body) == 1
    assert ast.get_docstring(ast.Module(body=body, type_ignores=[]))


def test_package_names_are_unique_over_the_portions() -> None:
    names = [package.name for package in packages()]
    assert len(names) == len(set(names))


def test_tests_have_no_init_file() -> None:
    assert list((CHECKOUT / "tests").rglob("__init__.py")) == []


def test_files_are_short_enough_to_read() -> None:
    lengths = {str(path.relative_to(CHECKOUT)): len(path.read_text().splitlines()) for path in sources()}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_import_contracts_are_kept(tmp_path: Path) -> None:
    tool = Path(sys.prefix) / "bin" / "lint-imports"
    # A cache of its own: a run beside this one must not read a half-written file.
    argv: list[str | Path] = [tool, "--config", CHECKOUT / "pyproject.toml", "--cache-dir", tmp_path]
    answer = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "2 kept, 0 broken" in answer.stdout
