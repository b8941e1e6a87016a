"""One direction: a room imports only rooms above it. The ladders are those of the map in
docs/architecture.md; sources are read, nothing is run.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from measure.size import PRODUCT, circles, files, loose_types, module_circles
from measure.size import imports as modules_imported

ROOT = Path(__file__).resolve().parent.parent
PAGE = {"gradio", "plotly", "visualizer", "app"}
# None of these reaches anything but the standard library, not even through others: an engine needs
# no torch until it computes, and what is said, drawn and told of its runs is made wherever it runs.
PLAIN = (
    "core.errors",
    "core.policy",
    "core.config",
    "core.workload",
    "core.trace",
    "core.scheduler",
    "core.engine",
    "core.simulate",
    "core.browser",
    "core.account",
    "core.proof.replay",
    "core.proof.verify",
    "core.measure.compare",
    "core.measure.cost_curve",
    "core.recorders.raw",
    "visualizer.words",
    "visualizer.charts",
    "visualizer.documents",
    "visualizer.lessons",
    "visualizer.jobs",
    "visualizer.write",
    "visualizer.page",
    "visualizer.browser",
)
# Nor do these reach torch or transformers: drawing needs no model.
NO_TORCH = ("visualizer.ui",)
_JS_IMPORT = re.compile(r'^import \{[^}]*\} from "(\.[\w./]+\.js)";', re.MULTILINE)


def ladder(folder: str) -> list[str]:
    """The rooms of a folder, top to bottom, as the map lists them."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = re.search(
        rf"^\| `{re.escape(folder)}` \| \|\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE
    )
    assert table, f"docs/architecture.md has no map of {folder}"
    return re.findall(r"^\| `(\w+)/?` \|", table[1], re.MULTILINE)


def sources(package: str) -> dict[str, Path]:
    """Module name to file."""
    found = {}
    for path in (ROOT / package).rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = {name: sources(name) for name in ("core", "visualizer")}
ALL = {name: path for modules in MODULES.values() for name, path in modules.items()}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path, top_only: bool = False) -> frozenset[str]:
    """Every module that a file imports, by full name; `top_only` leaves out functions and type
    checking.
    """
    tree = parsed(path)
    names = set()
    for node in _top(tree) if top_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 or path.parent.name == "inflight_vllm", (
                f"{path.name} imports relatively"
            )
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                names.add(whole if whole in ALL else node.module or "")
    return frozenset(names)


def _top(tree: ast.Module):
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield from ast.walk(node)


def room(module: str) -> str:
    """The room of a module of `core` or `visualizer`; the package itself and `__main__` stand
    outside.
    """
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] != "__main__" else ""


def against(package: str, module: str, imported: frozenset[str]) -> list[str]:
    """What of `imported` lies in a room below the module's own."""
    rooms = ladder(f"{package}/")
    here = room(module)
    if not here:
        return []
    return [
        m
        for m in imported
        if m.split(".")[0] == package and room(m) and rooms.index(room(m)) > rooms.index(here)
    ]


@pytest.mark.parametrize("package", list(MODULES))
def test_every_room_is_on_the_map_and_no_other(package):
    assert {room(name) for name in MODULES[package]} - {""} == set(ladder(f"{package}/"))


@pytest.mark.slow
@pytest.mark.parametrize("package", list(MODULES))
def test_no_import_goes_against_the_ladder(package):
    """Late and type-only imports included."""
    found = {name: against(package, name, imports(path)) for name, path in MODULES[package].items()}
    assert not {name: modules for name, modules in found.items() if modules}


def test_an_import_against_the_ladder_is_found():
    """A control for the test above: it would see one."""
    assert against("core", "core.trace.events", frozenset({"core.engine.engine"})) == [
        "core.engine.engine"
    ]


def test_core_never_imports_the_page():
    assert not [
        (name, module)
        for name, path in MODULES["core"].items()
        for module in imports(path)
        if module.split(".")[0] in PAGE
    ]


def test_nothing_else_loads_what_comes_with_a_model():
    """A config, tokenizer or model that transformers loads could bring code:
    `core.torch_engine.models.pretrained` refuses it, and nothing passes by it.
    """
    loads = {
        (name, ast.unparse(node.func.value))
        for name, path in ALL.items()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "from_pretrained"
    }
    elsewhere = {load for load in loads if load[0] != "core.torch_engine.models.pretrained"}
    assert {loaded for _, loaded in elsewhere} == {"Engine"}, elsewhere
    assert loads - elsewhere


