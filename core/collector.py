"""Python's search for garbage, kept out of loops that make none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Runs without the garbage collector: a run's records are trees without cycles, which it would
    walk again and again and find nothing. On a GPU such a walk is a gap between steps.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
