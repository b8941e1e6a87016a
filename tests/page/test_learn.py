"""The Learn tab in a real browser: every lesson to its end by keyboard alone, questions, painting,
the address, and the player given back.
"""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect

from visualizer.lessons.document import recorded
from visualizer.lessons.lessons import LESSONS
from visualizer.page.bundle import page_html
from visualizer.page.one_file import lesson_html
from worlds.axe import serious
from worlds.browser import chromium, settled, visit  # noqa: F401
from worlds.learn_tab import drawn, learn, world  # noqa: F401


def answer(page: Page, ask: dict) -> None:
    """By keyboard: a wrong answer first, then the right one; a mask cell by cell."""
    if ask["kind"] == "choose":
        right = next(i for i, o in enumerate(ask["options"]) if o["right"])
        page.keyboard.press(str((right + 1) % len(ask["options"]) + 1))
        expect(page.locator(".answer.wrong")).to_have_count(1)
        page.keyboard.press(str(right + 1))
    else:
        page.focus(".paint .cell[tabindex='0']")
        for q, row in enumerate(ask["allowed"]):
            for k, cell in enumerate(row if q % 2 == 0 else reversed(row)):
                if cell == "1":
                    page.keyboard.press(" ")
                if k < len(row) - 1:
                    page.keyboard.press("ArrowRight" if q % 2 == 0 else "ArrowLeft")
            page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
    expect(page.locator(".answer.right")).to_have_count(1)


def walk(page: Page, lessons: list[dict]) -> None:
    """Every stop of these lessons, from the list of lessons and back to it."""
    for lesson in lessons:
        page.focus(f".lesson:nth-child({lesson['number']}) .start-button")
        page.keyboard.press("Enter")
        for stop in lesson["stops"]:
            drawn(page, lesson["name"], stop["name"])
            assert page.evaluate("[inflight.entry.name, inflight.frame.event.step]") == [
                stop["run"],
                stop["step"],
            ]
            assert page.evaluate("document.documentElement.dataset.views").split() == stop["views"]
            if stop["ask"]:
                answer(page, stop["ask"])
                place = stop["then"] or stop
                settled(
                    page,
                    "([run, step]) => inflight.entry.name === run && inflight.frame?.event.step ==="
                    " step",
                    [place["run"], place["step"]],
                )
            page.keyboard.press("n")
        page.wait_for_selector(".home:not([hidden])")
        expect(page.locator(f".lesson.done:nth-child({lesson['number']})")).to_have_count(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "names"),
    [("desk", None), ("phone", ("static-batching", "ragged-batching"))],
    ids=["desk", "phone"],
)
def test_every_lesson_by_keyboard_alone(learn, world, size, names):  # noqa: F811
    """On a desktop; of a phone, which has the same stops, two lessons."""
    lessons = json.loads(world[2]["learn/en.json"])["lessons"]
    walk(learn(size=size), [one for one in lessons if names is None or one["name"] in names])


def test_an_address_opens_a_stop_in_its_language(learn):  # noqa: F811
    page = learn("lesson=static-batching&stop=barrier&lang=de&large=1")
    drawn(page, "static-batching", "barrier")
    assert page.evaluate("document.documentElement.hasAttribute('data-large')")
    assert page.get_attribute(".stop-text", "lang") == "de"
    page.keyboard.press("b")
    drawn(page, "static-batching", "first-done")
    settled(page, "location.hash.includes('stop=first-done') && location.hash.includes('lang=de')")


def test_where_the_visitor_goes_is_not_overwritten_by_what_ends_at_that_moment(learn):  # noqa: F811
    page = learn("lesson=static-batching&stop=dropped")
    drawn(page, "static-batching", "dropped")
    page.evaluate(
        "() => { location.hash = 'part=learn&lesson=paged-kv'; inflightLearn._remember(); }"
    )
    settled(page, "inflightLearn.drawn.startsWith('paged-kv/')")
    assert "lesson=paged-kv&stop=" in page.url


