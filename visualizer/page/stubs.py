"""Imports Gradio without the `.pyi` stubs that it writes for editors: parsing the source of each
component, and writing and parsing the stub, take half of the import time.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_WRITER, _WRITES = "gradio.component_meta", "create_or_modify_pyi"


def skip_stubs() -> None:
    """Call this before Gradio is first imported; later it has no effect."""
    if _WRITER not in sys.modules and not any(
        isinstance(finder, _WithoutStubs) for finder in sys.meta_path
    ):
        sys.meta_path.insert(0, _WithoutStubs())


class _WithoutStubs(MetaPathFinder):
    """Finds the module that writes the stubs, as Python would, and disables it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _WRITER:
            return None
        sys.meta_path.remove(self)
        found = PathFinder.find_spec(fullname, path)
        if found is not None and found.loader is not None:
            found.loader.exec_module = partial(_load, found.loader.exec_module)  # type: ignore[method-assign]
        return found


def _load(exec_module: Callable[[ModuleType], None], module: ModuleType) -> None:
    exec_module(module)
    if hasattr(module, _WRITES):
        setattr(module, _WRITES, lambda *_: None)
