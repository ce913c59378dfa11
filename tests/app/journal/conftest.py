"""Records to write: the ticks of the scripted run that also makes the golden journal."""

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from tidegate.app.record import TickRecord

Records = Callable[[int], list[TickRecord]]


@pytest.fixture(scope="session")
def records() -> Records:
    """Return a function that gives the first n records, the same ones each time."""
    script = runpy.run_path(str(Path(__file__).parents[2] / "golden" / "scripted_run.py"))
    made: list[TickRecord] = list(script["records"]())
    return lambda count: made[:count]
