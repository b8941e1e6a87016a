"""Moving through a run: keys, buttons, scrubbing, hover and selection, the address, zooming the
mask.
"""

from __future__ import annotations

import json

import pytest

from visualizer.documents.replay import replay
from worlds.browser import seek, settled
from worlds.player import trace_of


def test_opens_paused_where_prefill_meets_decode(visit, traces):
    page = visit(replay=replay(traces["continuous"]))
    phases = set(page.evaluate("inflight.frame.event.segments.map(s => s.phase)"))
    assert phases == {"prefill", "decode"} and not page.evaluate("inflight.transport.playing")


@pytest.mark.smoke
def test_keys_and_buttons(visit, traces):
    page = visit(replay=replay(traces["continuous"]))
    last = len(traces["continuous"].events) - 1
    at = lambda: page.evaluate(  # noqa: E731
        "new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() =>"
        " r(inflight.drawn))))"
    )
    for key, expected in [
        ("Home", 0),
        ("ArrowRight", 1),
        ("Shift+ArrowRight", 11),
        ("ArrowLeft", 10),
        ("PageUp", 0),
        ("PageDown", 10),
        ("End", last),
        ("ArrowRight", last),
    ]:
        page.keyboard.press(key)
        assert at() == expected, key
    page.click("[data-act=first]")
    page.click("[data-act=next]")
    assert at() == 1
    page.keyboard.press("Shift+Slash")
    assert page.locator(".card[open]").count() == 1
    page.keyboard.press("Escape")
    page.select_option(".speed", "60")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    settled(page, "(n) => inflight.drawn === n && !inflight.transport.playing", last)


@pytest.mark.smoke
@pytest.mark.parametrize("kind", ["admission", "chunk", "preemption", "finish"])
def test_jump_to_events(visit, kind):
    trace = trace_of("continuous", num_blocks=5)
    page = visit(replay=replay(trace))
    seek(page, 0)
    prompt = {r: len(ids) for r, ids in trace.prompts.items()}
    happens = {
        "admission": lambda e: e.admitted,
        "chunk": lambda e: any(
            s.phase == "prefill" and (s.start > 0 or s.kv_len < prompt[s.request])
            for s in e.segments
        ),
        "preemption": lambda e: e.preempted,
        "finish": lambda e: e.finished,
    }[kind]
    expected = [i for i, e in enumerate(trace.events) if i > 0 and happens(e)]
    assert expected
    page.select_option(".kind", kind)
    page.evaluate("document.activeElement.blur()")
    visited = []
    for _ in expected:
        page.keyboard.press("n")
        visited.append(page.evaluate("inflight.index"))
    assert visited == expected


def test_dragging_on_the_lanes_scrubs(visit, traces):
    page = visit(replay=replay(traces["continuous"]))
    box = page.locator(".scrubber").bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 8, box["y"] + 60, steps=6)
    settled(page, "(n) => inflight.drawn === n", len(traces["continuous"].events) - 1)
    page.mouse.move(box["x"] + 26, box["y"] + 60, steps=4)
    page.mouse.up()
    settled(page, "inflight.drawn === 0")


def test_hover_lights_one_request_everywhere_and_click_pins(visit, traces):
    page = visit(replay=replay(traces["continuous"]))
    seek(page, 3)
    cell = page.evaluate(
        "(() => { const c = inflight.row.cells[0]; return [c.x + 3, c.y + 3,"
        " c.item.request.letter]; })()"
    )
    canvas = page.locator(".panel.row canvas")
    canvas.hover(position={"x": cell[0], "y": cell[1]})
    settled(page, "(l) => inflight.store.state.focus?.[0].letter === l", cell[2])
    assert page.locator(".tooltip").is_visible()
    assert page.locator(".said.dim").count() > 0
    canvas.click(position={"x": cell[0], "y": cell[1]})
    page.mouse.move(5, 5)
    settled(page, "!inflight.store.state.hovered")
    assert (
        page.evaluate("inflight.pinned.letter")
        == cell[2]
        == page.evaluate("inflight.store.state.focus[0].letter")
    )
    page.keyboard.press("Escape")
    assert page.evaluate("inflight.store.state.focus") is None


@pytest.mark.parametrize(
    ("policy", "reasons"),
    [
        ("continuous", {"allowed", "another request", "the future"}),
        ("static", {"allowed", "another request", "the future", "padding"}),
    ],
)
def test_a_cell_says_why(visit, traces, policy, reasons):
    trace = traces[policy]
    page = visit(replay=replay(trace))
    said = set()
    for index in range(len(trace.events)):
        seek(page, index)
        mask = trace.mask(trace.events[index].step, 0)
        queries, keys = mask.queries[:20], mask.keys[:40]
        explained = page.evaluate(
            """([q, k]) => Array.from({length: q}, (_, i) => Array.from({length: k}, (_, j) => {
                return inflight.mask.explain(i, j).reason; }))""",
            [len(queries), len(keys)],
        )
        for q, query in enumerate(queries):
            for k, key in enumerate(keys):
                reason = explained[q][k]
                allowed = reason == "allowed"
                assert allowed == mask.allowed[q][k]
                said.add(reason)
                if query.position is not None and not allowed:
                    assert (reason == "another request") == (query.request != key.request)
        if said == reasons:
            break
    assert said == reasons


