"""Compare with no server: a new comparison is measured by the engine in the visitor's tab."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from worlds.compare_in_tab import PRESET, accept, measure, site

pytestmark = pytest.mark.slow
# the latter if a step takes too long
CANCELLED = re.compile("The comparison was cancelled|Cancelled. The engine was ended too")


@pytest.fixture(scope="module")
def address(tmp_path_factory, engine_files):
    with site(tmp_path_factory.mktemp("compare"), engine_files) as found:
        yield found


def test_a_comparison_is_measured_and_drawn_in_the_tab(address, returning):
    page = returning(address, has_touch=True)
    page.set_viewport_size({"width": 1440, "height": 900})
    foreign: list[str] = []
    page.on(
        "request", lambda r: r.url.startswith((address, "blob:", "data:")) or foreign.append(r.url)
    )
    accept(measure(page, address), page, "Chromium")
    assert not foreign


def test_a_cancelled_comparison_says_so_and_another_one_is_measured(address, returning):
    page = returning(address, has_touch=True)
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}#part=compare")
    page.wait_for_function("window.inflightCompare?.doc")
    page.locator(".inflight-compare .new-button").click()
    form = page.locator(".inflight-compare .drawer")
    form.get_by_role("button", name="Run", exact=True).click()
    expect(form).to_contain_text("Run 1 of 8: static, warm-up.")
    form.get_by_role("button", name="Cancel", exact=True).click()
    expect(form).to_contain_text(CANCELLED)
    form.locator("[name=preset]").select_option(PRESET)
    form.locator("[name=repeats]").fill("1")
    form.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_function("inflightCompare.doc.source === 'live'")
    assert page.evaluate("inflightCompare.doc.walls.static.length") == 1
