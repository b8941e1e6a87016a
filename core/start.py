"""Settings of a process that runs nothing but this program: large libraries load sooner, and freed
memory goes back to the system.

Python's garbage collector runs whenever enough objects have been made, and walks through all that
exist. Imports make a million objects that stay: a fifth of the time that importing torch and
transformers takes goes into walks that find nothing, and later walks interrupt steps.
"""

import atexit
import ctypes
import gc
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_is_ours = False
_M_MMAP_THRESHOLD, _LARGE = -3, 2**20  # glibc's name of a setting, and bytes


def own_process() -> None:
    """Say that this process runs nothing but this program; until then nothing in it is changed. An
    order to end, or a terminal that is closed, is then heard as Ctrl-C is: a run keeps its trace.
    """
    global _is_ours
    _is_ours = True
    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        if signal.getsignal(order := getattr(signal, name, signal.SIGTERM)) is signal.SIG_DFL:
            signal.signal(order, _interrupt)
    # some libraries report objects that are not freed at exit as leaks
    atexit.register(gc.unfreeze)


def _interrupt(*_: object) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def return_large_blocks() -> None:
    """From now on memory blocks of a mebibyte and more go back to the system when they are freed,
    if glibc allocates them.

    By default glibc raises that size as the program runs and takes large blocks from its heap,
    between small ones that stay, so that a server grows over hours by free memory.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # other C libraries have no such setting
            ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE)


@contextmanager
def gc_frozen() -> Iterator[None]:
    """Switch the garbage collector off inside the block, and exempt all objects that exist at its
    end from every later collection.
    """
    if not _is_ours or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
