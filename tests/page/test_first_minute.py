"""The opening, as whoever comes for the first time sees it: it plays once, is ended by any key or
tap, and says what the two recorded runs say.
"""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from core.config import ASSETS
from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES, recorded_runs
from visualizer.documents.comparison import COMPARISON, RECORDED, load
from visualizer.documents.opening import AFTER, BEFORE, opening
from visualizer.documents.replay import replay
from visualizer.page.tabs import story_tab
from worlds.browser import settled


@pytest.fixture(scope="module")
def world() -> dict:
    """A page with one recorded run, and the opening beside it, for who has never been here."""
    entry, path = next(iter(recorded_runs(TRACES)))
    files = {
        "run.json": json.dumps(replay(Trace.load(path))),
        "opening.json": json.dumps(opening()),
    }
    options = {"catalogue": [entry | {"url": "run.json"}], "opening": {"url": "opening.json"}}
    return {"options": options, "files": files, "detail": None}


@pytest.fixture(scope="module")
def runs() -> dict[str, Trace]:
    found = load(RECORDED / COMPARISON).comparison.runs
    return {name: found[name].trace for name in (BEFORE, AFTER)}


PLAYS = "inflight.opening.on && inflight.opening.at > 0.05"
ON_THE_HOOD = (
    f"!inflight.opening.on && inflight.entry.comparison === '{COMPARISON}' && inflight.entry.racer"
    f" === '{AFTER}'"
)
PIXELS = "() => inflight.opening.surface.canvas.toDataURL()"
SAID = (
    "() => inflight.opening.plot.said.map(([, say]) =>"
    " inflightModules['parts/chips.js'].plain(inflight.opening._shown, say()))"
)


@pytest.mark.smoke
def test_it_plays_once_and_any_key_opens_the_hood(visit, world):
    page = visit(**world, opening=True)
    page.wait_for_function(f"() => {PLAYS} && inflight.opening.playing")
    for key in ("Tab", "Shift", "Control"):
        page.keyboard.press(key)
    assert page.evaluate("inflight.opening.on")
    assert page.evaluate("document.querySelector('.stage > .transport').inert")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("x")
    settled(page, ON_THE_HOOD)
    assert page.evaluate("inflight.index === inflight.opening.plot.hood")
    # a newcomer is one step away
    assert page.evaluate("inflight.run.events[inflight.index + 1].admitted.length > 0")
    page.wait_for_function("() => document.querySelector('.opening').hidden")
    assert page.locator(".intro-opening").is_visible() and not page.evaluate(
        "document.querySelector('.transport').inert"
    )
    page.evaluate("history.replaceState(null, '', '#'), location.reload()")
    page.wait_for_function(
        "() => window.inflight && inflight.drawn >= 0 && inflight.entry.url === 'run.json'"
    )
    assert not page.evaluate("inflight.opening.on")


def test_space_pauses_what_began_by_itself(visit, world):
    page = visit(**world, opening=True)
    page.wait_for_function(f"() => {PLAYS} && inflight.opening.playing")
    stands = "[inflight.opening.on, inflight.opening.playing]"
    for playing in (False, True):
        page.keyboard.press("Space")
        assert page.evaluate(stands) == [True, playing]
    page.keyboard.press("Escape")
    assert page.evaluate(stands) == [False, False]


def test_a_tap_opens_the_hood_and_a_phone_scrolls_nowhere(visit, world):
    page = visit(**world, opening=True, size="phone")
    page.wait_for_function(f"() => {PLAYS}")
    assert page.evaluate(
        "document.documentElement.scrollWidth <= 390 &&"
        " document.querySelector('.opening').scrollWidth <= 390"
    )
    sizes = page.locator(".opening-foot button:visible").evaluate_all(
        "(all) => all.map((b) => b.getBoundingClientRect().height)"
    )
    assert min(sizes) >= 44
    page.touchscreen.tap(200, 400)
    settled(page, ON_THE_HOOD)


def test_on_a_phone_who_waits_is_told_from_who_is_done(visit, world):
    """Beside each other, under “old way” and “now”: a time is an answer's, waiting is a word."""
    page = visit(**world, opening=True, size="phone", hash="opening=13.9")
    told = page.evaluate(
        """() => { const ink = CanvasRenderingContext2D.prototype, { fillText } = ink, { opening } = inflight, told = [];
        ink.fillText = function (text, ...at) { told.push(text); return fillText.call(this, text, ...at); };
        opening.draw(); ink.fillText = fillText;
        const lives = ["slow", "fast"].flatMap(name => opening.plot[name].lives), now = opening.plot.moment(13.9);
        return { waits: told.filter(text => text === "waits").length, waiting: lives.filter(life => life.from > 0 && now < life.enters).length }; }"""  # noqa: E501
    )
    assert told["waits"] == told["waiting"] > 0


