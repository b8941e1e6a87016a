"""What a process that is ours does at its start: large libraries are loaded sooner, and memory goes
back to the system.

Python searches for garbage whenever enough was made, and goes through what there is to do so.
Imports make a million objects that stay: a fifth of the time that torch and transformers take goes
into searching them in vain, and later searches interrupt steps.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_is_ours = False
_M_MMAP_THRESHOLD, _LARGE = -3, 2**20  # glibc's name of a setting, and bytes


def own_process() -> None:
    """Say that this process runs a program of ours alone; until then, nothing in it is changed."""
    global _is_ours
    _is_ours = True
    # what is not taken apart at the end, some libraries report as leaks
    atexit.register(gc.unfreeze)


def return_large_blocks() -> None:
    """From now on blocks of a mebibyte and more go back to the system when they are freed, where
    glibc allocates.

    Otherwise it takes ever larger ones from the memory between small ones that stay, and a server
    of many hours grows by what is free in there.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # other C libraries have no such setting
            ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE)


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
