"""One direction: every module imports only what its room allows. Read from the sources, nothing is run."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = {"gradio", "plotly", "visualizer", "app"}
# No module here reaches torch or transformers, not even through others: deciding, recording and drawing need no model.
NO_TORCH = [
    "config",
    "request",
    "workload",
    "presets",
    "block_pool",
    "scheduler_output",
    "scheduler",
    "events",
    "masks",
    "trace",
    "trace_check",
    "metrics",
    "detokenize",
    "perfetto",
    "terminal",
    "compare",
]
# Imports inside a function, against the direction: what a convenience method needs when it is called.
BACKWARD = {
    ("core.trace.trace", "core.measure.metrics"),
    ("core.trace.trace", "core.trace.rules"),
    ("core.trace.trace", "core.trace.perfetto"),
    ("core.workload.workload", "core.workload.presets"),
}


def sources(package: str) -> dict[str, Path]:
    """Module name to file."""
    found = {}
    for path in (ROOT / package).rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


CORE, VISUALIZER = sources("core"), sources("visualizer")


@cache
def imports(path: Path, top_only: bool = False) -> frozenset[str]:
    """Every module that a file imports, by full name; `top_only` leaves out functions and type checking."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(_top(tree)) if top_only else list(ast.walk(tree))
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            module = node.module or ""
            for alias in node.names:
                whole = f"{module}.{alias.name}"
                names.add(whole if whole in CORE or whole in VISUALIZER else module)
    return frozenset(names)


def _top(tree: ast.Module):
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield from ast.walk(node)


@pytest.mark.parametrize("name", sorted(CORE))
def test_core_never_imports_the_page(name):
    assert not {module for module in imports(CORE[name]) if module.split(".")[0] in PAGE}


@pytest.mark.parametrize("name", sorted(VISUALIZER))
def test_views_know_no_gradio(name):
    """Pictures and their geometry are plain data: gradio is for the page's own wiring."""
    if name.startswith("visualizer.charts") or name in (
        "core.trace.fold",
        "visualizer.words.captions",
        "visualizer.charts.theme",
        "visualizer.lessons",
    ):
        assert not {module for module in imports(VISUALIZER[name]) if module.split(".")[0] == "gradio"}


@pytest.mark.parametrize("name", [n for n in NO_TORCH if f"core.{n}" in CORE])
def test_what_needs_no_model_imports_no_torch(name):
    seen, todo = set(), [f"core.{name}"]
    while todo:
        module = todo.pop()
        if module in seen or module not in CORE:
            continue
        seen.add(module)
        found = imports(CORE[module], top_only=True)
        heavy = {m for m in found if m.split(".")[0] in ("torch", "transformers")}
        assert not heavy, f"{module} imports {', '.join(heavy)}"
        todo += found - {"core"}


def test_imports_make_no_circle():
    """Between modules of one package, types and function-local imports aside."""
    for modules in (CORE, VISUALIZER):
        graph = {name: {m for m in imports(path, top_only=True) if m in modules and m != name} for name, path in modules.items()}
        done: set[str] = set()

        def visit(name: str, way: tuple[str, ...], graph=graph, done=done) -> None:
            assert name not in way, " → ".join((*way[way.index(name) :], name))
            if name not in done:
                for module in graph[name]:
                    visit(module, (*way, name))
                done.add(name)

        for name in graph:
            visit(name, ())


def test_late_imports_go_forward_but_for_a_few():
    """An import inside a function must not hide a circle."""
    graph = {name: imports(path, top_only=True) & set(CORE) for name, path in CORE.items()}

    def reaches(start: str, goal: str) -> bool:
        seen, todo = set(), [start]
        while todo:
            module = todo.pop()
            if module == goal:
                return True
            if module not in seen:
                seen.add(module)
                todo += graph.get(module, ())
        return False

    late = {
        (name, module)
        for name, path in CORE.items()
        for module in (imports(path) - imports(path, top_only=True)) & set(CORE)
        if reaches(module, name)
    }
    type_only = {(n, m) for n, m in late if m in _type_checking(CORE[n])}
    assert late - type_only <= BACKWARD


def _type_checking(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    return {n.module for block in blocks for n in ast.walk(block) if isinstance(n, ast.ImportFrom) and n.module}
