"""A number is shown whole or not at all: half of one says something else."""

from __future__ import annotations

import pytest

from worlds.browser import settled

# Numbers, with their units, of which a part is seen: what scrolls aside shows the rest.
_CUT = r"""() => {
    const found = [];
    const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (words.nextNode()) {
        const { currentNode: node } = words, el = node.parentElement;
        if (!/\d/.test(node.data) || el.closest('script, style, select, textarea, .hidden-text') || !el.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
        for (const { 0: number, index } of node.data.matchAll(/\d[\d.,]*( ?(ms|s|%)\b)?/g)) {
            const range = document.createRange();
            range.setStart(node, index);
            range.setEnd(node, index + number.length);
            const box = range.getBoundingClientRect();
            for (let clip = el; clip; clip = clip.parentElement) {
                const { overflowX } = getComputedStyle(clip), frame = clip.getBoundingClientRect();
                if (overflowX === 'visible') continue;
                const wide = Math.min(box.right, frame.right) - Math.max(box.left, frame.left);
                const high = Math.min(box.bottom, frame.bottom) - Math.max(box.top, frame.top);
                if (wide <= 0 || high <= box.height / 3 || /auto|scroll/.test(overflowX)) break;
                if (wide < box.width - 1.5) found.push(`${number} of ${node.data.trim()} in ${clip.className}`);
            }
        }
    }
    return found;
}"""  # noqa: E501


@pytest.mark.slow
@pytest.mark.parametrize(
    "size", [(1440, 900), (1280, 720), (853, 480), (820, 1100), "phone", (360, 740)], ids=str
)
def test_a_number_is_shown_whole_or_not_at_all(visit, page_url, size):
    page = visit(url=f"{page_url}/", size=size)
    cut = {}

    def look(*where):
        settled(page)
        if found := page.evaluate(_CUT):
            cut[where] = found

    for run in ("gpt2-six", "vllm-kv-pressure", "long-prompt-chunked"):
        page.evaluate(
            "(run) => inflight.open(inflight.options.catalogue.find(e => e.name === run))", run
        )
        settled(page, "(run) => inflight.entry.name === run", run)
        for detail in ("full", "simple"):
            page.evaluate("(detail) => inflight.detail.choose(detail)", detail)
            for drawer in (True, False):
                page.evaluate("(on) => inflight.editor.toggle(on)", drawer)
                for share in (0, 0.4, 1):
                    page.evaluate(
                        "(share) => inflight.seek(Math.floor(share * (inflight.run.length - 1)))",
                        share,
                    )
                    look(run, detail, drawer, share)
    for lesson in ("one-at-a-time", "static-batching", "dynamic-scheduling", "paged-kv"):
        page.evaluate("(lesson) => { location.hash = `part=learn&lesson=${lesson}`; }", lesson)
        settled(page, "(lesson) => inflightLearn.drawn.startsWith(lesson)", lesson)
        look(lesson)
    for comparison in ("six-questions", "engines-kv-pressure", "scheduler-zoo"):
        page.evaluate(
            "(name) => { location.hash = `part=compare&comparison=${name}`; }", comparison
        )
        settled(page, "inflightCompare.doc.name === arg && inflightCompare.race", comparison)
        look(comparison)
    page.evaluate("() => { location.hash = 'part=write&task=shortest'; }")
    settled(page, "inflightWrite.task.name === 'shortest'")
    look("write")
    page.click(".inflight-write .run-button")
    settled(page, "inflightWrite.outcome.attempt")
    look("write", "run")
    assert cut == {}


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1280, 720), (1024, 768)], ids=str)
def test_beside_a_lesson_too(visit, page_url, size):
    """Fewer of those at the door are named there, and the others counted."""
    page = visit(f"{page_url}/", size=size, hash="part=learn&lesson=one-at-a-time&stop=2")
    settled(page, "document.documentElement.dataset.lesson && inflight.detail.simple")
    for is_large in (False, True):
        if is_large:
            page.keyboard.press("p")
            settled(page, "'large' in document.documentElement.dataset")
        for share in (0, 0.3, 0.8):
            page.evaluate("(share) => inflight.seek(share * inflight.run.length | 0)", share)
            settled(page)
            assert page.evaluate(_CUT) == []
            named = page.locator("#watch .lanes .waiter:visible").count()
            more = page.locator("#watch .lanes .door-more").inner_text()
            others = int("".join(c for c in more if c.isdigit()) or 0)
            assert named + others == page.evaluate("inflight.frame.waiting.length")