def test_asked_for_it_obeys_the_hand_and_leaves_what_was_there(visit, world):
    page = visit(**world)
    run = page.evaluate("inflight.entry.name")
    page.click(".more-button")
    page.click("[role=menuitem] >> text=Play the opening")
    page.wait_for_function(f"() => {PLAYS}")
    assert page.evaluate("document.activeElement.matches('.opening-play')")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Space")
    assert page.evaluate("[inflight.opening.on, inflight.opening.playing]") == [True, False]
    expect(page.locator(".opening-hint")).to_have_text("Space plays · ← → a sentence")
    page.keyboard.press("Home")
    said = [page.inner_text(".opening-sentence")]
    for _ in range(8):
        page.keyboard.press("ArrowRight")
        said.append(page.inner_text(".opening-sentence"))
    assert len(set(said)) == 8 and page.evaluate("inflight.opening.at") == 20
    page.keyboard.press("ArrowLeft")
    assert page.inner_text(".opening-sentence") == said[-2]
    page.keyboard.press("x")  # nothing: it did not begin by itself
    page.keyboard.press("Escape")
    assert page.evaluate("[inflight.opening.on, inflight.entry.name]") == [False, run]


@pytest.mark.parametrize("hash", ["step=3", "part=watch"])
def test_a_link_to_something_opens_no_opening(visit, world, hash):
    page = visit(**world, opening=True, hash=hash)
    assert page.evaluate("[inflight.opening.on, inflight.opening.doc]") == [False, None]


@pytest.mark.smoke
def test_what_it_says_is_what_the_runs_say(visit, world, runs):
    """Its moments and times are the traces', its picture is a function of the second, and a link
    names one; in German nothing is left English.
    """
    page = visit(**world, opening=True, hash="opening=13.9")
    assert page.evaluate("[inflight.opening.at, inflight.opening.playing]") == [13.9, False]
    # “A is done” is said when it is, by both runs
    moments = page.evaluate(
        "(([plot, at]) => [at(2) - plot.slow.lives[plot.first].done,"
        " at(5) - plot.fast.lives[plot.first].done])([inflight.opening.plot, (n) =>"
        " inflight.opening.plot.moment(inflight.opening.plot.said[n][0])])"
    )
    assert min(moments) >= 0
    picture = page.evaluate(PIXELS)
    for trace, name in ((runs[BEFORE], "slow"), (runs[AFTER], "fast")):
        start = trace.events[0].t_start
        told = page.evaluate(
            "(name) => inflight.opening.plot[name].lives.map(l => [l.request.id, l.enters,"
            " l.done])",
            name,
        )
        enters = {a.request: e.t_start - start for e in trace.events for a in e.admitted}
        done = {f.request: e.t_end - start for e in trace.events for f in e.finished}
        assert {r: (at, over) for r, at, over in told} == {
            r: (pytest.approx(enters[r]), pytest.approx(done[r])) for r in done
        }
        for moment in (0.0, 0.03, 0.2, 0.9, 9.0):
            written = page.evaluate(
                "([name, t]) => inflight.opening.plot[name].lives.map((_, r) =>"
                " inflight.opening.plot[name].written(r, t))",
                [name, moment],
            )
            over = [e for e in trace.events if e.t_end - start <= moment + 1e-9]
            assert written == [
                sum(s.request == r for e in over for s in e.sampled) for r, *_ in told
            ]
    seconds = [
        runs[name].events[-1].t_end - runs[name].events[0].t_start for name in (AFTER, BEFORE)
    ]
    page.evaluate("inflight.opening.seek(20)")
    assert page.inner_text(
        ".opening-sentence"
    ) == "The same six requests: done in {:.1f}\u00a0s instead of {:.1f}\u00a0s.".format(*seconds)
    page.evaluate("inflight.opening.seek(13.9)")
    assert page.evaluate(PIXELS) == picture
    assert max(len(sentence.split()) for sentence in page.evaluate(SAID)) <= 12
    words = json.loads((ASSETS / "words" / "de.json").read_text(encoding="utf-8"))
    page.evaluate(
        "(words) => inflightModules['parts/speech.js'].speak({ name: 'de', words })", words
    )
    assert max(len(sentence.split()) for sentence in page.evaluate(SAID)) <= 12
    unsaid = page.evaluate(
        """() => { const { opening, speech: { missingKeys } } = inflight; missingKeys.clear();
        for (const at of [1, 4.2, 6.9, 9.9, 13.9, 20]) opening.seek(at);
        opening.plot.pictures.map(([, say]) => say()); return [...missingKeys]; }"""
    )
    assert unsaid == []
    assert "statt" in page.inner_text(".opening-sentence")


