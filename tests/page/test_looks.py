"""Everything fits its screen, is large and dark enough to read, and moves only where motion is
wanted.
"""

from __future__ import annotations

import json

import pytest

from visualizer.documents.comparison import RECORDED, load
from visualizer.documents.replay import replay
from worlds.browser import settled


@pytest.mark.parametrize("size", ["desk", "tablet", "phone", "presenter"])
def test_everything_is_on_one_screen(visit, traces, size):
    page = visit(
        replay=replay(traces["continuous"]),
        size=size,
        hash="present=1" if size == "presenter" else "",
    )
    assert page.evaluate(
        "[document.documentElement.scrollWidth <= innerWidth, document.documentElement.scrollHeight"
        " <= innerHeight]"
    ) == [True, True]
    height = page.evaluate("innerHeight")
    for part in [".say", ".panel.row", ".panel.mask", ".panel.lanes"] + (
        [".transport"] if size != "presenter" else [".progress-line"]
    ):
        box = page.locator(part).bounding_box()
        assert (
            box and box["height"] > 4 and box["y"] >= 0 and box["y"] + box["height"] <= height + 0.5
        ), part
    if size == "phone":
        for tab in ("kv", "queue", "text", "mask"):
            page.tap(f"[data-tab={tab}]")
            assert page.locator(f".panel.{tab}").bounding_box()["height"] > 150
        small = page.evaluate(
            """[...document.querySelectorAll('.inflight button, .inflight select')].filter(b => b.offsetParent)
            .map(b => { const r = b.getBoundingClientRect(), [p, q] = b.matches('.why-button') ? [10, 20] : b.matches('.ask') ? [26, 26] : b.matches('.mini') ? [6, 25] : [0, 0]; return [b.className, r.width + p, r.height + q]; }) // invisible edges
            .filter(([, w, h]) => w < 44 || h < 44)"""  # noqa: E501
        )
        assert small == []


def test_the_ring_of_a_field_covers_no_words(visit, traces):
    page = visit(replay=replay(traces["continuous"]))
    rings = page.evaluate(
        """() => { const drawer = document.querySelector('.inflight .drawer'); drawer.hidden = false;
        return ['preset', 'max_num_seqs', 'num_blocks'].map((name) => {
            const field = drawer.querySelector(`[name=${name}]`); field.focus();
            const ring = getComputedStyle(field), [width, offset] = [ring.outlineWidth, ring.outlineOffset].map(parseFloat);
            return [field.getBoundingClientRect().bottom + width + offset, field.nextElementSibling.getBoundingClientRect().top];
        }); }"""  # noqa: E501
    )
    assert all(end < words + 1 for end, words in rings), rings


def test_beside_a_lesson_no_key_or_button_of_a_panel_is_cut(visit, traces):
    page = visit(replay=replay(traces["continuous"]), size="tablet")
    cut = page.evaluate(
        """() => { document.querySelector('.inflight').toggleAttribute('data-narrow', true);
        // what a lesson leaves of 1024 pixels
        for (const [panel, width] of [['mask', 302], ['lanes', 572]]) document.querySelector(`.panel.${panel}`).style.width = `${width}px`;
        document.querySelectorAll('.panel h3 button').forEach((button) => { button.hidden = false; });
        return [...document.querySelectorAll('.panel :is(h3 button, p.legend span)')].filter((el) => el.offsetParent).filter((el) => {
            const { right, bottom } = el.getBoundingClientRect(), box = el.closest('h3, p').getBoundingClientRect();
            return right > box.right + 1 || bottom > box.bottom + 1; }).map((el) => el.textContent.trim()); }"""  # noqa: E501
    )
    assert cut == []


