"""Functions that stand in for a model's modules while an engine's pass runs: outside, the model is
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Forwards = Sequence[tuple[dict[str, Any], Callable[..., Any]]]
"""Modules' own names, their `__dict__`, and what stands in for their forward."""


@contextmanager
def forwards_replaced(forwards: Forwards) -> Iterator[None]:
    """Inside, modules compute with other functions, but those that somebody has given one
    meanwhile. Hold the model's lock around it.
    """
    replaced = []
    try:
        for names, forward in forwards:
            if "forward" not in names:
                names["forward"] = forward
                replaced.append(names)
        yield
    finally:
        for names in replaced:
            del names["forward"]


@contextmanager
def replaced_in(adapter: Any, forwards: Forwards) -> Iterator[None]:
    """Inside, modules of an adapter's model compute with other functions, if there are any; other
    passes of the model wait for their turn.
    """
    if not forwards:
        yield
        return
    with adapter.lock, forwards_replaced(forwards):
        yield