@pytest.mark.smoke
def test_the_address_restores_step_and_selection(visit, traces):
    data = replay(traces["continuous"])
    options = {
        "catalogue": [
            {
                "name": n,
                "title": n,
                "shows": "",
                "policy": "continuous",
                "steps": 9,
                "url": f"{n}.json",
            }
            for n in ("one", "two")
        ]
    }
    files = {"one.json": json.dumps(data), "two.json": json.dumps(replay(traces["static"]))}
    page = visit(options=options, files=files, hash="run=two&step=6&pin=B&axis=time")
    assert page.evaluate(
        "[inflight.entry.name, inflight.frame.event.step, inflight.pinned.letter, inflight.clock]"
    ) == [
        "two",
        6,
        "B",
        True,
    ]
    page.keyboard.press("ArrowRight")
    settled(page, "location.hash.includes('step=7')")
    assert page.evaluate("['run=two', 'pin=B'].every(part => location.hash.includes(part))")
    page.click(".presets button >> text=one")
    settled(page, "inflight.entry.name === 'one'")


def test_tables_stand_in_for_the_canvases(visit, traces):
    page = visit(replay=replay(traces["static"]))
    seek(page, 4)
    page.keyboard.press("t")
    settled(page, "document.querySelector('.table-holder table')")
    assert page.locator(".table-holder table").count() == page.evaluate(
        "document.querySelectorAll('.inflight canvas:not(.flights, .opening canvas)').length"
    )
    assert page.locator(".panel.row .table-holder tbody tr").count() == sum(
        len(p.items) if hasattr(p, "items") else p.rows for p in traces["static"].events[4].passes
    )
    words, button = page.evaluate(
        """() => { const what =
        document.querySelector('.inflight .what-button'), words = new Range();
        what.hidden = false;
        words.selectNodeContents(document.querySelector('.scrubber caption'));
        return [words, what].map((one) => one.getBoundingClientRect().toJSON()); }"""
    )
    assert words["right"] < button["left"] and button["right"] < 1440


def test_the_picture_can_be_taken_away(visit, traces):
    page = visit(replay=replay(traces["continuous"]))
    page.click(".export-button")
    with page.expect_download() as found:
        page.click("text=Picture of this view")
    content = found.value.path().read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n" and len(content) > 30_000


def test_a_zoomed_mask_moves_by_its_minimap(visit, traces):
    page = visit(replay=replay(traces["static"]))
    seek(page, 0)
    page.evaluate("inflight.mask.zoom = { view: [0, 6, 0, 6] }, inflight.draw()")
    view = "inflight.mask.drawn.at.view"
    nq, nk = page.evaluate("[inflight.mask.drawn.pass.nq, inflight.mask.drawn.pass.nk]")
    box, map_ = (
        page.locator(".panel.mask canvas").bounding_box(),
        page.evaluate("inflight.mask.minimap"),
    )
    page.mouse.move(box["x"] + map_["x"] + 5, box["y"] + map_["y"] + 5)
    assert page.evaluate(
        "inflight.mask.hit(inflight.mask.minimap.x + 5, inflight.mask.minimap.y + 5).lines[0][0]"
    ).startswith("The whole mask")
    page.mouse.down()
    page.mouse.move(box["x"] + map_["x"] + map_["w"], box["y"] + map_["y"] + map_["h"], steps=5)
    settled(page, f"([q, k]) => {view}[1] === q && {view}[3] === k", [nq, nk])
    # held: it follows beyond its edge
    page.mouse.move(box["x"] + map_["x"] - 60, box["y"] + map_["y"] - 60, steps=3)
    page.mouse.up()
    settled(page, f"{view}.join() === '0,6,0,6'")
    assert page.evaluate("[inflight.pinned, inflight.mask.zoom !== null]") == [None, True]


def test_two_fingers_zoom_the_mask(visit, traces):
    page = visit(replay=replay(traces["static"]), size="phone")
    seek(page, 0)
    box = page.locator(".panel.mask canvas").bounding_box()
    touch = page.context.new_cdp_session(page)
    x, y = box["x"] + box["width"] / 2 + 20, box["y"] + box["height"] / 2

    def fingers(kind: str, apart: float) -> None:
        points = (
            [{"x": x - apart, "y": y, "id": 0}, {"x": x + apart, "y": y, "id": 1}]
            if kind != "touchEnd"
            else []
        )
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    size = "(() => { const v = inflight.mask.drawn.at.view; return [v[1] - v[0], v[3] - v[2]]; })()"
    whole = page.evaluate(size)
    fingers("touchStart", 30)
    for apart in (40, 60, 90):
        fingers("touchMove", apart)
    third = [max(4, round(n / 3)) for n in whole]  # the fingers are three times as far apart
    settled(page, f"(third) => {size}.join() === third.join()", third)
    for apart in (60, 40, 25):
        fingers("touchMove", apart)
    fingers("touchEnd", 0)
    settled(
        page, f"(whole) => {size}.join() === whole.join() && inflight.mask.zoom === null", whole
    )