def test_the_first_four_lessons_are_in_simple_and_do_not_show_what_they_ask(learn, world):  # noqa: F811
    page = learn("lesson=dynamic-scheduling&stop=refill")
    drawn(page, "dynamic-scheduling", "refill")
    covered = (
        "() => { const strip = document.querySelector('#watch .strip'), cover ="
        " getComputedStyle(strip, '::after'); return cover.content !== 'none' &&"
        " parseFloat(cover.left) <= inflight.strip.now + inflight.strip.scale.per + 2 &&"
        " parseFloat(cover.right) === 0; }"
    )
    assert page.evaluate(covered)
    expect(page.locator("#watch .sentence")).to_be_hidden()
    page.locator(".option", has_text="D").click()
    settled(page, f"inflight.frame.event.step === 4 && !({covered})()")
    expect(page.locator("#watch .sentence")).to_be_visible()
    for lesson in json.loads(world[2]["learn/en.json"])["lessons"]:
        page.evaluate("(name) => inflightLearn.open(inflightLearn._lesson(name))", lesson["name"])
        drawn(page, lesson["name"], lesson["stops"][0]["name"])
        wanted = "simple" if lesson["number"] <= 4 else "full"
        assert page.locator("#watch .inflight").get_attribute("data-detail") == wanted
        hidden = page.locator("#watch .panel.lit:not(:visible)").count()
        assert not hidden, lesson["name"]
        if lesson["name"] == "static-batching":  # what its second stop asks
            expect(page.locator("#watch .sentence")).to_be_hidden()
            expect(page.locator("#watch .say .live")).to_have_text(re.compile("for nobody"))
            assert "nobody" not in page.locator("#watch .say").aria_snapshot()  # nor told


@pytest.mark.slow
def test_under_german_the_player_speaks_german_on_watch_as_well_and_english_again(learn, world):  # noqa: F811
    page = learn("lesson=static-batching&stop=dropped&lang=de")
    drawn(page, "static-batching", "dropped")
    assert (
        page.evaluate("inflight.sentence()")
        == "B schreibt ein weiteres Token; D wartet: Niemand kommt dazu, bevor alle fertig sind."
    )
    assert (
        "Durchgang" in page.inner_text("#watch .panel.row h3")
        and page.text_content(".why-button span") == "2 Gründe"
    )
    for lesson in json.loads(world[2]["learn/de.json"])["lessons"]:
        if lesson["name"] in ("static-batching", "long-prompt", "paged-kv"):
            for stop in lesson["stops"]:
                page.evaluate(
                    "(at) => { location.hash ="
                    " `part=learn&lesson=${at[0]}&stop=${at[1]}&lang=de`; }",
                    [lesson["name"], stop["name"]],
                )
                drawn(page, lesson["name"], stop["name"])
    assert page.evaluate("[...inflight.speech.missingKeys]") == []
    page.evaluate("document.querySelector('.inflight-learn .tabs button').click()")
    settled(page, "document.documentElement.dataset.part === 'watch'")
    settled(page, "inflight.sentence().includes('schreib')")
    assert (
        "Durchgang" in page.inner_text("#watch .panel.row h3")
        and page.inner_text("#watch .tabs button >> nth=0") == "Ansehen"
    )
    page.evaluate("document.querySelector('#watch .tabs button:last-child').click()")
    settled(page, "document.documentElement.dataset.part === 'learn'")
    page.select_option(".language", "en")
    page.evaluate("location.hash = 'part=learn&lesson=static-batching&stop=dropped'")
    drawn(page, "static-batching", "dropped")
    settled(page, "inflight.sentence().startsWith('B writes one more token')")
    assert "One pass" in page.inner_text("#watch .panel.row h3")


