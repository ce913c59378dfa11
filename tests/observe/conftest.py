"""Fixtures of the observer's tests."""

from tests.observe.live_fleet import running_fleet

__all__ = ["running_fleet"]
