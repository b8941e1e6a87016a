"""Has Gradio imported without the stubs that it writes for editors: at every import it parses the source of each component, and fills and parses
a `.pyi` beside it, which is half of what importing it takes. Knows nothing of the page.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_WRITER, _WRITES = "gradio.component_meta", "create_or_modify_pyi"


def skip_stubs() -> None:
    """To be called before Gradio is first imported; later it changes nothing."""
    if _WRITER not in sys.modules and not any(isinstance(finder, _WithoutStubs) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WithoutStubs())


class _WithoutStubs(MetaPathFinder, Loader):
    """Finds and loads the one module that writes them, as Python would, and takes the function that does out of it."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != _WRITER:
            return None
        sys.meta_path.remove(self)
        found = PathFinder.find_spec(fullname, path)
        if found is None or found.loader is None:
            return found
        self._loader, found.loader = found.loader, self
        return found

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if hasattr(module, _WRITES):
            setattr(module, _WRITES, lambda *_: None)
