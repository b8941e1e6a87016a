"""The player's modules joined: each in a scope of its own, loaded after those it imports, shown by
a debugger as a file; a run as one page.
"""

from __future__ import annotations

import re

import pytest

from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES
from visualizer.documents.replay import replay
from visualizer.page import bundle
from worlds.browser import settled

ENTRIES = ["watch/player.js", "parts/tabs.js", "compare/compare.js"]


def evaluated(fresh, script: str, expression: str):
    page = fresh()
    errors: list[str] = []
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.set_content(f"<script>{script}</script>")
    found = page.evaluate(expression)
    assert not errors
    return found


@pytest.fixture
def player(tmp_path, monkeypatch):
    """A folder of modules in place of the player's: `player({path: source})`."""

    def write(files: dict[str, str]) -> None:
        for name, source in {
            "parts/modules.js": (
                (bundle.ASSETS / "player" / "parts" / "modules.js").read_text(encoding="utf-8")
            ),
            **files,
        }.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(source, encoding="utf-8")
        monkeypatch.setattr(bundle, "PLAYER", tmp_path)

    bundle.script.cache_clear()
    yield write
    bundle.script.cache_clear()


def test_modules_may_use_the_same_names(fresh, player):
    player(
        {
            "run/a.js": "// First.\nconst NAME = 1;\nexport const one = () => NAME;\n",
            "views/b.js": (
                '// Second.\nimport { one as first } from "../run/a.js";\nconst NAME = 2;\nexport'
                " class Two {\n  sum() {\n    return first() + NAME;\n  }\n}\nwindow.sum = new"
                " Two().sum();\n"
            ),
        }
    )
    assert evaluated(fresh, bundle.script("views/b.js"), "window.sum") == 3


def test_a_circle_of_imports_is_refused(player):
    player({"a.js": 'import { b } from "./b.js";\n', "b.js": 'import { a } from "./a.js";\n'})
    with pytest.raises(ValueError, match=re.escape("a.js → b.js → a.js")):
        bundle.script("a.js")


@pytest.mark.smoke
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_module_keeps_its_lines_and_exports_nothing_else(entry):
    for name, text in bundle.modules(entry).items():
        source = (bundle.PLAYER / name).read_text(encoding="utf-8")
        assert text.count("\n") == source.count("\n") + 4 and text.endswith(
            f"//# sourceURL=inflight/{name}\n"
        )
        assert not re.search(r"^(import|export)\b", text, re.MULTILINE), name


@pytest.mark.smoke
def test_a_debugger_shows_each_file_once(fresh):
    page = fresh()
    session = page.context.new_cdp_session(page)
    seen: list[str] = []
    session.on("Debugger.scriptParsed", lambda e: seen.append(e["url"]))
    session.send("Debugger.enable")
    # parts share modules
    page.set_content("".join(f"<script>{bundle.script(entry)}</script>" for entry in ENTRIES))
    page.wait_for_function("() => window.inflightModules['compare/compare.js']")
    session.send("Debugger.disable")  # its answer comes after all that was told before
    files = [url.split("inflight/", 1)[1] for url in seen if "inflight/" in url]
    wanted = {name for entry in ENTRIES for name in bundle.modules(entry)}
    assert set(files) == wanted and len(files) == len(wanted)


@pytest.mark.smoke
def test_standalone_html_opens_from_disk(fresh, traces, tmp_path):
    text = bundle.standalone_html(replay(traces["continuous"]))
    (tmp_path / "run.html").write_text(text, encoding="utf-8")
    page = fresh(offline=True)
    page.goto((tmp_path / "run.html").as_uri())
    settled(page, "inflight.drawn >= 0")
    assert page.locator(".edit-button").is_hidden()


def test_standalone_html_is_small():
    trace = Trace.load(TRACES / "gpt2-masks.jsonl")
    size = len(bundle.standalone_html(replay(trace)).encode())
    assert len(trace.events) >= 300 and size < 1_000_000, f"{size:,} bytes"
