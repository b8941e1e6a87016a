"""Large libraries, loaded sooner in a process that is ours.

Python searches for garbage whenever enough was made, and goes through what there is to do so. Imports make a million objects that stay: a fifth of the
time that torch and transformers take goes into searching them in vain, and later searches interrupt steps.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_is_ours = False


def own_process() -> None:
    """Say that this process runs a program of ours and nothing else; until then, loading changes nothing in it."""
    global _is_ours
    _is_ours = True
    atexit.register(gc.unfreeze)  # what is not taken apart at the end, some libraries report as leaks


@contextmanager
def unsearched() -> Iterator[None]:
    """Nothing is searched for garbage inside, nor what there is by then ever after."""
    if not _is_ours or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
