"""The only place that reads the wall clock."""

import time


def now_s() -> float:
    """Return Unix time in seconds."""
    return time.time()
