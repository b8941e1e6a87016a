"""The page in Firefox: what is drawn there is what Chromium draws."""

from __future__ import annotations

import pytest

from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES
from worlds.browser import PATIENCE, settled
from worlds.static_host import hosted

pytestmark = pytest.mark.slow


def test_the_site_plays_a_run(firefox, plain_site_folder):
    page = firefox.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(PATIENCE)
    errors, asked = [], []
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.on("request", lambda r: asked.append(r.url))
    with hosted(plain_site_folder) as host:
        page.goto(f"{host.url}#run=chunk-7-by-4&step=1")
        settled(page, "inflight.drawn >= 0")
        assert page.evaluate("inflight.run.length") == len(
            Trace.load(TRACES / "chunk-7-by-4.jsonl").events
        )
        page.get_by_role("button", name="Compare").first.click()
        settled(page, "window.inflightCompare?.doc")
        assert not errors and all(url.startswith((host.url, "data:", "blob:")) for url in asked)
        page.close()
