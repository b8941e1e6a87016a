"""The player without eyes or mouse: axe, tables, what is said aloud."""

from __future__ import annotations

import pytest

from visualizer.documents.replay import replay
from worlds.axe import serious
from worlds.browser import seek, settled


@pytest.mark.parametrize("size", ["desk", pytest.param("phone", marks=pytest.mark.slow)])
def test_axe_finds_nothing_serious(visit, traces, size):
    for scheme in ("light", "dark"):
        page = visit(replay=replay(traces["static"]), size=size, color_scheme=scheme)
        page.evaluate("inflight.narration.open(true)")
        if size == "desk":
            page.evaluate("(inflight.tables.toggle(true), inflight.editor.drawer.hidden = false)")
        assert serious(page) == []


def test_a_step_is_said_once_it_stays(visit, traces):
    page = visit(replay=replay(traces["continuous"]))
    page.evaluate(
        "() => { window.told = new Set(); new MutationObserver((changes) =>"
        " changes.forEach(({target}) => told.add(target.className)))"
        ".observe(document.querySelector('.inflight'), {subtree: true, childList: true}); }"
    )
    seek(page, 5)
    settled(page, "document.querySelector('.live').textContent.startsWith('Step 5.')")
    told = "[...document.querySelectorAll('output, [role=status], [aria-live=polite]')].filter((el)"
    told += " => el.ariaLive !== 'off' && window.told.has(el.className)).map((el) => el.className)"
    assert page.evaluate(told) == ["live hidden-text"]
    slider = page.locator(".scrubber[role=slider]")
    assert slider.get_attribute("aria-valuenow") == "5"


def test_keys_walk_through_tokens_cells_and_blocks(visit, traces):
    page = visit(replay=replay(traces["continuous"]))
    seek(page, 6)
    walked = {}
    for name in ("tokens of this pass", "cells of the mask", "caches by lane", "memory blocks"):
        listbox = page.get_by_role("listbox", name=name)
        page.evaluate("inflight.clear()")
        for _ in range(40):  # by Tab alone
            if page.evaluate("document.activeElement.getAttribute('aria-label')") == name:
                break
            page.keyboard.press("Tab")
        said = []
        for key in ("Home", "ArrowRight", "ArrowDown"):
            page.keyboard.press(key)
            settled(page)
            said.append(listbox.get_by_role("option").inner_text())
        walked[name] = said
        assert len(set(said)) > 1 and page.evaluate(
            "[inflight.index, inflight.tooltip.el.hidden]"
        ) == [6, False]
        page.keyboard.press("Home")
        page.keyboard.press("Enter")
        assert page.evaluate(
            "inflight.pinned && inflight.pinned === inflight.store.state.hovered"
        ), name
        page.keyboard.press("Escape")
        assert page.evaluate(
            "[document.activeElement === document.body, inflight.store.state.hovered,"
            " !!inflight.pinned]"
        ) == [
            True,
            None,
            True,
        ]
        page.keyboard.press("Escape")
    assert "Prefill" in "".join(walked["tokens of this pass"]) or "Decode" in "".join(
        walked["tokens of this pass"]
    )
    assert "Query" in walked["cells of the mask"][0] and "Block 0" in walked["memory blocks"][0]
    page.keyboard.press("ArrowRight")
    settled(page, "inflight.index === 7")  # outside a picture the arrows step
    page.keyboard.press("Shift+Slash")
    assert "there the arrows move" in page.inner_text(".card[open]")
