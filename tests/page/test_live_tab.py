"""The Live tab: real browsers on one real engine. Everybody sees the same steps; what one does, the
others see; scrubbing is one's own.
"""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import expect

from core.trace.trace import Trace
from worlds.axe import serious
from worlds.browser import settled
from worlds.live_page import (
    TOKEN,
    ask,
    control,
    opened,
    stepped,
)

STEPS = "inflightLive.batch.run.events.map(e => e.step)"


@pytest.mark.slow
def test_two_browsers_see_one_batch(live_url, visit):
    """The same steps, letters and colours; one's own request is marked for oneself alone; scrubbing
    back moves nobody else.
    """
    ada, bo = opened(visit, live_url), opened(visit, live_url, size="phone")
    expect(ada.locator(".live-says")).to_contain_text("No requests yet")
    mine = ask(ada, "O Romeo, ", 40, "Ada")
    theirs = ask(bo, "To be", 40)
    stepped(live_url, ada, bo, steps=5)
    told = "inflightLive.batch.run.requests.map(r => [r.id, r.hue, r.by])"
    assert ada.evaluate(STEPS) == bo.evaluate(STEPS) == [0, 1, 2, 3, 4]
    assert ada.evaluate(told) == bo.evaluate(told) and [r[0] for r in ada.evaluate(told)] == [
        mine,
        theirs,
    ]
    letters = "inflight.run.requests.map(r => r.letter)"
    assert (ada.evaluate(letters), bo.evaluate(letters)) == (["A★", "B"], ["A", "B★"])
    expect(ada.locator(".own-head")).to_contain_text("A★")
    expect(ada.locator(".own-state")).to_have_text("Your lane: 0. 5 of 40 tokens so far.")
    expect(bo.locator(".person").first).to_contain_text("Ada")
    ada.evaluate("document.activeElement.blur()")
    ada.keyboard.press("Home")
    settled(ada, "inflight.drawn === 0")
    expect(ada.locator(".live-badge")).to_contain_text("4 behind")
    stepped(live_url, ada, bo, steps=9)
    settled(ada, "document.querySelector('.live-badge').textContent.startsWith('8 behind')")
    settled(bo, "inflight.drawn === 8")
    assert ada.evaluate("inflight.index") == 0
    ada.click(".live-badge")
    settled(ada, "inflight.drawn === 8 && inflight.following")
    with bo.expect_response("**/cancel"):
        bo.click(".own-cancel")  # on the phone: its lane is free in the next step
    stepped(live_url, ada, bo, steps=10)
    settled(ada, "inflight.drawn === 9")
    assert ada.evaluate("inflight.frame.lanes.filter(l => l.request).map(l => l.request.id)") == [
        mine
    ]
    settled(bo, "document.querySelector('.own-state').textContent === 'Cancelled.'")
    # its lane says no other than its card
    expect(ada.locator(".person-did").nth(1)).to_have_text(re.compile("✕"))
    control(live_url, steps_per_s=None)
    settled(ada, "document.querySelector('.own-state').textContent.startsWith('Done: you waited')")
    settled(ada, "(id) => inflightLive.batch.run.request(id).finished", mine)
    pieces = ada.evaluate("(id) => inflightLive.batch.run.texts.output[id].join('')", mine)
    assert ada.evaluate("inflightLive.mine.requests[0].text") == pieces != ""
    solo = httpx.post(  # the same request, alone
        f"{live_url}/serve/generate",
        json={
            "prompt": "O Romeo, ",
            "max_tokens": 40,
            **ada.evaluate("({seed: inflightLive.mine.requests[0].seed, temperature: 0.8})"),
        },
        trust_env=False,
        timeout=60,
    )
    assert solo.json()["text"] == pieces
    ada.click(".live nav.tabs >> text=Watch")  # and Watch is as it was
    settled(
        ada, "inflight.run.header.source === 'recorded' && inflight.drawn >= 0 && !inflight.running"
    )
    ada.click("#watch nav.tabs >> text=Live")
    settled(ada, "inflight.run === inflightLive.batch.run")


@pytest.mark.slow
def test_a_reload_finds_ones_own_request_again(live_url, visit):
    page = opened(visit, live_url)
    mine = ask(page, "O Romeo, ", 30)
    stepped(live_url, page, steps=4)
    page.reload()
    settled(
        page,
        "window.inflightLive && inflightLive.batch.run && inflight.run === inflightLive.batch.run",
    )
    settled(page, "document.querySelector('.own-state')?.textContent.startsWith('Your lane: 0.')")
    assert page.evaluate("inflight.run.requests.map(r => [r.id, r.letter])") == [[mine, "A★"]]
    control(live_url, steps_per_s=None)
    settled(page, "document.querySelector('.own-state').textContent.startsWith('Done: you waited')")
    settled(page, "(id) => inflightLive.batch.run.request(id).finished", mine)
    assert page.evaluate(
        "(id) => inflightLive.batch.run.texts.output[id].join('') ==="
        " inflightLive.mine.requests[0].text",
        mine,
    )
    with page.expect_download() as saved:
        page.click(".save-button")
    trace = Trace.load(saved.value.path())
    assert trace.complete and trace.text(mine).endswith(
        page.evaluate("inflightLive.mine.requests[0].text")
    )
    page.click(".live nav.tabs >> text=Watch")
    settled(page, "inflight.run.header.source === 'recorded' && inflight.drawn >= 0")
    page.click("#watch .export-button")
    with page.expect_file_chooser() as chooser:
        page.click("text=Open a trace")
    chooser.value.set_files(saved.value.path())
    settled(page, "inflight.run.header.source === 'uploaded'")
    assert page.evaluate("inflight.run.length") == len(trace.events)


