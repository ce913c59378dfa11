"""What the cache of machine code is named after: everything a kernel reaches."""

from types import FunctionType

import pytest

from tidegate.sim.fast import advance, compiled, store

KERNEL: FunctionType = getattr(advance.advance, "py_func")  # noqa: B009  (numba adds it)


def digest_of(function: FunctionType) -> bytes:
    parts: list[bytes] = []
    compiled._describe(function, parts.append, set())
    return b"".join(parts)


def test_name_of_a_kernel_changes_when_a_constant_deep_below_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest_of(KERNEL)
    monkeypatch.setattr("tidegate.sim.fast.store.ENTRY_WIDTH", 6)
    assert digest_of(KERNEL) != before


def test_name_of_a_kernel_changes_when_a_function_deep_below_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest_of(KERNEL)
    monkeypatch.setattr("tidegate.sim.fast.store.touch", store.withdraw)
    assert digest_of(KERNEL) != before


def test_name_of_a_kernel_stays_when_nothing_changes() -> None:
    assert digest_of(KERNEL) == digest_of(KERNEL)