@pytest.mark.slow
def test_each_question_opens_at_its_step_from_the_list_of_runs_and_from_home(learn, world):  # noqa: F811
    stops = json.loads(world[2]["learn/en.json"])["questions"]["stops"]
    page = learn()
    page.evaluate("document.querySelector('.inflight-learn .tabs button').click()")
    page.click(".runs-button")
    links = page.locator(".runs-card .asked a")
    expect(links).to_have_text([stop["title"] for stop in stops])
    links.last.click()
    drawn(page, "questions", stops[-1]["name"])
    for stop in stops:
        page.evaluate(
            "(name) => { location.hash = `part=learn&lesson=questions&stop=${name}`; }",
            stop["name"],
        )
        drawn(page, "questions", stop["name"])
        assert page.evaluate("[inflight.entry.name, inflight.frame.event.step]") == [
            stop["run"],
            stop["step"],
        ]
    page.evaluate("inflightLearn.close()")
    page.click("#asked-temperature-zero + dd .link")
    drawn(page, "questions", "temperature-zero")
    assert "of 176" in page.inner_text(".names")
    settled(page, "location.hash.includes('lesson=questions&stop=temperature-zero')")


def test_the_player_is_given_back_as_it_was(learn, world):  # noqa: F811
    page = learn()
    page.evaluate(
        "location.hash = ''; document.querySelector('.inflight-learn .tabs button').click()"
    )
    settled(page, "document.documentElement.dataset.part === 'watch'")
    page.evaluate("inflight.open(inflight.options.catalogue[1], {step: 2})")
    settled(page, "inflight.entry === inflight.options.catalogue[1]")
    page.evaluate("document.querySelector('#watch .tabs button:nth-child(2)').click()")
    page.click(".lesson:nth-child(1) .start-button")
    settled(page, "inflightLearn.drawn")
    page.evaluate("document.querySelector('.inflight-learn .tabs button').click()")
    settled(page, "document.documentElement.dataset.part === 'watch'")
    assert page.evaluate(
        "[inflight.entry === inflight.options.catalogue[1], inflight.frame.event.step,"
        " document.documentElement.dataset.views]"
    ) == [True, 2, None]


def test_back_and_forward_lead_through_lessons_and_tabs_and_a_double_click_passes_no_stop_unseen(
    learn,  # noqa: F811
):
    page = learn()
    page.click(".lesson:nth-child(3) .start-button")
    count, home = page.locator(".stop-count"), page.locator(".inflight-learn .home")
    expect(count).to_have_text("1 of 9")
    page.dblclick(".next-button")
    expect(page).to_have_url(re.compile("stop=padding"))
    expect(count).to_have_text("2 of 9")
    page.go_back()
    expect(home).to_be_visible()
    page.go_forward()
    expect(count).to_have_text("2 of 9")
    page.click(".inflight-learn .tabs button:first-child")
    expect(page.locator("html")).to_have_attribute("data-part", "watch")
    page.go_back()
    expect(page.locator("html")).to_have_attribute("data-part", "learn")
    expect(count).to_have_text("2 of 9")
    expect(page).to_have_url(re.compile("lesson=static-batching&stop=padding"))


def test_a_wrong_cell_gets_its_reason(learn):  # noqa: F811
    page = learn("lesson=ragged-batching&stop=paint")
    drawn(page, "ragged-batching", "paint")
    page.locator(".paint .cell").first.focus()
    page.click(".paint .cell[data-q='0'][data-k='8']")
    page.click(".check-button")
    assert (
        "belongs to another request" in page.inner_text(".answer")
        and page.locator(".cell.wrong").count() > 1
    )
    page.click(".show-button")
    assert page.locator(".cell.wrong").count() == 0
    settled(page, "inflight.frame?.event.step === 2")


