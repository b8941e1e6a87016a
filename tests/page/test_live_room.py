"""The Live tab as a room: lanes with people's names and their texts, who waits, where one's own
request stands; prompts of the house, and bots.
"""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from visualizer.server.shared_engine import qr_code
from worlds.browser import settled
from worlds.live_page import (
    TOKEN,
    ask,
    control,
    opened,
    stepped,
)

WHO = (
    "[...document.querySelectorAll('.person')].filter(e => !e.hidden).map(e =>"
    " [e.querySelector('.person-name').textContent, e.querySelector('.person-note').textContent])"
)
DOOR = (
    "[...document.querySelectorAll('.people .waiter')].filter(e => !e.hidden).map(e =>"
    " e.textContent)"
)
PROJECTOR = (1280, 720)


def stands(page: Page) -> str:
    return page.locator(".own-state").first.inner_text()


def test_lanes_carry_names_and_each_is_told_where_it_stands(live_url, visit):
    """Three lanes and five requests: who is in, with the text; who waits, in order; what each is
    told at the door, in its lane and at its end.
    """
    ada, bob, teacher = (
        opened(visit, live_url),
        opened(visit, live_url, size="phone"),
        opened(visit, live_url, size=PROJECTOR),
    )
    expect(teacher.locator(".people-invite")).to_contain_text("Ask, and you get a lane at once")
    assert teacher.evaluate(WHO) == [["", "free"]] * 3
    for name in ("Ada", "", "مريم"):
        ask(ada, "O Romeo,", 6, name)
    ask(bob, "To be", 4, "Bob")
    ask(ada, "What news", 4, "Ada")
    stepped(live_url, ada, bob, teacher, steps=3)
    settled(teacher, "document.querySelectorAll('.people .waiter:not([hidden])').length === 2")
    assert teacher.evaluate(WHO) == [["Ada", ""], ["", ""], ["مريم", ""]]
    assert ada.evaluate(WHO) == [["Ada", "you"], ["you", ""], ["مريم", "you"]]
    assert [re.sub(r"waits.*", "", who) for who in teacher.evaluate(DOOR)] == ["DBob", "EAda"]
    assert teacher.locator(".door-why").inner_text() == "all 3 lanes are taken"
    written = teacher.evaluate(
        "Object.values(inflight.run.texts.output)[0].join('').replace(/\\s+/g, ' ')"
    )
    assert (
        teacher.locator(".person-words").first.inner_text().replace("\n", "").rstrip()
        == f"O Romeo,{written}".rstrip()
    )
    assert stands(bob) == "You are next."
    assert stands(ada) == "1 request before yours. You are behind \u2068Bob\u2069."
    expect(ada.locator(".own-state").nth(2)).to_have_text("Your lane: 1. 3 of 6 tokens so far.")
    ada.evaluate("document.activeElement.blur()")
    ada.keyboard.press("Home")  # what is drawn is the step on screen, for oneself alone
    settled(ada, "document.querySelector('.person-did').textContent === '1 / 6'")
    assert teacher.locator(".person-did").first.inner_text() == "3 / 6"
    stepped(live_url, ada, bob, teacher, steps=10)
    settled(bob, "document.querySelector('.own-state').textContent.startsWith('Done: you waited')")
    assert re.fullmatch(
        r"Done: you waited [\d.]+ m?s, wrote 4 tokens in 4 steps with 1 other\.", stands(bob)
    )
    assert teacher.locator(".person.left, .person.over").count() == 3  # they stay to be read
    bob.reload()  # and it is known again
    settled(
        bob, "document.querySelector('.own-state')?.textContent.includes('in 4 steps with 1 other')"
    )


def test_a_card_counts_the_tokens_of_the_text_on_it(live_url, visit):
    """Whichever of the two streams is ahead, that of the steps or that of the text."""
    page = opened(visit, live_url)
    texts = "**/inflight/live/requests?*"
    page.route(texts, lambda route: None)  # no text comes
    ask(page, "O Romeo,", 9)
    stepped(live_url, page, steps=3)
    settled(page, "document.querySelector('.person-did').textContent === '3 / 9'")
    assert (stands(page), page.inner_text(".own .output")) == ("Your lane: 0.", "")
    page.evaluate("inflightLive.following.abort()")  # now no steps
    page.unroute(texts)
    control(live_url, steps=4)
    page.evaluate("void inflightLive.mine._follow()")
    settled(page, "inflightLive.mine.requests[0].next === 7")
    expect(page.locator(".own-state")).to_have_text("Your lane: 0. 3 of 9 tokens so far.")
    drawn = page.evaluate("Object.values(inflight.run.texts.output)[0].slice(0, 3).join('')")
    assert page.locator(".own .output").text_content() == drawn
    page.evaluate("inflightLive._follow()")
    expect(page.locator(".own-state")).to_have_text("Your lane: 0. 7 of 9 tokens so far.")
    whole = page.evaluate("inflightLive.mine.requests[0].text")
    assert page.locator(".own .output").text_content() == whole


