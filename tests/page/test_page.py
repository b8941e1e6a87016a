"""The whole page in a real browser: what a person can do from opening it to running, breaking,
sharing and taking away.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from core.trace.trace import Trace
from core.workload.presets import PRESETS
from visualizer.documents.catalogue import TRACES
from worlds.axe import serious
from worlds.browser import open_editor, settled, still

SHORT = "nanogpt-chunked-4"  # a preset that runs in a second or two


@pytest.fixture
def open_page(visit, page_url) -> Callable[..., Page]:
    """`open_page(hash="run=…", size="phone")`."""
    return lambda **how: visit(url=f"{page_url}/", **how)


def events_of(page: Page) -> list[int]:
    return page.evaluate(
        "Array.from({length: inflight.run.length}, (_, i) => inflight.run.stepOf(i))"
    )


def edit(page: Page, preset: str = SHORT) -> None:
    """Open the editor on a preset."""
    open_editor(page)
    page.select_option(".preset-select", preset)
    # one that is on record opens by itself
    settled(page, "(name) => inflight.entry.name === name", preset)


def run(page: Page) -> None:
    page.click(".run-button")
    settled(page, "!inflight.running && inflight.run.header.source === 'live'")


@pytest.mark.smoke
def test_it_opens_on_a_recorded_run_and_weighs_little(fresh, page_url):
    page = fresh(viewport={"width": 1440, "height": 900}, opening=True)
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda e: sizes.append(e["encodedDataLength"]))
    page.goto(f"{page_url}/", wait_until="networkidle")
    settled(page, "inflight.drawn >= 0")
    assert 100_000 < sum(sizes) < 700_000, f"{sum(sizes) / 1000:.0f} kB in {len(sizes)} answers"
    expect(page.locator(".source")).to_contain_text("Recorded")
    assert page.evaluate("inflight.run.header.source") == "recorded"
    assert not page.evaluate(
        "document.documentElement.scrollWidth > innerWidth || document.documentElement.scrollHeight"
        " > innerHeight"
    )


@pytest.mark.parametrize("size", ["desk", "phone"])
def test_gradio_adds_no_scroll_and_no_chrome_and_nothing_in_the_editor_is_cut_off(open_page, size):
    page = open_page(size=size)
    width, height = page.evaluate(
        "[document.documentElement.scrollWidth - innerWidth, document.documentElement.scrollHeight"
        " - innerHeight]"
    )
    assert width <= 0 and height <= 0
    box = page.locator(".inflight").bounding_box()
    assert (box["x"], box["y"]) == (0, 0)
    assert (
        page.locator("footer:visible").count() == page.locator(".inflight footer:visible").count()
    )
    edit(page, "gpt2-six")
    assert page.evaluate(
        "(() => { const b = document.querySelector('.drawer-body'); return b.scrollWidth <="
        " b.clientWidth; })()"
    )


def test_a_link_opens_a_recorded_run_at_its_step(open_page):
    page = open_page(hash="run=kv-pressure&step=7")
    trace = Trace.load(TRACES / "kv-pressure.jsonl")
    assert events_of(page) == [e.step for e in trace.events]
    assert page.evaluate("inflight.frame.event.step") == 7


def test_scrubbing_asks_the_server_nothing(open_page):
    page = open_page()
    page.wait_for_load_state("networkidle")
    asked: list[str] = []
    page.on("request", lambda r: asked.append(r.url))
    for key in ["ArrowRight"] * 5 + ["ArrowLeft", "End", "Home", "PageDown", "Shift+ArrowRight"]:
        page.keyboard.press(key)
    still(page)
    assert not asked


@pytest.mark.smoke
def test_a_run_streams_in_and_is_called_live(open_page):
    page = open_page()
    edit(page)
    run(page)
    assert page.evaluate("[inflight.run.header.source, inflight.run.complete]") == ["live", True]
    steps = events_of(page)
    assert steps == list(range(len(steps))) and len(steps) == len(
        Trace.load(TRACES / f"{SHORT}.jsonl").events
    )
    expect(page.locator(".source")).to_contain_text("Run by the server")
    expect(page.locator(".run-message")).to_contain_text("Done")


def test_a_link_to_a_run_reproduces_it_at_its_step(open_page):
    page = open_page()
    edit(page)
    page.fill("input[name=max_num_seqs]", "2")
    run(page)
    page.keyboard.press("Escape")
    page.evaluate("inflight.seekStep(5)")
    settled(page, "location.hash.includes('spec=') && location.hash.includes('step=5')")
    texts = page.evaluate("JSON.stringify(inflight.run.texts)")
    again = open_page(hash=page.evaluate("location.hash.slice(1)"))
    settled(again, "inflight.run && inflight.run.header.source === 'live' && !inflight.running")
    settled(again, "inflight.frame.event.step === 5")
    assert again.evaluate("inflight.run.header.config.max_num_seqs") == 2
    assert again.evaluate("JSON.stringify(inflight.run.texts)") == texts


@pytest.mark.slow
def test_a_run_can_be_cancelled_and_keeps_what_it_has(open_page):
    page = open_page()
    edit(page, "gpt2-six")
    page.fill(".request-row input >> nth=0", "150")  # long enough to be seen at work
    page.click(".run-button")
    page.wait_for_function(
        """() => inflight.running && inflight.run.header.source === 'live' && inflight.run.length > 2
            && (document.querySelector(".cancel-button").click(), true)""",  # noqa: E501
    )
    settled(page, "!inflight.running")
    expect(page.locator(".run-message")).to_contain_text("cancelled after")
    assert page.evaluate("inflight.run.length > 2 && !inflight.run.complete")


@pytest.mark.slow
def test_a_run_that_is_refused_says_why_and_the_last_one_stays(open_page):
    page = open_page()
    edit(page)
    before = events_of(page)
    page.locator(".request-rows textarea, .request-rows input[type=text]").first.fill("日本語")
    page.click(".run-button")
    expect(page.locator(".run-message")).to_contain_text("cannot encode")
    assert events_of(page) == before and page.evaluate("inflight.run.header.source") == "recorded"


def test_a_server_that_is_away_is_named_and_the_next_try_runs(open_page):
    page = open_page()
    page.meant += ("ERR_INTERNET_DISCONNECTED",)
    edit(page)
    page.context.set_offline(True)
    page.click(".run-button")
    expect(page.locator(".run-message")).to_have_text("The server cannot be reached.")
    page.context.set_offline(False)
    run(page)
    assert page.evaluate("inflight.run.complete")


def test_hostile_prompts_neither_run_nor_break_the_layout(open_page):
    page = open_page()
    page.on("dialog", lambda d: pytest.fail(f"a script ran: {d.message}"))
    edit(page, "short-and-long")
    cells = page.locator(".request-rows textarea, .request-rows input[type=text]")
    for index, prompt in enumerate(
        ("<img src=x onerror=alert(1)>", "‮rtl‏ \u0000 😀{{7*7}}${alert(2)}", "x" * 200)
    ):
        cells.nth(index).fill(prompt)
    run(page)
    assert page.evaluate("inflight.run.complete && inflight.run.length") > 3
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    still(page)
    assert page.locator("img[src=x]").count() == 0
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")


def test_a_saved_trace_opens_by_upload_and_a_broken_one_is_refused(open_page, tmp_path):
    page = open_page()

    def upload(path: Path) -> None:
        page.click(".export-button")
        with page.expect_file_chooser() as chosen:
            page.get_by_text("Open a trace").click()
        chosen.value.set_files(path)

    upload(TRACES / "chunk-7-by-4.jsonl")
    settled(page, "inflight.run.header.source === 'uploaded'")
    expect(page.locator(".source")).to_contain_text("From a file")
    steps = events_of(page)
    broken = tmp_path / "broken.jsonl"
    broken.write_text(
        (TRACES / "chunk-7-by-4.jsonl").read_text(encoding="utf-8")[:-200], encoding="utf-8"
    )
    upload(broken)
    expect(page.get_by_text(re.compile("cannot be opened as a trace"))).to_be_visible()
    assert events_of(page) == steps


def test_a_recorded_run_can_be_taken_away(open_page, tmp_path):
    page = open_page(hash=f"run={SHORT}&step=3")
    taken = {}
    for words in ("Trace", "One page", "Perfetto", "This step as a figure"):
        page.click(".export-button")
        with page.expect_download() as download:
            page.locator(".menu button").filter(has_text=re.compile(f"^{words}")).click()
        taken[words] = tmp_path / words
        download.value.save_as(taken[words])
        assert taken[words].stat().st_size > 1000
    assert len(Trace.load(taken["Trace"]).events) == len(
        Trace.load(TRACES / f"{SHORT}.jsonl").events
    )
    assert json.loads(taken["Perfetto"].read_text(encoding="utf-8"))["traceEvents"]


def test_every_sentence_shown_is_the_servers(open_page):
    page = open_page(hash="run=kv-pressure")
    captions = page.evaluate(
        "inflight.replay.captions.map(c => c.say.map(s => typeof s === 'string' ? s :"
        " s.r).join(''))"
    )
    from visualizer.words.captions import captions as compose
    from visualizer.words.captions import plain

    assert captions == [plain(c["say"]) for c in compose(Trace.load(TRACES / "kv-pressure.jsonl"))]
    assert len(captions) > 20


def test_every_preset_can_be_started_from(open_page):
    page = open_page()
    page.click(".edit-button")
    page.wait_for_selector(".request-rows > *")
    offered = page.locator(".preset-select option").evaluate_all(
        "options => options.map(o => o.value)"
    )
    assert set(PRESETS) <= set(offered)


@pytest.mark.parametrize("part", ["watch", "compare"])
def test_every_button_of_the_bar_is_within_reach_on_a_phone(open_page, part):
    page = open_page(size="phone", hash=f"part={part}" if part == "compare" else "")
    if part == "compare":
        settled(page, "window.inflightCompare && inflightCompare.doc")
    top = page.locator(".top:visible")
    for box in top.locator("button:visible").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect().toJSON())"
    ):
        assert box["left"] >= 0 and box["right"] <= 390.5 and box["width"] >= 40


@pytest.mark.parametrize(
    "how", [{}, pytest.param({"size": "phone", "color_scheme": "dark"}, marks=pytest.mark.slow)]
)
def test_no_serious_violation_of_accessibility(open_page, how):
    page = open_page(**how)
    assert serious(page) == []
    open_editor(page)
    assert serious(page) == []
