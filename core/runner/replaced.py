"""Modules that compute in another way for the time of a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def forwards_replaced(forwards: Iterable[tuple[dict[str, Any], Callable[..., Any]]]) -> Iterator[None]:
    """Inside, modules compute by other functions. forwards: a module's `__dict__` and its function. Hold the model's lock around it."""
    replaced = []
    try:
        for names, forward in forwards:
            names["forward"] = forward
            replaced.append(names)
        yield
    finally:
        for names in replaced:
            del names["forward"]
