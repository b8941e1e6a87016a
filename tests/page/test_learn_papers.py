"""A lesson's sheets and its file, in a real browser: each opens as a page, or is saved under the
lesson's own name, from a server and from disk.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from visualizer.lessons.texts import texts
from worlds.browser import chromium, fresh, settled, visit  # noqa: F401
from worlds.page_server import page_url  # noqa: F401

TITLE = texts("de", "static-batching")["title"]
WORDS = texts("de", "page")


def opened(page: Page, kind: str) -> Page:
    """The page that a press on a sheet's name opens."""
    with page.context.expect_page() as paper:
        page.click(f".lesson:nth-child(3) .papers-of .link:has-text({kind!r})")
    return paper.value


def is_a_page(paper: Page, kind: str) -> None:
    expect(paper.locator("h1")).to_have_text(f"3. {TITLE}")
    expect(paper.locator(".kind")).to_have_text(kind)
    assert paper.evaluate("[document.contentType, document.characterSet]") == ["text/html", "UTF-8"]
    assert (
        any(letter in paper.inner_text("body") for letter in "äöü")
        and paper.locator("svg").count() > 2
    )
    # its style is allowed
    assert paper.evaluate("getComputedStyle(document.querySelector('.chip')).fontWeight") == "700"
    assert paper.evaluate("window.opener") is None


def test_sheets_open_as_pages_and_a_lesson_is_saved_under_its_own_name(visit, page_url):  # noqa: F811
    page = visit(url=page_url, hash="part=learn&lang=de", drawn=False)
    page.wait_for_selector(".lesson")
    for kind in ("teacher", "learner"):
        paper = opened(page, WORDS[kind])
        is_a_page(paper, WORDS[kind])
        paper.close()
    with page.context.expect_page() as plan:
        page.click(".papers .link")
    expect(plan.value.locator("h1")).to_have_text(WORDS["plan"])
    plan.value.close()
    with page.expect_download() as file:
        page.click(f".lesson:nth-child(3) .papers-of .link:has-text({WORDS['offline']!r})")
    assert file.value.suggested_filename == "inflight-static-batching-de.html"


@pytest.mark.slow
def test_on_the_static_site_from_disk_as_well(plain_site_folder, fresh):  # noqa: F811
    page = fresh(offline=True)
    page.goto(f"{(plain_site_folder / 'index.html').as_uri()}#part=learn&lang=de")
    page.wait_for_selector(".lesson")
    for kind in ("teacher", "learner"):
        is_a_page(opened(page, WORDS[kind]), WORDS[kind])
    lesson = opened(page, WORDS["offline"])
    settled(lesson, "window.inflightLearn && inflightLearn.drawn === 'static-batching/wave'")
    assert lesson.url.split("#")[0].endswith("/inflight-static-batching-de.html")
