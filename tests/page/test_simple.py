"""Simple and Full: who gets which, what each shows, the lanes that pass under a fixed now, who
waits at the door, the "?" beside each title.
"""

from __future__ import annotations

import re
import tomllib

import pytest
from playwright.sync_api import expect

from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES
from visualizer.documents.replay import replay
from visualizer.lessons.texts import FOLDER
from visualizer.page.bundle import PLAYER
from worlds.axe import serious
from worlds.browser import seek, settled

DETAIL = "document.querySelector('.inflight').dataset.detail"
SEEN = (
    "(names) => names.filter((name) => document.querySelector(`.inflight"
    " ${name}`)?.checkVisibility({ visibilityProperty: true }))"
)
VIEWS = [
    ".strip",
    ".scrubber",
    ".door",
    ".panel.row",
    ".panel.mask",
    ".panel.kv .blocks",
    ".panel.text",
]
INSTRUMENTS = [
    ".panel.queue",
    ".panel.kv .lengths",
    ".totals",
    ".clock-button",
    ".speed",
    ".kind",
    ".why-button",
    ".top .policy-chip",
]


@pytest.fixture(scope="module")
def six() -> Trace:
    return Trace.load(TRACES / "gpt2-six.jsonl")


def test_a_new_visitor_gets_simple_and_what_is_chosen_stays(visit, six):
    page = visit(replay=replay(six), detail=None)
    assert page.evaluate(DETAIL) == "simple" and "detail" not in page.url
    assert page.evaluate(SEEN, VIEWS + INSTRUMENTS) == VIEWS
    page.keyboard.press("d")
    settled(page, "location.hash.includes('detail=full')")
    assert (
        page.evaluate(SEEN, VIEWS + INSTRUMENTS)
        == [v for v in VIEWS if v not in (".strip", ".door")] + INSTRUMENTS
    )
    page.evaluate("location.hash = ''")
    page.reload()
    settled(page, "window.inflight && inflight.drawn >= 0")
    assert page.evaluate(DETAIL) == "full"
    page.get_by_role("button", name="Simple", exact=True).click()
    assert page.evaluate(f"[{DETAIL}, inflight.address._hash(true).includes('detail=simple')]") == [
        "simple",
        True,
    ]


def test_a_link_says_how_much_is_shown_and_changes_nobodys_choice(visit, six):
    page = visit(replay=replay(six), detail="simple", hash="step=6&detail=full")
    assert page.evaluate(f"[{DETAIL}, localStorage['inflight-detail']]") == ["full", "simple"]
    page.evaluate("location.hash = '#step=7&detail=simple'")
    settled(page, f"{DETAIL} === 'simple' && inflight.index === 7")
    page.evaluate("location.hash = '#step=8&axis=time'")  # only Full has an axis
    settled(page, f"{DETAIL} === 'full' && inflight.index === 8")
    page.evaluate(
        "(run) => inflight.openReplay({ ...run, header: { ...run.header, source: 'uploaded' } })",
        replay(six),
    )
    settled(page, "inflight.run.header.source === 'uploaded'")
    assert page.evaluate(DETAIL) == "full"


def test_whoever_brings_a_recording_gets_full_unless_they_chose(visit, six):
    brought = replay(six, source="uploaded")
    assert [
        visit(replay=brought, detail=chosen).evaluate(DETAIL) for chosen in (None, "simple")
    ] == ["full", "simple"]


@pytest.mark.parametrize(
    "size",
    [
        "phone",
        (844, 390),
        pytest.param("tablet", marks=pytest.mark.slow),
        pytest.param((1280, 720), marks=pytest.mark.slow),
    ],
)
def test_simple_fits_every_screen(visit, six, size):
    page = visit(
        replay=replay(six), size=size, detail="simple", hash="step=36", color_scheme="dark"
    )
    small = page.evaluate(
        """(() => { const drawn = [], ink = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...at) { drawn.push([text, parseFloat(/([\\d.]+)px/.exec(this.font)[1])]); ink.call(this, text, ...at); };
        inflight.draw();
        const words = [...document.querySelectorAll(".stage *")].filter((e) => e.getClientRects().length && !e.closest(".hidden-text, .cursor") && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
            .map((e) => [e.textContent, parseFloat(getComputedStyle(e).fontSize)]);
        return [...drawn, ...words].filter(([, size]) => size < 11); })()"""  # noqa: E501
    )
    assert small == []
    assert page.evaluate("document.scrollingElement.scrollWidth - innerWidth") <= 0
    out = (
        "[...document.querySelectorAll('.stage > .panel, .transport')].filter((e) =>"
        " e.getClientRects().length).filter((e) => { const r = e.getBoundingClientRect(); return"
        " r.bottom > innerHeight + 1 || r.right > innerWidth + 1 || r.height < 40; }).map((e) =>"
        " e.className)"
    )
    assert page.evaluate(out) == []
    assert serious(page) == []