@pytest.mark.slow
def test_the_teacher_sets_for_everybody_and_what_is_hidden_is_not_sent(live_url, visit):
    """By the printed link; the limits change at a barrier; hidden texts and names are in nothing
    that a viewer is sent.
    """
    teacher, pupil = opened(visit, live_url, hash=f"teacher={TOKEN}"), opened(visit, live_url)
    teacher.wait_for_selector(".teacher:not([hidden])")
    assert TOKEN not in teacher.evaluate("location.href") and pupil.locator(".teacher").is_hidden()
    ids = [
        ask(pupil, prompt, 8, "Wilhelmina")
        for prompt in ("O Romeo, ", "To be", "What news", "The king is dead")
    ]
    stepped(live_url, teacher, pupil, steps=2)
    teacher.select_option(".live [name=policy]", "static")
    teacher.fill(".live [name=max_num_seqs]", "2")
    teacher.click(".limits .button")
    for page in (teacher, pupil):
        settled(
            page,
            "document.querySelector('.live-says').textContent.startsWith('At the barrier: 3 still"
            " running. Then comes static')",
        )
    pupil.evaluate("document.activeElement.blur()")
    control(live_url, steps=20)
    for page in (teacher, pupil):
        settled(
            page,
            "inflight.run.header.policy === 'static' && inflight.run.numLanes === 2 &&"
            " inflight.drawn >= 0",
        )
        expect(page.locator(".now")).to_contain_text("static · 2 lanes")
        settled(page, "(id) => inflight.run.request(id)", ids[3])  # who waited came along
    assert teacher.evaluate("(id) => inflight.run.request(id).by", ids[3]) == "Wilhelmina"
    expect(teacher.locator("[name=system]")).to_be_hidden()  # the model takes no messages
    for hidden in ("hide_texts", "hide_nicknames"):
        with teacher.expect_response("**/control"):
            teacher.check(f"[name={hidden}]")
    settled(
        pupil, "document.querySelector('.live-says').textContent.includes('has hidden the texts')"
    )
    late = opened(visit, live_url)
    ask(late, "Zounds and gadzooks", 12, "Ethelred")
    control(live_url, steps=3)
    settled(late, "inflight.run === inflightLive.batch.run && inflight.drawn >= 0")
    settled(late, "JSON.stringify(inflightLive.batch.chapters).includes('•')")
    sent = late.evaluate("JSON.stringify(inflightLive.batch.chapters)")
    assert not any(
        text in sent for text in ("Wilhelmina", "Ethelred", "king is dead", '"Z"', '"k"')
    )
    with httpx.stream("GET", f"{live_url}/inflight/live/steps", trust_env=False) as raw:
        first = next(raw.iter_raw()).decode()
    assert "Wilhelmina" not in first and '"T","h","e"' not in first
    control(live_url, steps_per_s=None)
    settled(late, "inflightLive.mine.requests[0].ended")
    expect(late.locator(".own-words")).to_contain_text(re.compile("^Zounds and gadzooks"))
    assert late.evaluate("inflightLive.mine.requests[0].text.length") > 4
    teacher.uncheck("[name=hide_nicknames]")
    teacher.uncheck("[name=hide_texts]")
    settled(
        late,
        "Object.values(inflightLive.batch.run.texts.prompt).some(p => p.join('') === 'Zounds and"
        " gadzooks')",
    )


def test_what_the_server_refuses_is_said_beside_the_form(live_url, visit):
    page = opened(visit, live_url)
    page.meant.append("status of")
    control(live_url, accepting=False)
    page.fill("[name=prompt]", "O Romeo")
    page.click(".ask-button")
    settled(
        page,
        "document.querySelector('.ask-error').textContent === 'No requests are accepted right now."
        " Try again in 5 s.'",
    )
    control(live_url, accepting=True)
    page.fill("[name=nickname]", "<img src=x>")
    page.click(".ask-button")
    settled(
        page,
        "document.querySelector('.ask-error').textContent.startsWith('A name has at most')",
    )
    assert page.evaluate("document.querySelectorAll('.live img, #watch img').length") == 0


def test_hostile_prompts_and_texts_are_text(live_url, visit):
    page = opened(visit, live_url, size="phone")
    unit = page.locator(".ask-names").get_by_text("New tokens").bounding_box()
    assert unit and unit["width"] > 40  # beside the number, which says nothing alone
    prompt = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>\u202e"
    ask(page, prompt, 6, "O'Neil")
    control(live_url, steps_per_s=None)
    settled(page, "inflightLive.mine.requests[0].ended && inflight.drawn >= 0")
    assert (
        page.evaluate("window.hacked") is None
        and page.locator(".own-words .prompt").inner_text() == prompt
    )
    assert page.evaluate("document.querySelectorAll('#watch .stage img, .live img').length") == 0