@pytest.mark.slow
def test_prompts_of_the_house_and_bots_at_one_press(live_url, visit):
    """A press sends a prompt under the visitor's name; three bots ask, labelled everywhere,
    whatever is hidden, and stop by themselves.
    """
    page, other = (
        opened(visit, live_url),
        opened(visit, live_url, size="phone", hash="part=live&lang=de"),
    )
    for one in (page, other):  # the form is where a hand finds it
        bottom = one.evaluate(
            "(() => { const r = document.querySelector('.ask-form').getBoundingClientRect(); return"
            " [r.bottom, document.querySelector('.ask-button').getBoundingClientRect().bottom <"
            " r.bottom, r.width > 280]; })()"
        )
        assert bottom == [one.viewport_size["height"], True, True]
    page.fill("[name=nickname]", "Bot 2")
    page.meant.append("status of")
    page.click(".prompt-button >> nth=0")
    settled(
        page,
        "document.querySelector('.ask-error').textContent === 'Only bots are called Bot: choose"
        " another name.'",
    )
    page.fill("[name=nickname]", "Ada")
    page.click(".prompt-button >> nth=1")
    settled(page, "inflightLive.mine.requests[0]?.prompt === 'To be, or not to be,'")
    control(live_url, hide_nicknames=True, steps_per_s=60)
    page.dblclick(".bots-button")  # a second press finds it at work
    settled(
        page,
        "['Bot 1', 'Bot 2', 'Bot 3'].every((name) => inflightLive.batch.run?.requests.some((r) =>"
        " r.isBot && r.by === name))",
    )
    # hidden
    assert page.evaluate(
        "[...new Set(inflightLive.batch.run.requests.filter(r => !r.isBot).map(r => r.by))]"
    ) == [""]
    expect(other.locator(".person .icon").first).to_be_attached()
    settled(
        other,
        "document.querySelector('.bots-button').disabled &&"
        " document.querySelector('.bots-button').textContent === 'Drei Bots fragen gerade …'",
    )
    settled(
        page,
        "!document.querySelector('.bots-button').disabled &&"
        " inflightLive.batch.run.requests.filter(r => r.isBot && r.finished).length === 9",
    )


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_a_projector_of_1280_by_720_shows_names_and_texts_large_and_the_hood_at_one_press(
    live_url, visit, scheme
):
    page = opened(visit, live_url, hash=f"part=live&teacher={TOKEN}&theme={scheme}", size=PROJECTOR)
    assert page.locator(".people-join").count() == 0  # only this machine can open the address
    address = "http://192.168.1.5:7860/#part=live"
    told = {"address": address, "qr": qr_code(address)}
    page.route("**/inflight/class", lambda route: route.fulfill(json=told))
    page.reload()
    settled(page, "window.inflightLive && inflightLive.before && inflightLive.batch.state.class")
    control(live_url, max_num_seqs=8, steps_per_s=0)
    for n in range(10):
        ask(page, "O Romeo,", 8, f"Pupil number {n}")
    stepped(live_url, page, steps=4)
    page.evaluate("document.activeElement.blur()")
    page.click(".live .presenter-button")
    settled(page, "inflight.presenter && document.querySelector('.panel.people').checkVisibility()")
    size = (
        "(s) => Math.min(...[...document.querySelectorAll(s)].filter(e =>"
        " e.checkVisibility()).map(e => parseFloat(getComputedStyle(e).fontSize)))"
    )
    for what in (
        ".person-name",
        ".person-words",
        ".person-did",
        ".person-lane",
        ".people .waiter",
        ".door-why",
        ".sentence",
    ):
        assert page.evaluate(size, what) >= 22, what
    code = page.locator(".people-join img").bounding_box()
    assert min(code["width"], code["height"]) >= 150
    assert page.locator(".people-join p").inner_text() == "192.168.1.5:7860"
    assert page.evaluate(
        "(code) => [...document.querySelectorAll('.person')].filter(e => !e.hidden).every(e => {"
        " const r = e.getBoundingClientRect(); return r.top >= 0 && r.bottom <= innerHeight &&"
        " r.right <= code.x && e.querySelector('.person-words').clientHeight > 20; })",
        code,
    )
    assert page.evaluate(
        "document.querySelector('.people-box').scrollHeight <="
        " document.querySelector('.people-box').clientHeight + 1"
    )
    page.click(".present-bar .hood-button")
    settled(
        page,
        "document.querySelector('.panel.mask').checkVisibility() &&"
        " !document.querySelector('.panel.people').checkVisibility()",
    )
    note = page.evaluate(
        """() => {
            inflightLive.room.draw("What matters most.");
            document.querySelector(".present-bar .hood-button").click();
            return document.querySelector(".people-note").textContent;
        }"""
    )
    assert note == "What matters most."
    page.keyboard.press("2")  # the mask alone, and back
    settled(
        page,
        "document.querySelector('.panel.mask').checkVisibility() &&"
        " !document.querySelector('.panel.people').checkVisibility()",
    )
    page.keyboard.press("2")
    settled(page, "document.querySelector('.panel.people').checkVisibility()")
    page.keyboard.press("Escape")
    settled(page, "!inflight.presenter && document.querySelector('.live .top').checkVisibility()")


