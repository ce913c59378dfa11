"""Every benchmark is listed with its command, and every command names one that exists."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
PROGRAMS = sorted(FOLDER.glob("*.py"))


def test_readme_lists_exactly_the_benchmarks_there_are() -> None:
    listed = set(re.findall(r"python benchmarks/(\w+\.py)", (FOLDER / "README.md").read_text()))
    assert listed == {path.name for path in PROGRAMS}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_benchmark_says_what_it_measures(program: Path) -> None:
    told = subprocess.run([sys.executable, program, "--help"], capture_output=True, text=True, check=True)
    assert f"benchmarks/{program.name}" in told.stdout
