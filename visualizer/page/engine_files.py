"""The files of the engine in a visitor's browser tab: an interpreter (Pyodide, see
`core.browser.pyodide`), the Python sources, the kernels, and the models.

They are in one folder that is named by a hash of its content, so that a browser may cache them for
ever: `engine/VERSION/manifest.json` lists the others. If `smollm2` is offered, it is stored beside
that folder, so that it stays cached when the version changes. Files that the worker fetches are
compressed here (`.gz`), because not every host compresses; scripts, which the browser itself loads,
are not.
"""

import ast
import gzip
import hashlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterable
from functools import cache, cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from core.browser import pyodide
from core.browser.weights import pack_weights
from core.config import ASSETS, BUILTIN_FOLDER, BUILTIN_MODELS, SMOLLM2
from core.errors import InflightError
from core.torch_engine.models.names import PACKED, packed_smollm2
from visualizer.jobs.offers import packed_facts
from visualizer.lessons.tasks import runs_of_tasks

SCRIPTS = ASSETS / "engine"
# with these headers a browser allows threads to share memory
ISOLATED = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
}
_ROOT = ASSETS.parent
_PACKAGE = __name__.removesuffix("visualizer.page.engine_files")  # "inflight." in a wheel
_OURS = ("core", "visualizer")
_ENTRY = "visualizer.browser"  # this package runs in the tab, with all that it imports
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # fields that hold statements
_READ = (  # the assets that they read
    "presets/**/*",
    "lessons/**/*",
    "words/*",
    "write/*",
    "models/*/config.json",
    "models/*/tokenizer.json",
    *(f"traces/{run}.jsonl" for run in sorted(runs_of_tasks())),
    # for a run as one page
    *(f"player/{room}/**/*" for room in ("parts", "run", "views", "figure", "engine", "watch")),
)


class EngineFiles:
    """The files of the engine in the tab, with Pyodide. smollm2: its packed file, if offered."""

    def __init__(self, pyodide: Path, smollm2: Path | None = None) -> None:
        self._pyodide, self._making = pyodide, Lock()
        self._large = {SMOLLM2: smollm2} if smollm2 else {}
        self.models = (*BUILTIN_MODELS, *self._large)

    @cached_property
    def version(self) -> str:
        """A hash of the content of the files."""
        found = hashlib.sha256()
        weights = (
            path
            for model in BUILTIN_MODELS
            for path in sorted((BUILTIN_FOLDER / model).glob("*.*"))
        )
        models = (path.read_bytes() for path in (*weights, _ROOT / "core/browser/weights.py"))
        for content in (*self._plain().values(), *models):
            found.update(f"{len(content)} ".encode() + content)
        found.update(repr(self._sizes).encode())
        return found.hexdigest()[:12]

    @property
    def address(self) -> str:
        """The folder of the files, relative to the page's own folder."""
        return f"engine/{self.version}/"

    @property
    def options(self) -> dict[str, Any]:
        return {"engine": self.address, "engineModels": list(self.models)}

    def facts(self) -> dict[str, Any]:
        """Facts about models that are not built in, in the form of `models.forecast` on servers."""
        return {model: _facts(path) for model, path in self._large.items()}

    @property
    def beside(self) -> dict[str, Path]:
        """Files that are stored beside the folder, by path."""
        return {f"{model}-{PACKED}/weights.gz": path for model, path in self._large.items()}

    def contents(self) -> dict[str, bytes]:
        """All files by name, with the manifest. Made once, which takes a second or two."""
        with self._making:
            return self._made

    def write(self, folder: Path) -> int:
        """Write the files for a page in `folder`, over other versions; returns their bytes."""
        for old in (*folder.glob("engine/*/manifest.json"), *folder.glob("engine/*/weights.gz")):
            shutil.rmtree(old.parent)
        for name, source in self.beside.items():
            path = folder / "engine" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, path)
        for name, content in self.contents().items():
            path = folder / self.address / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return sum((*map(len, self.contents().values()), *self._sizes.values()))

    @cached_property
    def _made(self) -> dict[str, bytes]:
        files = self._plain() | {
            f"{model}/weights": pack_weights(BUILTIN_FOLDER / model) for model in BUILTIN_MODELS
        }
        scripts = {name: content for name, content in files.items() if name.endswith(".js")}
        packed = {
            f"{name}.gz": gzip.compress(content, mtime=0)
            for name, content in files.items()
            if name not in scripts
        }
        weights = {model: f"{model}/weights.gz" for model in self.models}
        manifest = {
            "version": self.version,
            "package": _PACKAGE,
            "files": {name: len(content) for name, content in packed.items()}
            | {weights[model]: size for model, size in self._sizes.items()},
            "models": {model: [name] for model, name in weights.items()},
            # bytes that a loaded model takes: float16 is widened to float32
            "memory": {model: 2 * len(files[f"{model}/weights"]) for model in BUILTIN_MODELS}
            | {model: _unpacked_size(path) for model, path in self._large.items()},
            "beside": {f"{model}/weights": f"../{model}-{PACKED}/weights" for model in self._large},
        }
        return {"manifest.json": json.dumps(manifest, indent=1).encode()} | scripts | packed

    @property
    def _sizes(self) -> dict[str, int]:
        """Compressed sizes of the large models, in bytes."""
        return {model: path.stat().st_size for model, path in self._large.items()}

    def _plain(self) -> dict[str, bytes]:
        """All but the models."""
        paths = [self._pyodide / name for name in pyodide.FILES]
        paths += (path for path in sorted(SCRIPTS.iterdir()) if path.suffix in (".js", ".wasm"))
        texts = {"sources.json": sources(), "jinja.json": _jinja()}
        return {path.name: path.read_bytes() for path in paths} | {
            name: json.dumps(text).encode() for name, text in texts.items()
        }


