"""Where fingers point every target is 44 px, by its size or by an invisible edge; nothing that is
drawn beside it is cut off.
"""

from __future__ import annotations

import pytest

from worlds.browser import settled

SMALL = """(() => {
  const root = [...document.querySelectorAll('.inflight')].find((e) => e.getClientRects().length), scope = root.querySelector('dialog[open]') || root;
  const grown = (e, axis) => { const edge = getComputedStyle(e, '::after');
    return edge.content === 'none' || edge.position !== 'absolute' ? 0 : axis.reduce((n, side) => n + Math.max(0, -parseFloat(edge[side])), 0); };
  return [...scope.querySelectorAll('button, select, input:not([type=file]), textarea')].filter((e) => e.getClientRects().length && !e.closest('p')).map((e) => {
    const r = (e.matches('input') && e.closest('label') || e).getBoundingClientRect();
    return [e.className || e.name, e.textContent.slice(0, 20), Math.round(r.width + grown(e, ['left', 'right'])), Math.round(r.height + grown(e, ['top', 'bottom']))];
  }).filter(([, , w, h]) => w < 44 || h < 44);
})()"""  # noqa: E501


LONG_TAIL = [
    pytest.param(size, marks=pytest.mark.slow) for size in ((1024, 768), (768, 1024), (390, 844))
]


@pytest.mark.parametrize("size", [(844, 390), (360, 740), *LONG_TAIL])
def test_every_target_is_large_enough_for_a_finger(visit, page_url, size):
    page = visit(
        url=f"{page_url}/",
        size=size,
        has_touch=True,
        is_mobile=size[0] < 600,
        hash="run=three-lengths&step=3&pin=B",
    )
    assert page.evaluate(SMALL) == []
    cut = (
        "[...document.querySelectorAll('#watch .top button')].filter((b) =>"
        " b.getClientRects().length && b.getBoundingClientRect().right > innerWidth).length"
    )
    assert page.evaluate(cut) == 0
    page.evaluate("document.querySelector('.edit-button').click()")
    page.wait_for_selector(".request-rows > *")
    assert page.evaluate(SMALL) == []
    page.evaluate("inflight.editor.toggle(false)")
    for button in (".runs-button", ".what-button"):
        page.evaluate("(s) => document.querySelector(s).click()", button)
        page.wait_for_selector("dialog[open] button.button, dialog[open] .run-choice")
        assert page.evaluate(SMALL) == [], button
        page.keyboard.press("Escape")
    page.evaluate("location.hash = '#part=compare&comparison=scheduler-zoo'")
    settled(
        page,
        "window.inflightCompare && inflightCompare.doc && inflightCompare.doc.name ==="
        " 'scheduler-zoo'",
    )
    assert page.evaluate(SMALL) == []


@pytest.mark.slow
@pytest.mark.parametrize("size", [(768, 1024), (844, 390)])
def test_an_editor_lies_over_a_narrow_page_and_squeezes_nothing(visit, page_url, size):
    page = visit(url=f"{page_url}/", size=size)
    before = page.evaluate("[inflight.layout, document.querySelector('.stage').clientWidth]")
    page.click(".edit-button")
    page.wait_for_selector(".request-rows > *")
    assert (
        page.evaluate("[inflight.layout, document.querySelector('.stage').clientWidth]") == before
    )
    box = page.locator("#watch .drawer").bounding_box()
    assert (
        box["x"] == 0 and box["width"] < size[0] * 0.7 and page.locator(".run-button").is_visible()
    )