def test_a_term_says_what_it_means_and_what_vllm_calls_it(learn):  # noqa: F811
    page = learn("lesson=one-pass&stop=count")
    drawn(page, "one-pass", "count")
    page.focus(".term")
    expect(page.locator(".term-hint")).to_contain_text("max_num_batched_tokens")
    page.keyboard.press("Escape")
    expect(page.locator(".term-hint")).to_be_hidden()
    page.hover(".term")
    expect(page.locator(".term-hint")).to_be_visible()
    page.mouse.move(1100, 500)  # at once to the player
    expect(page.locator(".term-hint")).to_be_hidden()


@pytest.mark.parametrize("size", ["desk", "phone"])
def test_axe_finds_nothing_serious(learn, size):  # noqa: F811
    page = learn(size=size)
    for hash in ("part=learn", "part=learn&lesson=ragged-batching&stop=paint"):
        page.evaluate("(hash) => { location.hash = hash; }", hash)
        settled(
            page, "(open) => open ? inflightLearn.drawn : !inflightLearn.lesson", "lesson" in hash
        )
        assert serious(page) == []


@pytest.mark.smoke
def test_there_are_ten_lessons():
    assert len(LESSONS) == 10


def test_a_lesson_in_one_file_asks_for_nothing(visit):  # noqa: F811
    page = visit(files={"": lesson_html("static-batching", recorded())}, drawn=False)
    settled(page, "window.inflightLearn && inflightLearn.drawn === 'static-batching/wave'")
    page.keyboard.press("n")
    drawn(page, "static-batching", "padding")
    assert page.evaluate("inflight.frame.event.step") == 0 and page.is_hidden(".lessons-button")


def test_a_word_of_the_glossary_explains_itself_anywhere_on_the_page(visit, world):  # noqa: F811
    options, parts, files = world
    page = visit(files={**files, "": page_html(options, parts)})
    page.hover(".panel.queue h3 .title:has-text('Token budget')")
    page.wait_for_selector(".term-hint:not([hidden])")
    assert "max_num_batched_tokens" in page.inner_text(".term-hint")
    page.mouse.move(700, 400)
    page.wait_for_selector(".term-hint", state="hidden")
    page.click(".gauge-lanes .gauge-name", position={"x": 10, "y": 8})  # as a finger does
    expect(page.locator(".term-hint")).to_contain_text("max_num_seqs")


@pytest.mark.parametrize(
    "link", ["run=verses-static&step=7", "run=kv-pressure&step=20", "run=one-request&step=3"]
)
def test_a_link_to_a_run_leaves_the_lesson_for_that_run_and_back_returns(learn, link):  # noqa: F811
    """To the run that the lesson shows, to one that nobody has opened, and to the one that Watch
    had before.
    """
    page = learn()
    page.evaluate("location.hash = 'run=one-request&step=2'")
    settled(
        page,
        "document.documentElement.dataset.part === 'watch' && inflight.entry?.name ==="
        " 'one-request' && inflight.frame.event.step === 2",
    )
    page.evaluate("location.hash = 'part=learn&lesson=static-batching&stop=padding'")
    drawn(page, "static-batching", "padding")
    page.evaluate("(link) => { location.hash = link; }", link)
    run, step = (part.split("=")[1] for part in link.split("&"))
    settled(
        page,
        "([run, step]) => inflight.entry.name === run && inflight.frame.event.step === step &&"
        " inflight.drawn === inflight.index",
        [run, int(step)],
    )
    expect(page.locator("html")).to_have_attribute("data-part", "watch")
    expect(page).to_have_url(re.compile(f"#{link}"))
    assert page.evaluate(
        "[document.documentElement.dataset.views, document.documentElement.dataset.lesson]"
    ) == [None, None]
    page.go_back()
    settled(
        page,
        "document.documentElement.dataset.part === 'learn' && inflight.entry.name ==="
        " 'brief-static' && inflight.frame.event.step === 0",
    )
    expect(page.locator(".stop-count")).to_have_text("2 of 9")
    page.evaluate("location.hash = 'part=learn&lesson=paged-kv&stop=full'")
    drawn(page, "paged-kv", "full")