@pytest.mark.smoke
def test_the_plain_sentence_has_no_arithmetic_of_limits(visit, six):
    page = visit(replay=replay(six), detail="simple", hash="step=6")
    said = page.inner_text(".sentence")
    assert "takes the lane that" in said and not re.search("budget|KV|prefill|decode", said)
    page.keyboard.press("d")
    settled(page)
    assert page.inner_text(".sentence") != said


def test_lanes_pass_under_a_fixed_now_and_are_dragged(visit, six):
    page = visit(replay=replay(six), detail="simple", hash="step=20")
    box = page.locator(".strip").bounding_box()
    now, per = page.evaluate("[inflight.strip.now, inflight.strip.scale.per]")
    assert page.evaluate("inflight.strip.scale.from(20)") == pytest.approx(now)
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + now + 3 * per, y)
    page.mouse.down()
    page.mouse.move(box["x"] + now + 2.4 * per, y)
    page.mouse.move(box["x"] + now, y)
    page.mouse.up()
    settled(page, "inflight.drawn === 23")
    assert page.evaluate("inflight.strip.scale.from(23)") == pytest.approx(now)
    page.mouse.click(box["x"] + now + 2.5 * per, y)  # a press goes there
    settled(page, "inflight.drawn === 25")
    page.locator(".scrubber").focus()
    page.keyboard.press("ArrowRight")
    settled(page, "inflight.drawn === 26")
    assert page.locator(".scrubber[role=slider]").get_attribute("aria-valuenow") == "26"
    assert page.evaluate("inflight.pinned") is None


def test_play_stands_where_something_happens_and_says_what_on_its_panel(visit, six):
    """It stands at each such step longer than all that lies between takes, and passes none of
    them."""
    page = visit(replay=replay(six), detail="simple", hash="step=0")
    stops = page.evaluate("inflight.run.eventSteps('any')")
    assert len(stops) < page.evaluate("inflight.run.length") / 4
    pace = page.evaluate(
        "(stops) => { const { paceOf } = inflightModules['watch/happens.js']; return"
        " Array.from({ length: inflight.run.length - 1 }, (_, i) => paceOf(inflight.run, i)); }",
        stops,
    )
    for i, one in enumerate(pace):
        assert one["goal"] == next((s for s in stops if s > i), len(pace) + 1)
        assert one["rate"] < 2 if i in stops else one["rate"] >= 2
    page.evaluate(
        "window.seen = []; inflight.views.push({ draw: ({ index }) => seen.push([index,"
        " document.querySelector('.happens')?.dataset.view,"
        " document.querySelector('.happens-line')?.textContent]) });"
        " inflight.transport.toggle(true)"
    )
    settled(page, "!inflight.transport.playing")
    said = {index: words for index, *words in page.evaluate("seen")}
    assert set(stops) <= set(said)
    for index, words in said.items():
        event = six.events[index]
        if event.admitted:
            letters = page.evaluate(
                "(all) => all.map((id) => inflight.run.request(id).letter)",
                [one.request for one in event.admitted],
            )
            who = ", ".join(letters)
            assert words == ["lanes", f"{who} take{'s' * (len(event.admitted) == 1)} a lane"]
        elif event.finished:
            assert words[0] == "text" and words[1].endswith("done")
        elif index not in stops:
            assert words == [None, None]
    page.keyboard.press("Home")  # a step that was gone to by hand needs no line
    settled(page, "inflight.drawn === 0 && !document.querySelector('.happens')")


def test_the_door_says_who_waits_and_for_how_long(visit, six):
    page = visit(replay=replay(six), detail="simple")
    arrived = {a.request: a.t for e in six.events for a in e.arrived}
    for index in (3, 20, 60):
        seek(page, index)
        event = six.events[index]
        waiting = page.evaluate("inflight.frame.waiting.map((w) => w.request.id)")
        assert len(waiting) == event.waiting.count
        shown = page.locator(".waiter:not([hidden])").all_inner_texts()
        assert [re.sub(r"^\w+\s*", "", text) for text in shown] == [
            f"waits {1000 * (event.t_end - arrived[r]):.0f} ms" for r in waiting
        ]
        expect(page.locator(".door-more")).to_have_text(
            "" if waiting else "Nobody waits at the door."
        )


