"""`python tests/measure/take_screenshots.py`: the documents' pictures of the page, from what is
recorded, into docs/pictures/, and the one that previews of links show.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import Route, sync_playwright

from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES
from visualizer.documents.comparison import RECORDED, load
from visualizer.documents.replay import replay
from visualizer.page.bundle import PICTURE, page_html
from visualizer.page.one_file import comparison_html
from worlds.browser import FLAGS, HERE, SIZES, executable, still

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"


class Shot(NamedTuple):
    """A picture: where it goes, of which recorded run or comparison, how large, and what the
    address says.
    """

    path: Path
    of: str
    size: str
    address: str


SHOTS = (
    Shot(PICTURE, "six-questions", "desk", "#step=12"),
    Shot(PICTURES / "watch.png", "six-questions", "desk", "#step=12&detail=full"),
    Shot(PICTURES / "memory.png", "chat-under-pressure", "desk", "#step=26&detail=full"),
    Shot(PICTURES / "presenter.png", "six-questions", "presenter", "#step=12&present=1"),
    Shot(PICTURES / "compare.png", "six-questions", "desk", ""),
)


def _html(shot: Shot) -> str:
    if shot.path.stem == "compare":
        return comparison_html(load(RECORDED / shot.of).comparison)
    return page_html({"replay": replay(Trace.load(TRACES / f"{shot.of}.jsonl"))})


def _answer(html: str, route: Route) -> None:
    route.fulfill(body=html, content_type="text/html; charset=utf-8")


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS.split())
        for shot in SHOTS:
            width, height = SIZES[shot.size]
            page = browser.new_page(viewport={"width": width, "height": height})
            page.route("**/*", partial(_answer, _html(shot)))
            page.goto(f"{HERE}{shot.address}")
            page.wait_for_function("() => window.inflight?.drawn >= 0 || window.inflightCompare")
            still(page)
            page.screenshot(path=shot.path)
            print(shot.path.stem)
        browser.close()


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
