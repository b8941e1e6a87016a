"""Loads torch and transformers when they are first needed, which takes seconds that the first paint
of a page does not wait for.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module

from core.start import gc_frozen

_LOADS = f"{__package__}.load"
_one_at_a_time = threading.Lock()


def load_libraries() -> None:
    """Import both; to be called before anything that imports them, wherever several threads may be
    the first.

    transformers replaces its own module while it is imported: a thread that imports from it
    meanwhile, by another way, finds nothing in the one that was replaced.
    """
    with _one_at_a_time:
        if _LOADS not in sys.modules:
            with gc_frozen():
                import_module(_LOADS)
