"""The player without eyes or mouse: axe, tables, what is said aloud."""

from __future__ import annotations

import pytest

from visualizer.documents.replay import replay
from worlds.browser import seek


@pytest.mark.parametrize("size", ["desk", "phone"])
def test_axe_finds_nothing_serious(visit, traces, size):
    from importlib.resources import files

    axe = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    for scheme in ("light", "dark"):
        page = visit(replay=replay(traces["static"]), size=size, color_scheme=scheme)
        page.evaluate("inflight.narration.open(true)")
        if size == "desk":
            page.evaluate("(inflight.tables.toggle(true), inflight.editor.drawer.hidden = false)")
        page.wait_for_function("() => document.getAnimations().every(a => a.playState !== 'running')")
        page.evaluate(axe + ";0")
        found = page.evaluate(
            "axe.run().then(r => r.violations.filter(v => ['serious', 'critical'].includes(v.impact)).map(v => [v.id, v.nodes.map(n => n.html.slice(0, 120))]))"
        )
        assert found == []


def test_a_step_is_said_once_it_stays(visit, traces):
    page = visit(replay=replay(traces["continuous"]))
    seek(page, 5)
    page.wait_for_function("() => document.querySelector('.live').textContent.startsWith('Step 5.')")
    slider = page.locator("[role=slider]")
    assert slider.get_attribute("aria-valuenow") == "5"