def test_a_class_has_its_name_alone():
    """One name, one thing: a class that is private to its file counts, too."""
    names = [
        node.name.lstrip("_")
        for path in ALL.values()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    ]
    assert sorted(name for name, count in Counter(names).items() if count > 1) == []


def test_only_the_app_knows_gradio():
    knows = {
        name
        for name, path in MODULES["visualizer"].items()
        if any(m.split(".")[0] == "gradio" for m in imports(path))
    }
    assert knows == {"visualizer.ui"}


def reached(name: str) -> dict[str, frozenset[str]]:
    """A module and all of ours that it imports, at once or through others, and what each of them
    imports.
    """
    found: dict[str, frozenset[str]] = {}
    todo = [name]
    while todo:
        module = todo.pop()
        if module in ALL and module not in found:
            found[module] = imports(ALL[module], top_only=True)
            todo += found[module] - {"core"}
    return found


def reached_by(prefixes: tuple[str, ...]) -> set[tuple[str, str]]:
    """Who imports a package's name, of all that modules with one of these prefixes reach."""
    assert all(any(name.startswith(prefix) for name in ALL) for prefix in prefixes)
    return {
        (module, imported.split(".")[0])
        for name in ALL
        if name.startswith(prefixes)
        for module, names in reached(name).items()
        for imported in names
    }


def test_what_needs_no_model_imports_no_torch():
    found = reached_by(NO_TORCH)
    assert not {one for one in found if one[1] in ("torch", "transformers")}


def test_an_engine_and_what_is_told_of_its_runs_need_the_standard_library_alone():
    own = {"core", "visualizer", *sys.stdlib_module_names}
    assert not {one for one in reached_by(PLAIN) if one[1] not in own}


def test_imports_make_no_circle():
    """Between modules: those inside functions and under TYPE_CHECKING count like all others."""
    assert module_circles() == []


def test_a_circle_is_found_wherever_its_imports_stand(tmp_path):
    """A control for the test above: a late import and one for types close a circle."""
    (tmp_path / "one.py").write_text("def late():\n    from two import name\n")
    (tmp_path / "two.py").write_text("if TYPE_CHECKING:\n    import one\n")
    names = {"one", "two"}
    graph = {name: modules_imported(tmp_path / f"{name}.py", names) for name in names}
    assert circles(graph) == [["one", "two"]]


def test_types_of_the_page_are_named():
    """`any` has two names, each with its reason: what was JSON, and what brings no types."""
    types = ROOT / "assets/player/types.d.ts"
    declared = re.findall(
        r"^/\*\* .+ \*/\ntype (\w+) = any;", types.read_text("utf-8"), re.MULTILINE
    )
    assert declared == ["Json", "Foreign"]
    loose = {path: loose_types(path) for path in [*files("js", *PRODUCT), *files("ts", *PRODUCT)]}
    assert {path: count for path, count in loose.items() if count} == {types: 2}


def test_an_any_is_found_wherever_it_stands_in_a_type(tmp_path):
    script = tmp_path / "script.js"
    script.write_text("/** Any {any} will do. @param {{a: {b: 1}, c: any}} x @type {any[]} any */")
    assert loose_types(script) == 2


def test_the_scripts_keep_their_ladder():
    """A room of `assets/player` imports only rooms above it; the last ones, the tabs, do not import
    each other.
    """
    player = ROOT / "assets" / "player"
    rooms = ladder("assets/player/")
    assert {p.relative_to(player).parts[0] for p in player.rglob("*.js")} == set(rooms)
    for path in player.rglob("*.js"):
        here = path.relative_to(player).parts[0]
        for name in _JS_IMPORT.findall(path.read_text(encoding="utf-8")):
            there = (path.parent / name).resolve().relative_to(player).parts[0]
            assert rooms.index(there) <= rooms.index(here), (
                f"{path.relative_to(player)} imports {name}"
            )


def test_the_figure_of_the_rooms_has_those_of_the_map():
    drawn = re.findall(
        r'font-weight="600"[^>]*>(\w+)</text>',
        (ROOT / "docs" / "figures" / "rooms.svg").read_text(encoding="utf-8"),
    )
    assert drawn == [
        name for folder in ("core/", "visualizer/", "assets/player/") for name in ladder(folder)
    ]
