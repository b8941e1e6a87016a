"""“Now you” in a real browser: the task stays in sight while the requests are changed, and the
learner's own run is checked against it.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from worlds.browser import settled
from worlds.learn_tab import drawn, learn, world  # noqa: F401
from worlds.page_server import page_url  # noqa: F401


def in_sight(page: Page, selector: str) -> bool:
    """Whether all of it is on screen and nothing lies over its middle."""
    return page.evaluate(
        """(selector) => {
            const el = document.querySelector(selector), { left, top, right, bottom } = el.getBoundingClientRect();
            return left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight && el.contains(document.elementFromPoint((left + right) / 2, (top + bottom) / 2));
        }""",  # noqa: E501
        selector,
    )


@pytest.mark.parametrize("size", ["desk", pytest.param("phone", marks=pytest.mark.slow)])
def test_the_task_stays_in_sight_and_the_run_is_checked_against_it(visit, page_url, size):  # noqa: F811
    page = visit(
        url=page_url, hash="part=learn&lesson=static-batching&stop=now-you", size=size, drawn=False
    )
    drawn(page, "static-batching", "now-you")
    page.click(".edit-run")
    rows = page.locator(".drawer .request-row")
    expect(rows).to_have_count(6)
    assert in_sight(page, ".task-title") and in_sight(page, ".task-back")
    goals = page.locator(".task-goals .goal")
    expect(goals).to_have_count(2)
    rows.first.locator("input").first.fill("12")
    page.click(".drawer [type=submit]")
    expect(goals.first).to_have_class("goal met")
    expect(goals.first).to_contain_text(
        "Of 63 lane-steps 12 wrote nothing; before it was 20 of 63."
    )
    expect(goals.last).to_have_class("goal")
    assert page.evaluate("document.documentElement.dataset.part") == "learn"
    assert in_sight(page, ".task-back")
    page.click(".task-back")
    settled(page, "inflight.entry?.name === 'verses-static' && inflight.frame.event.step === 0")
    expect(page.locator(".stop-do .goal").first).to_have_class("goal met")
    page.click(".next-button")
    # a task is no question
    expect(page.locator(".lesson:nth-child(3) .lesson-asked")).to_have_text("4 questions")


def test_another_language_leaves_the_task_with_what_was_typed_and_found(visit, page_url):  # noqa: F811
    page = visit(url=page_url, hash="part=learn&lesson=static-batching&stop=now-you", drawn=False)
    drawn(page, "static-batching", "now-you")
    page.click(".edit-run")
    tokens = page.locator(".drawer .request-row input").first
    tokens.fill("12")
    page.click(".drawer [type=submit]")
    met = page.locator(".task-goals .goal.met")
    expect(met).to_have_count(1)
    title = page.locator(".task-title")
    english = title.inner_text()
    page.evaluate("inflightLearn.speak('de')")
    expect(title).to_have_text(page.evaluate("inflightLearn.words.task"))
    assert title.inner_text() != english and in_sight(page, ".task-back")
    expect(met).to_have_count(1)
    expect(tokens).to_have_value("12")
    assert tokens.is_visible()
    page.click(".task-back")
    drawn(page, "static-batching", "now-you")
    expect(page.locator(".stop-do .goal.met")).to_have_count(1)


@pytest.mark.slow
def test_two_solved_goals_leave_room_for_the_mask(visit, page_url):  # noqa: F811
    page = visit(
        url=page_url,
        hash="part=learn&lesson=static-batching&stop=now-you",
        size=(1280, 720),
        drawn=False,
    )
    drawn(page, "static-batching", "now-you")
    page.click(".edit-run")
    tokens = page.locator(".drawer .request-row [aria-label='New tokens']")
    goals = page.locator(".task-goals .goal")
    tokens.nth(1).fill("40")  # B alone is long, and then A as well
    page.click(".drawer [type=submit]")
    expect(goals.last).to_have_class("goal met")
    tokens.nth(0).fill("40")
    page.click(".drawer [type=submit]")
    expect(page.locator(".task-title")).to_have_text("Solved")
    settled(page, "inflight.drawn >= 0")
    assert page.locator("#watch .panel.mask .canvas").bounding_box()["height"] > 50


def test_whoever_goes_from_a_task_to_watch_finds_their_own_run(visit, page_url):  # noqa: F811
    page = visit(url=page_url, hash="part=learn&lesson=one-token&stop=now-you", drawn=False)
    drawn(page, "one-token", "now-you")
    page.click(".edit-run")
    page.select_option(".drawer [name=model]", "shakespeare-bpe")
    page.click(".drawer [type=submit]")
    expect(page.locator(".task-goals .goal")).to_contain_text("Your first step computed")
    page.click(".learn .tabs button:has-text('Watch')")
    settled(page, "document.documentElement.dataset.part === 'watch'")
    assert page.evaluate("inflight.run.header.source") == "live"


@pytest.mark.parametrize("size", ["desk", "phone"])
def test_what_is_solved_ends_on_its_answer_and_the_next_lesson(visit, page_url, size):  # noqa: F811
    page = visit(
        url=page_url, hash="part=learn&lesson=one-token&stop=now-you", size=size, drawn=False
    )
    drawn(page, "one-token", "now-you")
    page.click(".edit-run")
    page.select_option(".drawer [name=model]", "shakespeare-bpe")  # nobody brought the run's own
    page.locator(".drawer .request-row textarea").first.fill("To be, or not to be, " * 4)
    assert page.locator(".task-next").is_hidden()
    page.click(".drawer [type=submit]")
    expect(page.locator(".task-title")).to_have_text("Solved")
    # the answer: in words, and in the panels of one's own run, at the step that they speak of
    tokens = page.evaluate("inflight.run.promptLength(inflight.run.requests[0])")
    expect(page.locator(".task-goals .goal")).to_contain_text(
        f"Your first step computed {tokens}; each later one computed 1 at most."
    )
    settled(page, "inflight.drawn === 0")
    lit = page.locator("#watch .panel.lit")
    assert sorted(lit.evaluate_all("(all) => all.map((one) => one.dataset.view)")) == ["kv", "row"]
    assert page.locator(".drawer").is_hidden() and in_sight(page, "#watch .panel.row.lit")
    expect(page.locator(".task-next")).to_have_text("Next lesson: One at a time")
    assert in_sight(page, ".task-next") and in_sight(page, ".task-back")
    page.click(".task-next")
    drawn(page, "one-at-a-time", "queue")
    assert page.locator(".task-strip").is_hidden()


def test_a_run_that_ends_after_its_task_was_left_counts_and_is_not_shown(visit, page_url):  # noqa: F811
    page = visit(url=page_url, hash="part=learn&lesson=one-token&stop=now-you", drawn=False)
    drawn(page, "one-token", "now-you")
    page.click(".edit-run")
    page.select_option(".drawer [name=model]", "shakespeare-bpe")
    page.locator(".drawer .request-row textarea").first.fill("To be, or not to be, " * 4)
    page.evaluate(
        "['.drawer [type=submit]', '.task-back'].forEach(at => document.querySelector(at).click())"
    )
    expect(page.locator(".stop-do .goal")).to_have_class("goal met")
    settled(page, "inflight.entry?.name === 'one-request' && inflight.frame.event.step === 0")
    assert page.locator(".task-strip").is_hidden()


def test_without_an_engine_the_task_says_what_is_needed(learn):  # noqa: F811
    page = learn("lesson=static-batching&stop=now-you")
    drawn(page, "static-batching", "now-you")
    expect(page.locator(".stop-do p")).to_have_text(
        "To change this run, start the page with its engine: make run."
    )
    page.click(".stop-do .button")  # no dead end
    drawn(page, "dynamic-scheduling", "refill")
