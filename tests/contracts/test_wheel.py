"""The wheel holds `tidegate` and nothing else, and works without the checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
ROOTS = ("controller", "exporters", "models", "dashboards")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(argv, cwd=CHECKOUT, check=True, capture_output=True)
    [built] = folder.glob("*.whl")
    return built


def test_wheel_has_one_top_level_name(wheel: Path) -> None:
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    [metadata] = [name for name in names if name.endswith(".dist-info")]
    assert names - {metadata} == {"tidegate"}


def test_wheel_holds_every_file_of_the_four_roots(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("tidegate/")}
    lying = {
        str(path.relative_to(CHECKOUT / root))
        for root in ROOTS
        for path in (CHECKOUT / root / "tidegate").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == lying


def test_wheel_holds_the_licence(wheel: Path) -> None:
    [licence] = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/licenses/LICENSE")]
    assert b"Apache License" in zipfile.ZipFile(wheel).read(licence)


def test_wheel_imports_from_each_root_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)  # we built it
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
        "import tidegate.terms.errors, tidegate.catalogue, tidegate.forecast, tidegate.dashboards; "
        "print(tidegate.catalogue.__file__)"
    )
    # Isolated and without site: neither the working folder nor the editable install can lend a module.
    answer = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.startswith(str(tmp_path))
