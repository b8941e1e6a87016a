"""Python's garbage collector, switched off while loops run that create no cycles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_off() -> Iterator[None]:
    """Switch the garbage collector off inside the block. The records of a run contain no reference
    cycles, so the collector would walk them in vain; on a GPU each walk is a gap between steps.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
