"""A comparison that the engine in a browser's tab measures on a site of files: what must hold in
every browser.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from visualizer.page.engine_files import EngineFiles
from visualizer.page.site import export_site
from worlds.figures import known_to_plotly
from worlds.sites import some
from worlds.static_host import hosted

PRESET = "nanogpt-chunked-4"  # a small one, on the small model


@contextmanager
def site(folder: Path, engine: EngineFiles) -> Iterator[str]:
    """The address of a small site: one run, one comparison, and the engine."""
    shipped = some(folder, "short-and-long", comparisons=("equal-lengths",))
    export_site(folder / "site", *shipped, engine=engine)
    with hosted(folder / "site") as host:
        yield host.url


def measure(page: Page, address: str, repeats: int = 3) -> dict[str, Any]:
    """Measure static and continuous as a visitor does; returns the document on screen."""
    page.goto(f"{address}#part=compare")
    page.wait_for_function("window.inflightCompare?.doc")
    page.locator(".inflight-compare .new-button").click()
    form = page.locator(".inflight-compare .drawer")
    form.locator("[name=preset]").select_option(PRESET)
    form.locator("[name=repeats]").evaluate(
        "(field, count) => { field.value = count; }", str(repeats)
    )  # Firefox, driven, adds to it
    form.get_by_role("button", name="Run", exact=True).click()
    expect(form).to_contain_text("Done: the race shows the run")
    page.keyboard.press("Escape")
    return page.evaluate("inflightCompare.doc")


def accept(made: dict[str, Any], page: Page, browser: str, repeats: int = 3) -> None:
    """The document is one that a server could have made, says where it was measured, and is
    drawn.
    """
    names = ["static", "continuous"]
    assert made["names"] == names and [len(walls) for walls in made["walls"].values()] == [
        repeats,
        repeats,
    ]
    assert made["says"]["outputs"] == "Every run wrote the same tokens."
    where = made["data"]["environment"]
    assert where["hardware"].startswith(browser) and where["cpus"] is where["load_average"] is None
    assert "Pyodide" in made["says"]["where"] and "A browser does not tell" in made["says"]["sure"]
    for told in (made, made["translations"]["de"]):
        assert {"total_time", "throughput", "latency", "lane_steps", "kv_use", "cost_curve"} <= {
            f["name"] for f in told["figures"]
        }
        assert all(
            known_to_plotly(f["figure"]).data and "nan" not in f["finding"].lower()
            for f in told["figures"]
        )
    assert page.evaluate("inflightCompare.race.racers.map((racer) => racer.name)") == names
    expect(page.locator(".inflight-compare .source")).to_contain_text("Measured in this tab")
    expect(page.locator(".inflight-compare .equivalence")).to_be_hidden()
    page.locator(".inflight-compare .statistics summary").click()
    charts = page.locator(".inflight-compare .chart")
    assert charts.count() == len(made["figures"])
    for chart in charts.all():
        chart.scroll_into_view_if_needed()
        expect(chart.locator(".main-svg").first).to_be_visible()
