"""`python tests/measure/size.py`: how large the house is, as formatters print it.

Formatted lines by room, classes and files of Python, circles of imports (those inside functions and
under TYPE_CHECKING included), `any` in JavaScript's types, and the largest files.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = (
    "core",
    "visualizer",
    "assets/player",
    "assets/engine",
    "assets/story",
    "assets/site",
    "app.py",
    "inflight.py",
)


def files(ending: str, *roots: str) -> list[Path]:
    """The files of a kind below some folders, or these files themselves."""
    found = (ROOT / root for root in roots)
    return sorted(
        path
        for root in found
        if root.exists()
        for path in ([root] if root.is_file() else root.rglob(f"*.{ending}"))
        if path.suffix == f".{ending}"
    )


def lines(path: Path) -> int:
    """The lines of a file; `make lint` sees to it that they are those of the formatters."""
    return len(path.read_text(encoding="utf-8").splitlines())


def room(path: Path) -> str:
    """The package of a file, two levels deep, and what it is written in."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[: min(2, len(parts) - 1)]) or parts[0]


def imports(path: Path, modules: set[str]) -> set[str]:
    """Every module of ours that a file imports, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & modules
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found |= {whole if whole in modules else node.module} & modules
    return found


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other, directly or through others (Tarjan's strongly
    connected components of more than one module).
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in graph:
        if name not in index:
            visit(name)
    return found


def module_circles() -> list[list[str]]:
    """Those of `core` and `visualizer`."""
    named = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in files("py", "core", "visualizer")
    }
    # A package is imported with each of its modules, and says nothing of what these need.
    graph = {
        name: imports(path, set(named)) - {name}
        for name, path in named.items()
        if path.name != "__init__.py"
    }
    return circles({name: others & graph.keys() for name, others in graph.items()})


def types_in(path: Path) -> Iterator[str]:
    """What a file of JavaScript says of types: its JSDoc's braces; all of a declaration file, save
    the comments.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ts":
        yield re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
        return
    for tag in re.finditer(r"@(?:type|typedef|param|returns|property|template) \{", text):
        depth, at = 1, tag.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        yield text[tag.end() : at]


def loose_types(path: Path) -> int:
    """How many `any` there are in a file's types."""
    return sum(len(re.findall(r"\bany\b", said)) for said in types_in(path))


def report() -> Iterator[str]:
    """The lines that are printed."""
    total: Counter[str] = Counter()
    rooms: Counter[str] = Counter()
    kinds = {"py": "Python", "js": "JavaScript", "css": "CSS", "html": "HTML"}
    for ending, language in kinds.items():
        for path in files(ending, *PRODUCT):
            total[language] += lines(path)
            rooms[room(path)] += lines(path)
    python = files("py", *PRODUCT)
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in python]
    classes = sum(isinstance(node, ast.ClassDef) for tree in trees for node in ast.walk(tree))
    scripts = files("js", *PRODUCT)
    loose = sum(map(loose_types, [*scripts, *files("ts", *PRODUCT)]))
    yield f"product    {sum(total.values()):>7,} lines: " + ", ".join(
        f"{language} {count:,}" for language, count in total.items()
    )
    tests = sum(lines(path) for ending in kinds for path in files(ending, "tests"))
    yield f"tests      {tests:>7,} lines"
    yield f"Python     {len(python):>7,} files, {classes} classes"
    yield f"JavaScript {len(scripts):>7,} files, {loose} `any` in types"
    yield f"circles    {len(module_circles()):>7,}"
    for circle in module_circles():
        yield f"           {' ↔ '.join(circle)}"
    largest = sorted(((lines(p), p) for e in kinds for p in files(e, *PRODUCT)), reverse=True)[:8]
    yield "largest    " + ", ".join(f"{path.name} {count}" for count, path in largest)
    for name, count in sorted(rooms.items(), key=lambda item: -item[1]):
        yield f"{count:>7,}  {name}"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    print("\n".join(report()))