def test_names_are_text_and_cut_whatever_they_hold(live_url, visit):
    """The server refuses most of these; a page takes none for more than text all the same."""
    page = opened(visit, live_url)
    nasty = [
        "<img src=x onerror=window.hacked=1>",
        "x" * 5000,
        "\u202eRTL\u202d \u2066override",
        "👩‍👩‍👧‍👦" * 30,
        "",
        "Ada",
        "Ada",
        "{name} ${x} {{y}}",
    ]
    control(live_url, max_num_seqs=4)
    for _ in nasty:
        ask(page, "O Romeo,", 12)
    stepped(live_url, page, steps=3)
    for size in ((1440, 900), (390, 844)):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.evaluate(
            "(names) => { inflight.run.requests.forEach((r, n) => { r.by = names[n]; });"
            " inflightLive.room.view.door.rows.forEach((row) => { row.run = null; });"
            " inflight.redraw(); inflightLive.redraw(); }",
            nasty,
        )
        settled(
            page,
            "document.querySelector('.person-name').textContent.startsWith('<img') &&"
            " document.querySelector('.people .door').textContent.includes('{name}')",
        )
        assert page.evaluate(
            "[window.hacked, document.querySelectorAll('.people img, .live-card img').length]"
        ) == [None, 0]
        assert (
            max(
                map(
                    len,
                    page.evaluate(
                        "[...document.querySelectorAll('.person-name')].map(e => e.textContent)"
                    ),
                )
            )
            <= 100
        )
        assert (
            page.evaluate(
                "[...document.querySelectorAll('.person-name')].some(e =>"
                " /[\\u202a-\\u202e\\u2066-\\u2069]/.test(e.textContent))"
            )
            is False
        )
        assert page.evaluate(
            "document.documentElement.scrollWidth <= innerWidth &&"
            " [...document.querySelectorAll('.person')].every(e => e.scrollWidth <= e.clientWidth"
            " + 1)"
        )
        expect(page.locator(".own-state").first).to_have_text(re.compile("You are behind"))


def test_a_room_left_gives_watch_its_views_back(live_url, visit):
    page = opened(visit, live_url)
    page.click(".hood-button >> nth=0")
    settled(
        page,
        "[...document.querySelectorAll('#watch :is(.empty-state, .panel.mask)')].some(e =>"
        " e.checkVisibility())",
    )
    page.click(".hood-button >> nth=0")
    ask(page, "O Romeo,", 4)
    page.click(".live nav.tabs >> text=Watch")
    settled(page, "inflight.run.header.source === 'recorded' && inflight.drawn >= 0")
    assert page.evaluate(
        "[document.querySelectorAll('#watch .people, #watch .hood-button, #watch"
        " .people-tab').length, 'people' in inflight.root.dataset]"
    ) == [0, False]
    assert page.evaluate("document.querySelector('#watch .panel.lanes').checkVisibility()")


def test_on_a_phone_the_lanes_come_back_from_the_texts(live_url, visit):
    page = opened(visit, live_url, size="phone")
    ask(page, "O Romeo,", 4)
    for tab, others in ((".people-tab", 0), ("[data-tab=text]", 1), (".people-tab", 0)):
        page.tap(f".view-tabs {tab}")
        settled(
            page,
            "(hidden) => document.querySelector('#watch .people').hidden === Boolean(hidden) &&"
            " [...document.querySelectorAll('.view-tabs [aria-selected=true]')].length === 1",
            others,
        )
        assert page.get_attribute(f".view-tabs {tab}", "aria-selected") == "true"


def test_beside_a_narrow_player_the_card_leaves_the_lanes_room(live_url, visit):
    """An upright tablet: the player has the width of a phone, the window has not."""
    page = opened(visit, live_url, size="upright", has_touch=True)
    ask(page, "O Romeo,", 4)
    boxes = page.evaluate(
        "['#watch .people', '#watch .view-tabs', '.live .top > *'].map((all) =>"
        " [...document.querySelectorAll(all)].filter((el) => el.checkVisibility())"
        ".map((el) => el.getBoundingClientRect()).map(({ left, right }) => [left, right]))"
    )
    (people,), (tabs,), bar = boxes
    assert people[1] - people[0] > 400 and tabs[1] - tabs[0] > 400
    assert max(right for _, right in bar) <= 768
