"""The page with the shared engine, in a separate process: `live_url` is a fixture. The teacher's
token is TOKEN.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page

from worlds.browser import settled
from worlds.page_server import serve

TOKEN = "the-teacher's-token"


LIMITS = {"policy": "continuous", "max_num_seqs": 3, "max_num_batched_tokens": 32}


@pytest.fixture(scope="module")
def live_server() -> Iterator[str]:
    with serve(INFLIGHT_TEACHER_TOKEN=TOKEN) as url:
        yield url


@pytest.fixture
def live_url(live_server: str) -> str:
    """The address of the page, its engine empty, at the beginning of a run, and standing still."""
    control(
        live_server,
        clear=True,
        hide_texts=False,
        hide_nicknames=False,
        accepting=True,
        steps_per_s=0,
        **LIMITS,
    )
    while control(live_server)["changing"]:
        time.sleep(0.02)
    return live_server


def control(url: str, **what: object) -> dict:
    answer = httpx.post(
        f"{url}/serve/control",
        json=what,
        headers={"X-Teacher-Token": TOKEN},
        trust_env=False,
        timeout=300,
    )
    return answer.raise_for_status().json()


def opened(visit, url: str, hash: str = "part=live", **context: object) -> Page:
    """The Live tab, once the engine has answered."""
    page = visit(f"{url}/", hash=hash, drawn=False, **context)
    settled(page, "window.inflightLive && inflightLive.before && inflightLive.batch.state.class")
    return page


IDS = "inflightLive.mine.requests.map(own => own.id)"


def ask(page: Page, prompt: str, tokens: int = 12, name: str = "") -> str:
    """The id of the request that the page's form adds."""
    before = page.evaluate(f"{IDS}[0] || ''")
    page.fill("[name=nickname]", name)
    page.fill("[name=tokens]", str(tokens))
    page.fill("[name=prompt]", prompt)
    page.click(".ask-button")
    settled(page, f"(id) => ({IDS}[0] || id) !== id", before)  # listed before it has one
    return page.evaluate(f"{IDS}[0]")


HAVE = (
    "(inflightLive.batch.run && inflightLive.batch.first === inflightLive.batch.chapters[0] ?"
    " inflightLive.batch.run.length : 0)"
)


def sees(page: Page, steps: int) -> None:
    """Wait until the page has so many steps of the present run."""
    settled(page, f"(n) => {HAVE} >= n", steps)


def stepped(url: str, *pages: Page, steps: int) -> None:
    """Let the engine take single steps until the pages have so many."""
    have = pages[0].evaluate(HAVE)
    control(url, steps=steps - have)
    for page in pages:
        sees(page, steps)