def test_no_button_is_cut_off(visit, traces):
    tabs = [{"name": name, "title": name.capitalize()} for name in ("watch", "compare", "learn")]
    run = {
        "name": "one",
        "title": "A run with a long title",
        "shows": "",
        "policy": "continuous",
        "steps": 9,
        "url": "one.json",
    }
    files = {"one.json": json.dumps(replay(traces["continuous"]))}
    page = visit(options={"catalogue": [run, {**run, "name": "two"}], "tabs": tabs}, files=files)
    page.evaluate(
        "document.querySelectorAll('.edit-button, .what-button').forEach(b => { b.hidden ="
        " false; })"
    )  # as with a server
    for width, height in (
        (1440, 900),
        (1280, 720),
        (1201, 800),
        (1024, 768),
        (768, 1024),
        (844, 390),
        (390, 844),
        (360, 740),
    ):
        page.set_viewport_size({"width": width, "height": height})
        settled(page, "([w, h]) => innerWidth === w && innerHeight === h", [width, height])
        page.evaluate("inflight.sized()")
        cut = page.evaluate(
            """[...document.querySelectorAll('.top button, .transport button, .transport select')].filter(b => b.offsetParent)
            .map(b => [b.className, b.getBoundingClientRect()]).filter(([, r]) => r.left < 0 || r.right > innerWidth || r.bottom > innerHeight + 0.5).map(([name]) => name)"""  # noqa: E501
        )
        assert cut == [], (width, height)


def test_text_is_never_small_or_pale(visit, traces):
    for scheme in ("light", "dark"):
        page = visit(replay=replay(traces["continuous"]), color_scheme=scheme)
        assert (
            page.evaluate(
                """[...document.querySelectorAll('.stage *')].filter(e => e.offsetParent && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
            .filter(e => parseFloat(getComputedStyle(e).fontSize) < 11).map(e => e.className)"""  # noqa: E501
            )
            == []
        )
        poor = page.evaluate(
            """(() => {
            const lum = ([r, g, b]) => [r, g, b].map(c => c / 255 <= .03928 ? c / 255 / 12.92 : ((c / 255 + .055) / 1.055) ** 2.4).reduce((s, c, i) => s + c * [.2126, .7152, .0722][i], 0);
            const of = s => (s.match(/[\\d.]+/g) || []).map(Number);
            const ground = e => { for (; e; e = e.parentElement) { const c = of(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] > .99) return c; } return [255, 255, 255]; };
            return [...document.querySelectorAll('.stage *')].filter(e => e.offsetParent && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && !e.closest('.gone'))
              .map(e => { const a = lum(of(getComputedStyle(e).color)), b = lum(ground(e)); return [e.className, (Math.max(a, b) + .05) / (Math.min(a, b) + .05)]; }).filter(([, c]) => c < 4.5); })()"""  # noqa: E501
        )
        assert poor == [], scheme


def test_motion_is_reduced_when_asked(visit, traces):
    page = visit(replay=replay(traces["continuous"]), reduced_motion="reduce")
    page.keyboard.press("ArrowRight")
    assert not page.evaluate("inflight.root.classList.contains('single')")


@pytest.mark.parametrize("size", [(1440, 900), (1280, 720)])
def test_nothing_in_the_queue_panel_moves_while_a_run_plays(visit, traces, size):
    page = visit(replay=replay(traces["continuous"]), size=size)
    tops = page.evaluate("""(async () => { const seen = new Set();
        for (let i = 0; i < inflight.run.length; i += 1) { inflight.seek(i); await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)));
            seen.add([...document.querySelectorAll(".queue > :is(.gauges, .binding, h3)")].map((e) => e.getBoundingClientRect().top).join()); }
        return [...seen]; })()""")  # noqa: E501
    assert len(tops) == 1


@pytest.mark.smoke
@pytest.mark.parametrize("size", [(1440, 900), (1280, 720), (1024, 768)])
def test_a_legend_is_shown_whole(visit, traces, size):
    page = visit(replay=replay(traces["static"]), size=size)
    cut = """[...document.querySelectorAll(".legend")].flatMap((l) => [...l.querySelectorAll(":scope > span")].filter((e) => e.getClientRects().length)
        .filter((e) => { const r = e.getBoundingClientRect(), box = l.getBoundingClientRect(); return r.right > box.right + 1 || r.bottom > box.bottom + 1; }).map((e) => e.textContent))"""  # noqa: E501
    assert page.evaluate(cut) == []
    totals = """(width) => { const box = document.querySelector(".totals"); box.style.maxWidth = `${width}px`; const { right, bottom } = box.getBoundingClientRect();
        return [...box.children].map((e) => e.getBoundingClientRect()).filter((r) => r.width && r.top < bottom).map((r) => r.right <= right + 1); }"""  # noqa: E501
    # in a narrow heading whole numbers are left out, and none is cut
    assert set(page.evaluate(totals, 300)) == {True}
    weighed = page.evaluate(
        "(document.querySelector('.panel.mask').classList.add('weighed', 'without-first'),"
        " [document.querySelector('.legend-weights').getClientRects().length,"
        f" document.querySelector('.legend-first').getClientRects().length, {cut}])"
    )
    assert weighed == [1, 1, []]


