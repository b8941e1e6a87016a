"""Without a server: the static site over HTTP and from disk, one page from disk, and a trace in a
notebook's frame.
"""

from __future__ import annotations

import functools
import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import expect

import visualizer  # noqa: F401
from core.config import EngineConfig
from core.errors import InflightError
from core.trace.trace import Trace
from core.workload.presets import PRESETS
from visualizer.__main__ import main
from visualizer.documents.catalogue import TRACES
from visualizer.documents.comparison import recorded
from visualizer.lessons.lessons import LESSONS
from visualizer.lessons.sheets import KINDS
from visualizer.lessons.texts import LANGUAGES
from visualizer.page.site import export_site
from visualizer.server.store import Store
from worlds.browser import settled
from worlds.sites import some
from worlds.visual import record, request


@pytest.fixture(scope="module")
def site(plain_site_folder):
    return plain_site_folder


ROOT = Path(__file__).resolve().parents[2]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A folder on a server of files; yields its address."""
    (folder / "favicon.ico").touch()
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=folder)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def test_the_site_works_on_any_web_server(site, visit):
    with served(site) as url:
        page = visit(url=url, hash="run=chunk-7-by-4&step=1")
        first = Trace.load(TRACES / "chunk-7-by-4.jsonl")
        assert page.evaluate("inflight.run.length") == len(first.events)
        assert page.evaluate("inflight.frame.event.step") == 1


@pytest.mark.slow
def test_the_documents_come_along_and_are_searched_without_any_other_site(tmp_path, visit):
    with pytest.raises(InflightError, match="holds no documents; `make docs` builds them"):
        export_site(tmp_path / "none", docs=tmp_path)
    build = [Path(sys.executable).with_name("zensical"), "build", "--strict"]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    export_site(tmp_path / "site", *some(tmp_path, "chunk-7-by-4"), docs=ROOT / "build" / "docs")
    with served(tmp_path / "site") as url:
        page = visit(url=url, hash="run=chunk-7-by-4")
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.click(".more-button")
        page.get_by_text("Documents").click()
        expect(page.locator("h1")).to_have_text(re.compile("Start"))
        page.locator(".md-tabs").get_by_text("Reference").click()
        expect(page.locator("h3", has_text="SamplingParams")).to_be_visible()
        page.click(".md-search__button")
        page.get_by_placeholder("Search").fill("preempted")
        expect(page.get_by_text(re.compile(r"[1-9]\d* results"))).to_be_visible()
        assert asked and all(address.startswith((url, "data:", "blob:")) for address in asked)


def test_what_a_site_links_to_is_a_file_of_it(tmp_path):
    """On a disk nobody looks for the first page of a folder."""
    (docs := tmp_path / "built").mkdir()
    (docs / "index.html").write_text("<h1>Start</h1>")
    folder = tmp_path / "site"
    export_site(folder, *some(tmp_path, "chunk-7-by-4"), docs=docs)
    pages = [path.read_text(encoding="utf-8") for path in folder.glob("*.html")]
    linked = dict(re.findall(r'"(docs|embed|url)": ?"([^"]*)"', "".join(pages)))
    assert set(linked) == {"docs", "embed", "url"}
    assert [address for address in linked.values() if not (folder / address).is_file()] == []


def test_the_site_opens_from_disk(site, fresh):
    page = fresh(opening=True)
    asked, errors = [], []
    page.on("request", lambda r: asked.append(r.url))
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.goto((site / "watch.html").as_uri())
    settled(page, "inflight.drawn >= 0")
    assert (
        page.evaluate("inflight.run.length") > 10
        and page.evaluate("inflight.opening.on")
        and not errors
    )
    assert all(url.startswith(("file://", "data:", "blob:")) for url in asked)


@pytest.mark.slow
def test_the_sites_compare_tab_opens_from_disk(site, fresh):
    page = fresh()
    asked, errors = [], []
    page.on("request", lambda r: asked.append(r.url))
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.goto((site / "index.html").as_uri() + "#run=chunk-7-by-4&step=1")
    settled(page, "inflight.drawn >= 0")
    assert not any("/compare/" in url for url in asked)  # fetched when it is opened
    page.locator("#watch .tabs button", has_text="Compare").click()
    settled(
        page,
        "window.inflightCompare && inflightCompare.doc && inflightCompare.race.lastMs !=="
        " undefined",
    )
    names = [entry["name"] for entry in recorded() if not entry["group"]]
    assert (
        page.locator(".compare .top .presets [data-name]").evaluate_all(
            "all => all.map(e => e.dataset.name)"
        )
        == names
    )
    page.locator(".compare .top select.group").select_option("engines-kv-pressure")
    settled(page, "inflightCompare.doc.name === 'engines-kv-pressure'")
    assert page.locator(".compare .racer-name").all_inner_texts() == [
        "vLLM",
        "continuous",
        "transformers",
    ]
    page.locator(".compare .top select.more").select_option(names[-1])
    settled(page, "(n) => inflightCompare.doc.name === n", names[-1])
    assert page.locator(".compare .top select.group").input_value() == ""
    assert not page.locator(".new-button").is_visible()
    page.locator("[data-chart=total_time]").scroll_into_view_if_needed()
    page.locator("[data-chart=total_time] .main-svg").first.wait_for()
    with page.expect_download() as found:
        page.locator("[data-chart=total_time]").get_by_role("button", name="HTML").click()
    assert found.value.path().stat().st_size > 1_000_000
    page.locator(".compare .tabs button", has_text="Watch").click()
    settled(
        page,
        "document.querySelector('#watch .inflight').getClientRects().length &&"
        " location.hash.includes('step=1')",
    )
    assert not errors and all(url.startswith(("file://", "data:", "blob:")) for url in asked)


def test_the_site_shows_a_leak_that_was_recorded_and_says_where_there_is_none(site, fresh):
    page = fresh()
    errors = []
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.goto((site / "index.html").as_uri() + "#run=kv-pressure&step=20&detail=full")
    settled(page, "inflight.drawn >= 0")
    leak = page.locator(".panel.mask .tools >> text=Leak")
    leak.click()
    card = page.locator("#watch .card[open]")
    assert "this page has none" in card.inner_text()
    card.get_by_role("button", name=PRESETS["three-lengths"].title).click()
    settled(page, "inflight.pair.leaks")
    assert page.evaluate("[inflight.run.header.leak, inflight.run.header.source]") == [
        True,
        "recorded",
    ]
    assert page.evaluate("document.documentElement.dataset.part || 'watch'") == "watch"
    assert page.evaluate("inflight.run.texts.output") != page.evaluate(
        "inflight.pair.other.run.texts.output"
    )
    leak.click()
    settled(page, "!inflight.run.header.leak && inflight.entry.name === 'three-lengths'")
    assert not errors


def test_a_contender_has_a_link_on_the_site_too(site, fresh):
    page = fresh()
    page.goto((site / "index.html").as_uri() + "#comparison=equal-lengths&racer=static&step=7")
    settled(
        page,
        "window.inflight && inflight.entry && inflight.entry.racer === 'static' && inflight.frame",
    )
    assert page.evaluate("[inflight.run.header.policy, inflight.frame.event.step]") == ["static", 7]


def test_a_site_of_one_run_has_no_tabs_for_what_is_not_on_record(tmp_path, fresh):
    page = fresh()
    page.goto(export_site(tmp_path / "site", *some(tmp_path, "chunk-7-by-4")).as_uri())
    settled(page, "inflight.drawn >= 0")
    assert (
        page.locator("#watch .tabs button").all_inner_texts() == []
        and not (tmp_path / "site" / "compare").exists()
    )


def test_a_site_without_recordings_is_refused_in_words(tmp_path, capsys):
    with pytest.raises(InflightError, match="There are no recorded runs"):
        export_site(tmp_path, tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="2"):
        main(["export-site", str(tmp_path / "file")])
    assert "cannot be written" in capsys.readouterr().err


def test_one_page_opens_from_disk(tmp_path, visit):
    ran = record(
        EngineConfig(max_num_seqs=2, max_num_batched_tokens=8),
        request("r0", 5, 6),
        request("</script><b>", 9, 4, 1),
    )
    store = Store(tmp_path, 2**24, lambda path: path.as_uri())
    page = visit(url=store.export("html", store.put(ran)["id"])["url"])
    assert page.evaluate("inflight.run.length") == len(ran.events)


def test_a_notebook_shows_the_player(visit):
    ran = record(
        EngineConfig(max_num_seqs=2, max_num_batched_tokens=8),
        request("r0", 5, 6),
        request("r1", 9, 4, 1),
    )
    frame = ran._repr_html_()
    assert "allow-same-origin" not in frame  # what a trace says is none of the notebook's
    page = visit(files={"notebook": f"<html><body><h1>cell</h1>{frame}</body></html>"}, drawn=False)
    page.goto("http://page.test/notebook")
    inside = page.frames[1]
    settled(inside, "window.inflight && inflight.drawn >= 0")
    assert inside.evaluate("inflight.run.length") == len(ran.events)
    assert "nothing has run yet" in replace(ran, events=[])._repr_html_()


def test_the_site_has_the_lessons_with_their_sheets(site, fresh):
    """Opened from disk: a lesson, its worksheet, and the lesson as one file."""
    assert {
        f"{prefix}-{language}.html"
        for lesson in LESSONS
        for prefix in (*(f"{lesson.name}-{kind}" for kind in KINDS), f"inflight-{lesson.name}")
        for language in LANGUAGES
    } <= {path.name for path in (site / "learn").iterdir()}
    page = fresh()
    page.goto(f"{(site / 'index.html').as_uri()}#part=learn&lesson=static-batching&stop=padding")
    settled(page, "window.inflightLearn && inflightLearn.drawn === 'static-batching/padding'")