# What is cut or too small to be read from the last row: the sentence, the panels that the stop is
# about, the type in them.
_UNREADABLE = """() => {
    const box = (s) => document.querySelector('#watch ' + s).getBoundingClientRect(), found = [];
    const say = box('.say'), said = box('.sentence');
    if (said.height && (said.top < say.top - 1 || said.bottom > say.bottom + 1 || said.right > innerWidth)) found.push('the sentence is cut');
    for (const view of document.documentElement.dataset.views.split(' ')) {
        const { width, height, bottom } = box('.panel.' + view);
        if (width < 250 || height < 100 || bottom > innerHeight) found.push(`${view} has ${width} by ${height}`);
    }
    const others = [...document.querySelectorAll('#watch .panel')].filter((p) => p.getClientRects().length && !document.documentElement.dataset.views.split(' ').includes(p.dataset.view));
    if (others.length) found.push('panels that it is not about');
    if (inflight.lanes.surface.visible && inflight.lanes.font < 20) found.push('the lanes have small labels');
    for (const part of document.querySelectorAll('.stop-scroll, #watch .panel.lit .texts'))
        if (part.scrollHeight > part.clientHeight + 2) found.push(`${part.className} scrolls: ${part.scrollHeight} in ${part.clientHeight}`);
    return found;
}"""  # noqa: E501


def test_large_type_shows_the_sentence_whole_and_only_what_the_stop_is_about(learn):  # noqa: F811
    page = learn("lesson=static-batching&stop=sum&large=1", size=(1280, 720))
    drawn(page, "static-batching", "sum")
    settled(page)
    assert page.inner_text("#watch .sentence").endswith("D is done.")
    assert page.evaluate(_UNREADABLE) == []
    page.keyboard.press("p")
    settled(
        page,
        "inflight.lanes.font < 20 && document.querySelector('#watch"
        " .panel.mask').getClientRects().length === 1",
    )
    faded = page.evaluate("+getComputedStyle(document.querySelector('#watch .panel.mask')).opacity")
    assert 0.6 < faded < 1  # it recedes, and its words can be read


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1280, 720), (1024, 768)])
@pytest.mark.parametrize("language", ["en", "de"])
def test_no_stop_is_cut_in_large_type_on_a_projector(learn, world, language, size):  # noqa: F811
    page = learn(f"lesson=one-token&stop=prompt&large=1&lang={language}", size=size)
    unreadable = {}
    for lesson in json.loads(world[2][f"learn/{language}.json"])["lessons"]:
        for stop in lesson["stops"]:
            place = f"lesson={lesson['name']}&stop={stop['name']}&large=1&lang={language}"
            page.evaluate("(place) => { location.hash = `part=learn&${place}`; }", place)
            drawn(page, lesson["name"], stop["name"])
            settled(page)
            if found := page.evaluate(_UNREADABLE):
                unreadable[place] = found
    assert not unreadable


def test_on_a_phone_a_wrong_answer_gets_its_reason_in_sight_and_texts_speak_of_fingers(
    learn,  # noqa: F811
):
    page = learn("lesson=static-batching&stop=padding", size="phone")
    drawn(page, "static-batching", "padding")
    expect(page.locator("#watch .count")).to_have_text("0 / 40")  # answers name steps
    wrong = page.locator(".option", has_text="68")
    wrong.tap()
    expect(page.locator(".option.wrong + .answer.wrong")).to_be_visible()
    settled(
        page,
        """() => { const { top, bottom } = document.querySelector('.answer').getBoundingClientRect(), card = document.querySelector('.stop-scroll').getBoundingClientRect();
            return top >= card.top && bottom <= card.bottom + 1; }""",  # noqa: E501
    )
    expect(page.locator(".option kbd").first).to_be_hidden()
    page.evaluate("location.hash = 'part=learn&lesson=static-batching&stop=wave'")
    drawn(page, "static-batching", "wave")
    expect(page.locator(".stop-text")).to_contain_text("Tap the arrow to the right of Play")
    box = page.locator(".stop-scroll").bounding_box()
    assert box
    x, y = box["x"] + box["width"] * 0.8, box["y"] + box["height"] / 2
    touch = page.context.new_cdp_session(page)
    touch.send(
        "Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]}
    )
    for n in range(1, 9):
        touch.send(
            "Input.dispatchTouchEvent",
            {"type": "touchMove", "touchPoints": [{"x": x - 24 * n, "y": y}]},
        )
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    drawn(page, "static-batching", "padding")