def test_reduced_motion_gets_four_pictures_that_stay(visit, world):
    page = visit(**world, opening=True, reduced_motion="reduce")
    settled(page, "inflight.opening.on && inflight.opening._stills.every(s => s.visible)")
    assert (
        page.locator(".opening figure").count() == 4
        and not page.locator(".opening-play").is_visible()
    )
    ink = (
        "() => inflight.opening._stills.map(({ canvas: c, g }) => new Set(g.getImageData(0, 0,"
        " c.width, c.height).data).size)"
    )
    assert min(page.evaluate(ink)) > 20
    assert len(set(page.locator(".opening figcaption").all_inner_texts())) == 4
    flights = page.evaluate(
        "() => { const { plot } = inflight.opening, [at] = plot.pictures[2];"
        " return [plot.slow, plot.fast].flatMap((course) => plot.entries(course, true))"
        ".map((entry) => at - entry); }"
    )
    assert not [since for since in flights if 0 <= since < 0.28]  # nobody hangs in the air
    page.keyboard.press("ArrowDown")
    page.mouse.click(600, 400)
    assert page.evaluate("[inflight.opening.on, inflight.opening.playing]") == [True, False]
    page.keyboard.press("Enter")
    settled(page, ON_THE_HOOD)


def test_without_its_runs_watch_is_there_as_ever(visit, world):
    page = visit(**{**world, "files": {**world["files"], "opening.json": "{}"}}, opening=True)
    assert page.evaluate("[inflight.opening.on, inflight.entry.url]") == [False, "run.json"]
    assert page.locator(".opening").is_hidden() and page.locator(".transport .play").is_enabled()


def test_the_server_has_it(visit, page_url):
    page = visit(url=page_url, opening=True, detail=None)
    page.wait_for_function(f"() => {PLAYS}")
    page.click(".opening-hood")
    settled(page, ON_THE_HOOD)


@pytest.mark.slow
def test_its_run_on_watch_speaks_the_language_that_the_menu_chooses(visit, page_url):
    page = visit(url=page_url, opening=True, detail="full")
    page.wait_for_function(f"() => {PLAYS}")
    page.click(".opening-hood")
    settled(page, ON_THE_HOOD)
    page.wait_for_function("() => document.querySelector('.opening').hidden")
    said = []
    for language, name in (("de", "/German|Deutsch/"), ("en", "Englisch")):
        page.click(".more-button")
        page.click(f"[role=menuitem] >> text={name}")
        settled(page, "(language) => inflight.speech.name === language", language)
        said.append([page.inner_text("#watch .sentence"), page.inner_text("#watch .totals")])
    (german, numbers), (english, counts) = said
    assert "schreib" in german and "each" in english and "Ausgabe" in numbers and "Output" in counts
    assert page.evaluate("inflight.index === inflight.opening.plot.hood")


@pytest.mark.parametrize("size", ["desk", "phone"])
def test_three_doors_once_all_is_told(visit, page_url, size):
    page = visit(url=page_url, size=size, hash="opening=5&lang=de", opening=True, detail=None)
    page.wait_for_function("() => inflight.opening.plot")
    doors = page.locator(".opening-doors > :visible")
    hood = "Unter die Haube schauen"
    settled(page, f"document.querySelector('.opening-hood').textContent === '{hood}'")
    assert doors.count() == 1
    page.evaluate("inflight.opening.seek(Infinity)")
    expect(doors).to_have_text(
        [f"Geschichte lesen ({story_tab()['minutes']['de']} min)", "Zur Lektion 1", "Erkunden"]
    )
    foot = page.locator(".opening-foot").bounding_box()
    for door in doors.all():
        box = door.bounding_box()
        assert box["height"] >= 44 and box["x"] + box["width"] <= foot["x"] + foot["width"]
    assert doors.first.get_attribute("href") == "story?lang=de"
    doors.nth(1).click()
    settled(page, "document.documentElement.dataset.lesson === 'one-token' && inflight.run")
    assert not page.evaluate("inflight.opening.on")


@pytest.mark.parametrize("first", [True, False])
def test_what_the_first_picture_is_made_of_is_on_its_way_before_the_player_is(
    fresh, page_url, first
):
    """On a first visit, when the opening plays, and later. Each file is fetched once."""
    page = fresh(opening=first)
    page.goto(page_url)
    page.wait_for_function("() => window.inflight && inflight.drawn >= 0")
    assert page.evaluate("inflight.opening.on") == first
    begun = page.evaluate(
        "performance.getEntriesByType('resource').map((e) => [new URL(e.name).pathname,"
        " e.initiatorType])"
    )
    shown = page.evaluate(
        "new URL((inflight.opening.on ? inflight.opening.offer : inflight.entry).url,"
        " location).pathname"
    )
    assert [by for path, by in begun if path == shown] == ["link"]
