"""Make the environment of this benchmark: NVIDIA's planner and replay simulator beside this checkout, in .cache/dynamo.

    python benchmarks/dynamo/environment.py
    .cache/dynamo/bin/python -m benchmarks.dynamo.replay

The three pinned wheels only fit each other: the runtime reads engine specifications of one schema, and of the
simulator's builds only this one writes it. About 200 MB. They are installed without their own dependencies, which
include what only a GPU needs; what the planner and the simulator import on a CPU is listed here.
"""

import argparse
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOTS = ("controller", "exporters", "models", "dashboards")

BASE = (
    "numpy>=2.1,<3",
    "pandas",
    "pyarrow",
    "pyyaml",
    "scipy",
    "msgspec",
    "pydantic>=2.10.6,<=2.13.5",
    "packaging",
    "tqdm",
)
PLANNER = (
    "filterpy", "scikit-learn", "pmdarima", "prophet", "prometheus-client", "prometheus-api-client", "aiohttp<4",
    "uvloop", "plotly", "grpcio", "protobuf", "kubernetes>=32.0.1,<33",
)  # fmt: skip
OURS = ("numba>=0.62,<1",)  # the compiled simulator of the fidelity rows
PINNED = ("ai-dynamo==1.6.1", "ai-dynamo-runtime==1.6.1")
SIMULATOR = ("aisimulate==0.13.0.dev202610130000000070",)


def make(folder: Path) -> None:
    """Create the environment in `folder`, or bring an existing one up to the list."""
    venv.EnvBuilder(with_pip=True).create(folder)
    python = folder / "bin" / "python"
    _pip(python, *BASE)
    _pip(python, *PLANNER, *OURS)
    _pip(python, "--no-deps", *PINNED)
    _pip(python, "--no-deps", "--only-binary", ":all:", *SIMULATOR)
    packages = next((folder / "lib").glob("python*/site-packages"))
    paths = [ROOT, *(ROOT / name for name in ROOTS)]
    (packages / "tidegate_checkout.pth").write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")


def _pip(python: Path, *words: str) -> None:
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *words], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "dynamo")
    wanted = parser.parse_args()
    try:
        make(wanted.folder)
    except subprocess.CalledProcessError as error:
        print(f"pip failed with exit code {error.returncode}: {' '.join(error.cmd[3:])}", file=sys.stderr)
        return 1
    print(f"ready: {wanted.folder / 'bin' / 'python'} -m benchmarks.dynamo.replay")
    return 0


if __name__ == "__main__":
    sys.exit(main())
