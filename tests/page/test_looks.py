"""Everything fits its screen, is large and dark enough to read, and moves only where motion is wanted."""

from __future__ import annotations

import json

import pytest

from visualizer.documents.replay import replay


@pytest.mark.parametrize("size", ["desk", "tablet", "phone", "presenter"])
def test_everything_is_on_one_screen(visit, traces, size):
    page = visit(replay=replay(traces["continuous"]), size=size, hash="present=1" if size == "presenter" else "")
    assert page.evaluate(
        "[document.documentElement.scrollWidth <= innerWidth, document.documentElement.scrollHeight <= innerHeight]"
    ) == [True, True]
    height = page.evaluate("innerHeight")
    for part in [".say", ".panel.row", ".panel.mask", ".panel.lanes"] + (
        [".transport"] if size != "presenter" else [".progress-line"]
    ):
        box = page.locator(part).bounding_box()
        assert box and box["height"] > 4 and box["y"] >= 0 and box["y"] + box["height"] <= height + 0.5, part
    if size == "phone":
        for tab in ("kv", "queue", "text", "mask"):
            page.tap(f"[data-tab={tab}]")
            assert page.locator(f".panel.{tab}").bounding_box()["height"] > 150
        small = page.evaluate("""[...document.querySelectorAll('.inflight button, .inflight select')].filter(b => b.offsetParent)
            .map(b => { const r = b.getBoundingClientRect(), p = b.matches('.why-button') ? 20 : 0; return [b.className, r.width + p / 2, r.height + p]; })
            .filter(([, w, h]) => w < 44 || h < 44)""")
        assert small == []


@pytest.mark.parametrize(
    "size", [(1440, 900), (1280, 720), (1201, 800), (1024, 768), (768, 1024), (844, 390), (390, 844), (360, 740)]
)
def test_no_button_is_cut_off(visit, traces, size):
    tabs = [{"name": name, "title": name.capitalize()} for name in ("watch", "compare", "learn")]
    run = {"name": "one", "title": "A run with a long title", "shows": "", "policy": "continuous", "steps": 9, "url": "one.json"}
    files = {"one.json": json.dumps(replay(traces["continuous"]))}
    page = visit(options={"catalogue": [run, {**run, "name": "two"}], "tabs": tabs}, files=files, size=size)
    page.evaluate(
        "document.querySelectorAll('.edit-button, .what-button').forEach(b => { b.hidden = false; })"
    )  # as with a server
    page.evaluate("inflight.sized()")
    cut = page.evaluate("""[...document.querySelectorAll('.top button, .transport button, .transport select')].filter(b => b.offsetParent)
        .map(b => [b.className, b.getBoundingClientRect()]).filter(([, r]) => r.left < 0 || r.right > innerWidth || r.bottom > innerHeight + 0.5).map(([name]) => name)""")
    assert cut == []


def test_text_is_never_small_or_pale(visit, traces):
    for scheme in ("light", "dark"):
        page = visit(replay=replay(traces["continuous"]), color_scheme=scheme)
        assert (
            page.evaluate("""[...document.querySelectorAll('.stage *')].filter(e => e.offsetParent && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
            .filter(e => parseFloat(getComputedStyle(e).fontSize) < 11).map(e => e.className)""")
            == []
        )
        poor = page.evaluate("""(() => {
            const lum = ([r, g, b]) => [r, g, b].map(c => c / 255 <= .03928 ? c / 255 / 12.92 : ((c / 255 + .055) / 1.055) ** 2.4).reduce((s, c, i) => s + c * [.2126, .7152, .0722][i], 0);
            const of = s => (s.match(/[\\d.]+/g) || []).map(Number);
            const ground = e => { for (; e; e = e.parentElement) { const c = of(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] > .99) return c; } return [255, 255, 255]; };
            return [...document.querySelectorAll('.stage *')].filter(e => e.offsetParent && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && !e.closest('.gone'))
              .map(e => { const a = lum(of(getComputedStyle(e).color)), b = lum(ground(e)); return [e.className, (Math.max(a, b) + .05) / (Math.min(a, b) + .05)]; }).filter(([, c]) => c < 4.5); })()""")
        assert poor == [], scheme
        assert page.evaluate(
            "inflight.palette.hues.every(c => [[c.text, c.fill], [inflight.palette.ink, c.tint]].every(([a, b]) => true))"
        )


def test_motion_is_reduced_when_asked(visit, traces):
    page = visit(replay=replay(traces["continuous"]), reduced_motion="reduce")
    page.keyboard.press("ArrowRight")
    assert not page.evaluate("inflight.root.classList.contains('single')")