def engine_files() -> EngineFiles | None:
    """The files that a page can offer, None without Pyodide."""
    smollm2 = packed_smollm2()
    try:
        return EngineFiles(pyodide.find_pyodide(), smollm2 if smollm2.is_file() else None)
    except InflightError:
        return None


def _unpacked_size(path: Path) -> int:
    """The uncompressed size of a gzip file, which is stored at its end."""
    with path.open("rb") as file:
        file.seek(-4, os.SEEK_END)
        return int.from_bytes(file.read(), "little")


def _facts(path: Path) -> dict[str, Any]:
    with gzip.open(path) as file:
        header = json.loads(file.read(int.from_bytes(file.read(4), "little")))
    facts = packed_facts(header, _unpacked_size(path))
    return {**facts, "has_chat_template": True, "download": path.stat().st_size}


# -- our own Python --------------------------------------------------------------------------------


def sources() -> dict[str, str]:
    """The modules that run in the tab and the files that they read, as texts by path."""
    paths = {_ROOT / relative for relative in modules_in_tab().values()}
    paths |= {path for pattern in _READ for path in ASSETS.glob(pattern) if path.is_file()}
    paths.add(_ROOT / ("__init__.py" if _PACKAGE else "inflight.py"))  # for a visitor's code
    folder = _PACKAGE.replace(".", "/")
    return {
        folder + path.relative_to(_ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(paths)
    }


def _jinja() -> dict[str, str]:
    """Jinja and MarkupSafe (BSD-3-Clause), as installed, for chat templates of visitors' models."""
    found = (importlib.util.find_spec(name) for name in ("jinja2", "markupsafe"))
    folders = [Path(spec.origin).parent for spec in found if spec and spec.origin]
    return {
        f"{folder.name}/{path.name}": path.read_text(encoding="utf-8")
        for folder in folders
        for path in sorted(folder.glob("*.py"))
    }


def modules_in_tab() -> dict[str, str]:
    """Module to file: `_ENTRY` and its imports, as far as the standard library suffices."""
    known = _modules()
    found: dict[str, str] = {}
    todo = [name for name in known if f"{name}.".startswith(f"{_ENTRY}.")]
    while todo:
        name = todo.pop()
        if name not in found and _is_plain(name):
            found[name] = known[name]
            at_once, later = _imports(name)
            todo += [module for module in (*at_once, *later) if module in known]
    return found


@cache
def _modules() -> dict[str, str]:
    """Every module of ours, named without the package of a wheel, and its file below the root."""
    found = {}
    for package in _OURS:
        for path in (_ROOT / package).rglob("*.py"):
            relative = path.relative_to(_ROOT)
            parts = relative.with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = relative.as_posix()
    return dict(sorted(found.items()))


@cache
def _is_plain(name: str) -> bool:
    """Whether a module can be imported with the standard library alone."""
    seen: set[str] = set()
    todo = [name]
    while todo:
        module = todo.pop()
        if module.split(".")[0] not in _OURS:
            if module.split(".")[0] not in sys.stdlib_module_names:
                return False
        elif module in _modules() and module not in seen:
            seen.add(module)
            todo += _imports(module)[0]
    return True


@cache
def _imports(name: str) -> tuple[frozenset[str], frozenset[str]]:
    """The modules that a module imports at once (including its packages), and those that it imports
    in functions; imports for types are left out.
    """
    parts = name.split(".")
    at_once = {".".join(parts[:n]) for n in range(1, len(parts))}
    later: set[str] = set()

    def look(nodes: Iterable[ast.AST], found: set[str]) -> None:
        for node in nodes:
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
                found.update(f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
                look(node.orelse, found)
            else:
                is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
                # imports are statements, so expressions, which are most of a tree, are skipped
                for part in _BLOCKS:
                    look(getattr(node, part, ()), later if is_function else found)

    look(ast.parse((_ROOT / _modules()[name]).read_text(encoding="utf-8")).body, at_once)
    ours = [frozenset(one.removeprefix(_PACKAGE) for one in found) for found in (at_once, later)]
    return ours[0], ours[1]
