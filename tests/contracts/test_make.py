"""The targets work from any folder and are all listed."""

import re
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
TARGETS = ("setup", "demo", "test", "lint", "types", "lock", "bench", "clean")


def make(*words: str, cwd: Path) -> str:
    return subprocess.run(["make", *words], cwd=cwd, capture_output=True, text=True, check=True).stdout  # noqa: S607


@pytest.mark.parametrize("target", TARGETS)
def test_target_can_be_planned_from_any_folder(target: str, tmp_path: Path) -> None:
    assert make("-n", target, cwd=CHECKOUT)
    assert make("-n", "-C", str(CHECKOUT), target, cwd=tmp_path)
    assert str(CHECKOUT) in make("-n", "-f", str(CHECKOUT / "Makefile"), target, cwd=tmp_path)


def test_help_is_the_default_and_lists_every_target(tmp_path: Path) -> None:
    listed = re.findall(r"^  make ([a-z]+)", make("-f", str(CHECKOUT / "Makefile"), cwd=tmp_path), flags=re.MULTILINE)
    assert set(TARGETS) <= set(listed)


@pytest.mark.parametrize("script", ["deploy/setup.sh", "deploy/servers.sh", "deploy/lock.sh", ".ci/run"])
def test_script_is_executable_and_parses(script: str) -> None:
    path = CHECKOUT / script
    assert path.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", path], check=True)  # noqa: S607
