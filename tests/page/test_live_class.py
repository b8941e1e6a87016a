"""The Live tab as a class has it: eight browsers at once, somebody who leaves, a teacher at a
projector, a server that is started again.
"""

from __future__ import annotations

import sys
import time

import pytest
from playwright.sync_api import expect

from worlds.browser import settled
from worlds.live_page import (
    TOKEN,
    ask,
    control,
    opened,
    sees,
    stepped,
)
from worlds.own_models import save
from worlds.page_server import serve

LANES = (
    "[...document.querySelectorAll('.person')].filter(e => !e.hidden).map(e =>"
    " e.querySelector('.person-name').textContent)"
)
DOOR = (
    "[...document.querySelectorAll('.people .waiter')].filter(e => !e.hidden).map(e =>"
    " e.querySelector('.waiter-name').textContent)"
)


@pytest.mark.slow
def test_eight_join_at_once_and_everybody_sees_everybody(live_url, visit):
    """Prompts pressed at the same instant all arrive, once each; who leaves is gone from the lanes
    and the door of the others.
    """
    teacher = opened(visit, live_url, hash=f"part=live&teacher={TOKEN}", size=(1280, 720))
    teacher.evaluate("inflightLive.watch.present(true)")
    names = [f"Pupil {n}" for n in range(7)]
    pupils = [opened(visit, live_url, size="phone" if n else "desk") for n in range(7)]
    at = time.time() * 1000 + 3000
    for page, name in zip(pupils, names, strict=True):
        page.fill("[name=nickname]", name)
        page.evaluate(
            "(at) => { setTimeout(() => document.querySelectorAll('.prompt-button')[1].click(),"
            " Math.max(0, at - Date.now())); }",
            at,
        )
    for page in pupils:
        settled(page, "inflightLive.mine.requests.length === 1")
    stepped(live_url, teacher, *pupils, steps=2)
    settled(teacher, "document.querySelectorAll('.people .waiter:not([hidden])').length === 4")
    teacher.evaluate("inflight.toast('Space plays, R shows the reasons.', 60000)")
    # a hint hides neither what happened nor a lane
    low = "document.querySelector('#watch .toast').getBoundingClientRect().top"
    assert teacher.evaluate(
        "Math.max(...[...document.querySelectorAll('.say .sentence, .person')].map((e) =>"
        f" e.getBoundingClientRect().bottom)) <= {low}"
    )
    lanes, door = teacher.evaluate(LANES), teacher.evaluate(DOOR)
    assert len(lanes) == 3 and sorted([*lanes, *door]) == names
    told = [page.inner_text(".own-state") for page in pupils]
    for name, said in zip(names, told, strict=True):
        place = door.index(name) if name in door else None
        begins = (
            f"Your lane: {lanes.index(name)}."
            if place is None
            else (
                "You are next.",
                "1 request before",
                "2 requests before",
                "3 requests before",
            )[place]
        )
        assert said.startswith(begins), (name, said)
    first, behind = pupils[names.index(lanes[0])], pupils[names.index(door[1])]
    with first.expect_response("**/cancel"):
        first.click(".own-cancel")
    # the lane is free in the next step, and who was next takes it
    stepped(live_url, teacher, *pupils, steps=3)
    settled(teacher, f"({LANES})[0] === {door[0]!r}")
    settled(behind, "document.querySelector('.own-state').textContent === 'You are next.'")
    assert teacher.evaluate("inflight.presenter") and teacher.evaluate(DOOR) == door[1:]


@pytest.mark.slow
def test_a_page_goes_on_when_its_server_is_started_again(visit):
    """It says that the server is away, finds it again, and keeps how a finished request went."""
    page_server = serve(INFLIGHT_TEACHER_TOKEN=TOKEN)
    with page_server as url:
        page = opened(visit, url, size="phone")
        page.meant.append("")  # a server that is away
        control(url, steps_per_s=None)
        ask(page, "O Romeo,", 4, "Ada")
        settled(
            page,
            "document.querySelector('.own-state').textContent.includes('wrote 4 tokens in 4 steps,"
            " alone')",
        )
        control(url, steps_per_s=0)
        ask(page, "To be", 4, "Ada")
    settled(page, "document.querySelector('.live-says').textContent.endsWith('Trying again.')")
    with page_server as url:
        settled(page, "!document.querySelector('.live-says').textContent.endsWith('Trying again.')")
        settled(
            page,
            "[...document.querySelectorAll('.own-state')].at(-1).textContent.includes('in 4 steps,"
            " alone')",
        )
        control(url, steps_per_s=None)
        ask(page, "What news", 4, "Ada")
        settled(
            page,
            "document.querySelector('.own-state').textContent.includes('wrote 4 tokens in 4 steps,"
            " alone') && inflight.run === inflightLive.batch.run",
        )


@pytest.mark.slow
def test_what_a_teacher_has_the_model_told_first_is_shown_to_everybody(visit, tmp_path):
    model = save(tmp_path / "chatty", "llama", chat=True)
    command = (sys.executable, "app.py", "--live-model", str(model))
    with serve(command, INFLIGHT_TEACHER_TOKEN=TOKEN) as url:
        control(url, steps_per_s=None)
        teacher = opened(visit, url, hash=f"part=live&teacher={TOKEN}")
        pupil = opened(visit, url, size="phone")
        field, told = teacher.locator("[name=system]"), pupil.locator(".told-first")
        expect(told).to_be_hidden()
        field.fill("Be kind.")
        field.press("Tab")
        expect(told).to_have_text("Before each question the model is told: Be kind.")
        mine = ask(pupil, "Who are you?", 4)
        sees(pupil, 4)
        run = "inflightLive.batch.run"
        said = f"(id) => {run}.said({run}.request(id)).join('').trim()"
        assert pupil.evaluate(said, mine) == "Be kind.\nWho are you?"
        field.fill("")
        field.press("Tab")
        expect(told).to_be_hidden()
