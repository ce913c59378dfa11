"""What is wrong with a trace file, and the limits that say so."""

from pathlib import Path

from tidegate.app.config_problem import got_must
from tidegate.terms.errors import BadInputError

# A simulator counts in whole picoseconds of 64 bits, which end after 106 days.
MAX_SECONDS = 8_640_000.0
# Beyond the longest context of any model; a larger count is a slip of the column.
MAX_TOKENS = 10_000_000
MAX_REQUESTS = 50_000_000
MAX_LINE_BYTES = 131_072
MAX_ID = 2**63 - 1

SECONDS_MUST = f"a number of seconds from 0 to {MAX_SECONDS:.0f}"
TOKENS_MUST = f"a whole number from 1 to {MAX_TOKENS}"
ORDER_MUST = "not earlier than the row before"


class TraceFileError(BadInputError):
    """A trace or series that cannot be used; names file, line, field, value and what it must be."""


def bad_value(path: Path, line: int, field: str, value: object, must: str) -> TraceFileError:
    """Return the error for one value; the first line of a file is 1."""
    return TraceFileError(f"{path}:{line}: {field}: {got_must(value, must)}")


def bad_file(path: Path, text: str) -> TraceFileError:
    """Return the error for a file as a whole."""
    return TraceFileError(f"{path}: {text}")
