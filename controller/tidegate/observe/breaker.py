"""A circuit breaker: after repeated server trouble the server is left alone for a while, and callers are told so."""

import threading
from collections.abc import Callable


class Breaker:
    """Closed, open or half open, by consecutive failures.

    Args:
        failures_to_open: Consecutive failures that open it, >= 1.
        first_pause_s: How long it stays open the first time; doubles with every failed probe.
        longest_pause_s: Cap of that.
        monotonic_s: Monotonic clock.
    """

    def __init__(
        self,
        *,
        failures_to_open: int,
        first_pause_s: float,
        longest_pause_s: float,
        monotonic_s: Callable[[], float],
    ) -> None:
        self._failures_to_open = failures_to_open
        self._first_pause_s = first_pause_s
        self._longest_pause_s = longest_pause_s
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._failures = 0
        self._pause_s = first_pause_s
        self._open_until_s: float | None = None
        self._probing = False

    def wait_s(self) -> float | None:
        """Return None when a call may go out now, else the seconds left; a None after a pause is the one probe."""
        with self._lock:
            if self._open_until_s is None:
                return None
            left_s = self._open_until_s - self._monotonic_s()
            if left_s > 0 or self._probing:
                return max(left_s, 0.0)
            self._probing = True
            return None

    def succeeded(self) -> None:
        """Close it."""
        with self._lock:
            self._failures = 0
            self._pause_s = self._first_pause_s
            self._open_until_s = None
            self._probing = False

    def failed(self) -> None:
        """Count one failure; open when there were enough, or again after a failed probe."""
        with self._lock:
            self._failures += 1
            if self._probing:
                self._pause_s = min(self._pause_s * 2, self._longest_pause_s)
            if self._probing or self._failures >= self._failures_to_open:
                self._open_until_s = self._monotonic_s() + self._pause_s
            self._probing = False