def test_a_question_mark_explains_its_view_with_the_view_itself(visit, six):
    page = visit(
        replay=replay(six),
        options={
            "replay": replay(six),
            "tabs": [{"name": "watch", "title": "Watch"}, {"name": "learn", "title": "Learn"}],
        },
        detail="simple",
    )
    for name in page.evaluate(
        "[...document.querySelectorAll('.ask')].filter((b) => b.getClientRects().length).map((b) =>"
        " b.dataset.ask)"
    ):
        page.locator(f"[data-ask={name}]").focus()
        page.keyboard.press("Enter")
        card = page.locator(".ask-card:popover-open")
        expect(card).to_be_visible()
        settled(page)
        box = card.bounding_box()
        assert (
            box["x"] >= 0
            and box["y"] >= 0
            and box["x"] + box["width"] <= 1440
            and box["y"] + box["height"] <= 900
        )
        assert page.evaluate(
            "[...document.querySelectorAll('.ask-card canvas')].every((c) => "
            "c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((x) => x))"
        ), name
        assert card.locator(".ask-picture").inner_text() or card.locator("canvas").count()
        assert serious(page) == []
        page.keyboard.press("Escape")
        expect(card).to_have_count(0)
        assert page.evaluate("document.activeElement.dataset.ask") == name
    assert page.evaluate("inflight.speech.missingKeys.size") == 0
    page.evaluate(
        "inflight.put({run: inflight.run}); document.querySelector('[data-ask=waiting]').click()"
    )  # in the frame before the run is drawn
    expect(card).to_be_visible()


def test_every_question_mark_leads_to_a_stop_of_learn():
    lessons = tomllib.loads((FOLDER / "lessons.toml").read_text(encoding="utf-8"))
    told = (PLAYER / "watch" / "explained.js").read_text(encoding="utf-8")
    places = re.findall(r'lesson: "([\w-]+)",\s+stop: "([\w-]+)"', told)
    asked = set(
        re.findall(
            r'data-ask="(\w+)"', (PLAYER / "watch" / "player.html").read_text(encoding="utf-8")
        )
    )
    assert set(re.findall(r"^  (\w+): \{$", told, re.MULTILINE)) == asked and len(places) == len(
        asked
    )
    assert [place for place in places if place[1] not in lessons[place[0]]] == []


@pytest.mark.parametrize("detail", ["simple", "full"])
def test_a_low_projector_shows_the_mask(visit, six, detail):
    page = visit(replay=replay(six), size=(1280, 720), detail=detail, hash="present=1&step=6")
    assert (
        page.evaluate(
            "inflight.presenter && document.querySelector('.panel.mask canvas').clientHeight"
        )
        >= 300
    )
    page.evaluate("inflight.toast('Space plays, R shows the reasons.', 60000)")
    over = (
        "(() => { const t = document.querySelector('.toast').getBoundingClientRect(); return"
        " [...document.querySelectorAll('.panel.lanes, .panel.mask, .say .sentence')].filter((e) =>"
        " { const r = e.getBoundingClientRect(); return r.left < t.right && r.right > t.left &&"
        " r.top < t.bottom && r.bottom > t.top; }).map((e) => e.className); })()"
    )
    assert page.evaluate(over) == []


def test_on_a_phone_the_mask_has_its_words_and_what_is_tapped_stays_in_sight(visit, six):
    page = visit(replay=replay(six), size="phone", hash="step=6")
    assert page.evaluate(SEEN, [".mask .title", ".mask p.legend"]) == [
        ".mask .title",
        ".mask p.legend",
    ]
    box = page.locator(".panel.mask canvas").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.4)
    settled(page, "inflight.pinned")
    card, tooltip = (
        page.locator(".request-card").bounding_box(),
        page.locator(".tooltip").first.bounding_box(),
    )
    assert card["y"] > box["y"] + box["height"] * 0.5
    assert tooltip["y"] + tooltip["height"] <= card["y"]
    page.get_by_role("button", name="Numbers").click()
    settled(
        page,
        "inflight.tooltip.el.hidden && document.querySelector('.request-card"
        " dl').getClientRects().length",
    )
    page.evaluate("inflight.toast('No later event in this run.', 60000)")
    hidden = (
        "document.querySelector('.toast').getBoundingClientRect().bottom <="
        " document.querySelector('.panel.row').getBoundingClientRect().top"
    )
    assert page.evaluate(hidden)