@pytest.mark.parametrize(
    ("view", "size"),
    [
        *((view, "presenter") for view in ("", "row", "mask", "kv", "queue", "text", "lanes")),
        ("", "tablet"),
    ],
)
def test_on_a_projector_words_are_large(visit, traces, view, size):
    page = visit(
        replay=replay(traces["continuous"]), size=size, hash=f"present=1&step=6&view={view}"
    )
    assert page.evaluate("document.querySelector('.inflight').dataset.focusView ?? ''") == view
    small = page.evaluate(
        """(() => { const drawn = [], ink = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...at) { drawn.push([text, parseFloat(/([\\d.]+)px/.exec(this.font)[1])]); ink.call(this, text, ...at); };
        inflight.draw();
        const words = [...document.querySelectorAll(".stage *")].filter((e) => e.getClientRects().length && !e.closest(".hidden-text, .cursor") && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
            .map((e) => [e.textContent, parseFloat(getComputedStyle(e).fontSize)]);
        return [...drawn, ...words].filter(([, size]) => size < 20); })()"""  # noqa: E501
    )
    assert small == []


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1280, 720), (1024, 768)])
def test_a_projector_shows_what_each_person_reads_to_its_last_word(visit, size):
    trace = load(RECORDED / "gpt2-six").comparison.runs["continuous"].trace
    page = visit(replay=replay(trace), size=size, hash="present=1", detail="simple")
    texts = page.evaluate(
        """async () => { const found = [], box = document.querySelector(".texts");
        for (let i = 0; i < inflight.run.length; i += 9) {
            inflight.seek(i); await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)));
            const rows = [...box.children].filter((e) => e.offsetParent), last = rows.map((e) => e.querySelector("mark:not([hidden])")?.getBoundingClientRect());
            const boxes = rows.map((e) => e.getBoundingClientRect());
            if (box.scrollHeight > box.clientHeight + 1) found.push([i, "scrolls"]);
            boxes.forEach(({ top, bottom }, n) => {
                if (n && top < boxes[n - 1].bottom) found.push([i, n, "overlaps"]);
                if (last[n] && (last[n].bottom > bottom + 6 || last[n].bottom < top)) found.push([i, n, "is cut"]);
            });
        }
        return found; }"""  # noqa: E501
    )
    assert texts == []


def test_a_link_to_the_presenter_opens_the_page_where_there_is_no_room_for_it(visit, traces):
    page = visit(replay=replay(traces["continuous"]), size="phone", hash="present=1&step=6")
    assert page.evaluate("[inflight.presenter, inflight.layout, inflight.frame.event.step]") == [
        False,
        "phone",
        6,
    ]


def test_in_a_visitors_own_colours_the_open_part_has_a_frame(visit, traces):
    tabs = [{"name": name, "title": name.capitalize()} for name in ("watch", "compare")]
    files = {"one.json": json.dumps(replay(traces["continuous"]))}
    run = {"name": "one", "title": "One", "shows": "", "policy": "", "steps": 9, "url": "one.json"}
    framed = (
        "[...document.querySelectorAll('.tabs button')].map((tab) =>"
        " getComputedStyle(tab).outlineStyle)"
    )
    for colours, frames in (("active", ["solid", "none"]), ("none", ["none", "none"])):
        page = visit(options={"catalogue": [run], "tabs": tabs}, files=files, forced_colors=colours)
        assert page.evaluate(framed) == frames
