"""`python tests/measure/take_screenshots.py`: the README's pictures of the page, from the recorded
runs, into assets/screenshots/.
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
from visualizer.documents.replay import replay
from visualizer.page.bundle import page_html
from worlds.browser import FLAGS, HERE, SIZES, executable, still

FOLDER = TRACES.parent / "screenshots"


class Shot(NamedTuple):
    """A picture: of which recorded run, at which step (None: its first preemption), how large, and
    what else the address says.
    """

    name: str
    run: str
    step: int | None
    size: str
    more: str = ""


SHOTS = (
    Shot("desktop", "gpt2-six", 6, "desk"),
    Shot("preemption-dark", "kv-pressure", None, "desk", "&theme=dark&detail=full"),
    Shot("tablet", "long-prompt-chunked", 12, "tablet"),
    Shot("phone", "shared-prefix", 6, "phone"),
    Shot("presenter", "short-and-long", 16, "presenter", "&present=1"),
)


def _answer(html: str, route: Route) -> None:
    route.fulfill(body=html, content_type="text/html; charset=utf-8")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS.split())
        for shot in SHOTS:
            width, height = SIZES[shot.size]
            page = browser.new_context(
                viewport={"width": width, "height": height},
                device_scale_factor=2 if width < 500 else 1,
            ).new_page()
            trace = Trace.load(TRACES / f"{shot.run}.jsonl")
            step = (
                next(e.step for e in trace.events if e.preempted)
                if shot.step is None
                else shot.step
            )
            html = page_html({"replay": replay(trace)})
            page.route("**/*", partial(_answer, html))
            page.goto(f"{HERE}#step={step}{shot.more}")
            page.wait_for_function("() => window.inflight && inflight.drawn >= 0")
            still(page)
            page.screenshot(path=FOLDER / f"{shot.name}.png")
            print(shot.name)
        browser.close()


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
