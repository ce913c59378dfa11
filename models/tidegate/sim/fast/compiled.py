"""Compiling with numba, in a way a type checker can follow and a cache cannot get wrong."""

import hashlib
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, TypeVar, cast

import numba

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
_njit: Any = numba.njit
# Kernels allocate nothing, so numba need not count references to arrays: that counting took most of the time.
_OPTIONS = {"error_model": "numpy", "_nrt": False}


def compiled(function: FunctionT) -> FunctionT:
    """Return the function compiled at its first call, for use inside other compiled ones."""
    return cast("FunctionT", _njit(**_OPTIONS)(function))


def inlined(function: FunctionT) -> FunctionT:
    """Return the function to be compiled into each place that calls it: one place, or a line or two.

    That saves handing over the state, a third of the time of a run, and the machine code of the function alone.
    """
    return cast("FunctionT", _njit(inline="always", **_OPTIONS)(function))


def entry(function: FunctionT) -> FunctionT:
    """Return the function compiled, for calls from Python; its machine code is kept on disk for the next process.

    numba looks only at the file of the function itself to see whether what it kept is stale. All that the function
    reaches goes into its name here, so that a change of any of it is another name and never an old answer.
    """
    plain = cast("FunctionType", function)
    digest = hashlib.sha256()
    _describe(plain, digest.update, set())
    plain.__qualname__ = f"{plain.__name__}_{digest.hexdigest()[:16]}"
    return cast("FunctionT", _njit(cache=True, **_OPTIONS)(function))


def _describe(function: FunctionType, note: Callable[[bytes], None], seen: set[str]) -> None:
    """Note the code of a function, of every compiled one it calls, and the constants they read."""
    name = f"{function.__module__}.{function.__name__}"
    if name in seen:
        return
    seen.add(name)
    code = function.__code__
    note(repr((name, code.co_code.hex(), code.co_consts, code.co_names)).encode())
    reached = [function.__globals__.get(one) for one in code.co_names]
    modules = [one for one in reached if isinstance(one, ModuleType) and one.__name__.startswith("tidegate.")]
    reached += [getattr(module, one, None) for module in modules for one in code.co_names]
    for one in reached:
        inner = getattr(one, "py_func", None)
        if isinstance(inner, FunctionType):
            _describe(inner, note, seen)
        elif isinstance(one, int | float):
            note(repr(one).encode())
