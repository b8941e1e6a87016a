"""The Learn tab on recorded runs, in a real Chromium: the fixtures `world` and `learn`."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from core.trace.trace import Trace
from visualizer.documents.catalogue import recorded_runs
from visualizer.documents.replay import captions_in, replay
from visualizer.lessons.document import document, faq, hints, recorded, runs_of_lessons
from visualizer.lessons.texts import LANGUAGES
from visualizer.page.bundle import page_html
from visualizer.page.tabs import TABS, part, tab_script
from worlds.browser import settled, visit  # noqa: F401

TABS_HERE = [tab for tab in TABS if tab["name"] != "compare"]


@pytest.fixture(scope="module")
def world() -> tuple[dict, dict, dict[str, str]]:
    """Options of the player, its parts, and the files beside the page."""
    files, catalogue = {}, []
    for entry, path in recorded_runs():
        if entry["name"] in runs_of_lessons():
            url = f"runs/{entry['name']}.json"
            files[url] = json.dumps(replay(Trace.load(path)))
            catalogue.append(entry | {"url": url})
    traces = recorded()
    captions = {run: {"de": f"learn/{run}-de.json"} for run in runs_of_lessons()}
    files |= {
        urls["de"]: json.dumps(captions_in(traces(run), "de")) for run, urls in captions.items()
    }
    files |= {
        f"learn/{language}.json": json.dumps(document(traces, language)) for language in LANGUAGES
    }
    files["learn/page.js"] = tab_script("learn")
    documents = {language: f"learn/{language}.json" for language in LANGUAGES}
    parts = {
        "learn": part(
            "learn",
            "learn/page.js",
            {"server": False, "documents": documents, "captions": captions, "tabs": TABS_HERE},
        )
    }
    return (
        {"catalogue": catalogue, "tabs": TABS_HERE, "asked": faq(), "terms": hints()},
        parts,
        files,
    )


@pytest.fixture
def learn(
    visit: Callable[..., Page],  # noqa: F811
    world: tuple[dict, dict, dict[str, str]],
) -> Callable[..., Page]:
    """`learn(hash, size)`: the tab, open."""

    def open_tab(hash: str = "", size: str | tuple[int, int] = "desk") -> Page:
        options, parts, files = world
        here = {**files, "": page_html(options, parts)}
        page = visit(files=here, size=size, hash=f"part=learn{'&' * bool(hash)}{hash}", drawn=False)
        page.wait_for_selector(".lesson", state="attached")
        return page

    return open_tab


def drawn(page: Page, lesson: str, stop: str) -> None:
    settled(page, "(at) => inflightLearn.drawn === at", f"{lesson}/{stop}")