def test_this_session_becomes_a_new_comparison(live_url, visit):
    """Its requests, with their arrivals, in the form; the run itself is on Watch."""
    page = opened(visit, live_url)
    ask(page, "O Romeo", 4, "Ada")
    control(live_url, steps=8)
    page.wait_for_function("inflightLive.batch.run?.length >= 4")
    page.click(".compare-button")
    expect(page.locator(".compare .drawer")).to_be_visible()
    form = page.locator(".compare .drawer")
    expect(form.locator("[name=preset]")).to_have_value("")
    said = page.evaluate("inflight.editor.said()")
    (request,) = said["spec"]["workload"]["requests"]
    assert request["sampling"]["max_new_tokens"] == 4
    assert page.evaluate("inflight.run.length") >= 4


@pytest.mark.slow
@pytest.mark.parametrize("size", ["desk", "phone"])
def test_axe_finds_nothing_serious_and_fingers_hit(live_url, visit, size):
    """With the teacher's panel open, and a request of one's own."""
    for scheme in ("light", "dark"):
        page = opened(
            visit, live_url, hash=f"teacher={TOKEN}&theme={scheme}", size=size, color_scheme=scheme
        )
        page.wait_for_selector(".teacher:not([hidden])")
        ask(page, "O Romeo", 8, "Ada")
        control(live_url, steps=24)
        settled(page, "inflight.drawn >= 0")
        assert serious(page) == [], scheme
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if size == "phone":
            small = (
                "[...document.querySelectorAll('.live button, .live input:not([type=checkbox]),"
                " .live select, .live textarea')].filter(e => e.getClientRects().length &&"
                " e.getBoundingClientRect().height < 43.5).map(e => e.outerHTML.slice(0, 90))"
            )
            assert page.evaluate(small) == []


PLACE = """() => { const e = document.activeElement;
    return e.closest(".top") ? "bar" : e.closest(".live-card") ? e.name || "card" : e.closest("#watch") ? "player" : e.tagName; }"""  # noqa: E501


@pytest.mark.parametrize("size", ["desk", "phone"])
def test_by_tab_one_meets_what_lies_next_on_the_screen(live_url, visit, size):
    """The bar; then the card and the player beside it; on a phone the player and the card below
    it.
    """
    page = opened(visit, live_url, size=size)
    ask(page, "O Romeo", 8)
    stepped(live_url, page, steps=1)
    page.evaluate("document.activeElement.blur()")
    page.reload()
    page.wait_for_function(
        "() => window.inflightLive && inflightLive.before && inflight.run && inflight.drawn >= 0"
    )
    met: list[str] = []
    while not {"player", "prompt"} <= set(met) and len(met) < 90:
        page.keyboard.press("Tab")
        met.append(page.evaluate(PLACE))
    card = ["card", "nickname", "tokens", "prompt"]
    assert list(dict.fromkeys(met)) == [
        "bar",
        *(card if size == "desk" else []),
        "player",
        *(card if size == "phone" else []),
    ]
    # one opens another part with the keyboard, and goes on from its bar
    for tab in ("Watch", "Compare", "Learn", "Live"):
        page.get_by_role("button", name=tab, exact=True).and_(page.locator(".tabs button")).focus()
        page.keyboard.press("Enter")
        page.wait_for_function(
            "(name) => document.documentElement.dataset.part === name &&"
            " document.activeElement.getAttribute('aria-current') === 'page'",
            arg=tab.lower(),
        )
        page.keyboard.press("Tab")
        assert page.evaluate(PLACE) == "bar"
    page.get_by_role("button", name="Watch", exact=True).and_(page.locator(".tabs button")).focus()
    page.evaluate("inflightLive._named()")  # a language may come when the lessons have
    assert page.evaluate("document.activeElement.textContent") == "Watch"


@pytest.mark.slow
def test_a_teacher_chooses_the_model_that_everybody_shares(live_url, visit):
    """By the same fields as every form: each has its name, and a folder's is there when it is
    asked for.
    """
    page = opened(visit, live_url, hash=f"part=live&teacher={TOKEN}")
    page.click(".shared-model summary")
    model, folder = (
        page.locator(".shared-model [name=model]"),
        page.locator("[name=own_model]:visible"),
    )
    before = model.input_value()
    expect(model).to_have_accessible_name(re.compile("^Model"))
    expect(folder).to_have_count(0)
    for name in ("shakespeare-char", before):  # the others of this server's tests find it as it was
        model.select_option(name)
        page.click(".shared-model form .button")
        expect(page.locator(".shared-says")).to_have_text("Shared from now on.", timeout=60000)
        models = httpx.get(f"{live_url}/serve/v1/models", trust_env=False).json()
        assert [served["id"] for served in models["data"]] == [name]
    model.select_option(label="Another: a folder or a hub id …")
    expect(folder).to_have_accessible_name(re.compile("^Folder or hub id"))
    assert serious(page) == []