def test_a_lesson_is_done_when_its_questions_are_answered_and_not_by_paging_through(
    learn,  # noqa: F811
):
    page = learn()
    expect(page.locator(".lesson:nth-child(4) .lesson-picture canvas")).to_have_count(1)
    page.click(".lesson:nth-child(4) .start-button")
    drawn(page, "dynamic-scheduling", "refill")
    for stop in ("price", "formula", "larger", "sum", "now-you"):
        page.keyboard.press("n")
        drawn(page, "dynamic-scheduling", stop)
    page.keyboard.press("n")
    lesson = page.locator(".lesson:nth-child(4)")
    expect(lesson.locator(".lesson-asked")).to_have_text("2 questions")
    expect(page.locator(".lesson.done")).to_have_count(0)
    expect(page.locator(".how-far")).to_be_hidden()
    for stop in ("refill", "price"):
        page.evaluate(
            "(stop) => { location.hash = `part=learn&lesson=dynamic-scheduling&stop=${stop}`; }",
            stop,
        )
        drawn(page, "dynamic-scheduling", stop)
        right = page.evaluate("inflightLearn.asking.ask.options.findIndex(o => o.right)")
        page.keyboard.press(str(right + 1))
        expect(page.locator(".answer.right")).to_have_count(1)
        page.keyboard.press(str(2 if right == 0 else 1))  # it is answered
        expect(page.locator(".answer.right")).to_have_count(1)
        page.evaluate("inflightLearn.close()")
        expect(lesson.locator(".lesson-asked")).to_have_text(
            "1 of 2 questions answered" if stop == "refill" else "Done"
        )
    expect(page.locator(".lesson:nth-child(4).done")).to_have_count(1)
    expect(page.locator(".how-far")).to_contain_text("1 of 10 lessons done")
    page.reload()
    expect(page.locator(".lesson.done")).to_have_count(1)


def test_show_me_paints_each_request_in_its_own_colour_and_is_not_an_answer(learn):  # noqa: F811
    page = learn("lesson=ragged-batching&stop=paint")
    drawn(page, "ragged-batching", "paint")
    page.click(".show-button")
    colours = page.evaluate(
        "[...new Set([...document.querySelectorAll('.paint .cell.on')].map(c =>"
        " getComputedStyle(c).backgroundColor))].length"
    )
    assert colours == 5  # A and B have a cache and a new token, C only what is new
    page.click(".check-button")
    assert page.evaluate("inflightLearn.progress.of(inflightLearn.lesson).answered") == []


def test_the_glossary_and_the_questions_are_reached_from_watch(learn):  # noqa: F811
    page = learn()
    page.evaluate("document.querySelector('.inflight-learn .tabs button').click()")
    for item, heading in (("Glossary", ".terms h2"), ("Questions people ask", ".asked h2")):
        page.click("#watch .more-button")
        page.click(f"#watch .menu button:has-text({item!r})")
        expect(page.locator("html")).to_have_attribute("data-part", "learn")
        expect(page.locator(f".inflight-learn {heading}")).to_be_focused()
        expect(page.locator(f".inflight-learn {heading}")).to_be_in_viewport()
        page.go_back()
        expect(page.locator("html")).to_have_attribute("data-part", "watch")
