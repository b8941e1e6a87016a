"""Loads torch and transformers when they are first needed. That takes seconds, for which the first
paint of a page does not wait.
"""

import sys
import threading
from importlib import import_module

from core.start import gc_frozen

_LOADS = f"{__package__}.load"
_one_at_a_time = threading.Lock()


def load_libraries() -> None:
    """Import both. Call this before any import of them that several threads may reach first.

    transformers replaces its own module during its import: a thread that meanwhile imports from it
    in another way finds nothing in the replaced module.
    """
    with _one_at_a_time:
        if _LOADS not in sys.modules:
            with gc_frozen():
                import_module(_LOADS)
