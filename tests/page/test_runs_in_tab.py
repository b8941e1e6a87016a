"""What the page does with the engine in the visitor's tab: on a site of files, where there is no
other, and on a server's page, where it is the first choice.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from core.cli.check import _engine
from core.proof.verify import verify
from core.recorders.texts import tokenizer_of
from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES
from worlds.browser import settled
from worlds.page_server import serve
from worlds.pyodide import engine_files  # noqa: F401
from worlds.static_host import hosted

pytestmark = pytest.mark.slow
DATA = Path(__file__).resolve().parents[1] / "data"
RUN = ".inflight:not(.compare) .drawer .run-button"


@pytest.fixture(scope="module")
def site(site_folder):
    with hosted(site_folder) as host:
        yield host


@pytest.fixture
def opened(site, visit):
    def open_site(hash: str = "run=short-and-long", **how):
        return visit(url=site.url, hash=hash, **how)

    return open_site


def run(page):
    """Press Run and wait for the end."""
    page.click(RUN)
    settled(page, "!inflight.running && inflight.live.ended")


def saved(page, kind, path):
    """A file of the run on screen, by its name in the menu."""
    page.click(".export-button")
    with page.expect_download() as download:
        page.locator(".menu button", has_text=kind).first.click()
    download.value.save_as(path)
    return path


def test_requests_are_changed_and_run_without_a_server(opened, site, tmp_path):
    page = opened()
    before = len(site.asked)
    page.click(".edit-button")
    expect(page.locator("[name=device]")).to_have_text("your machine")
    expect(page.locator("label:has([name=device]) small")).to_contain_text("stays on your machine")
    # nobody has asked for it yet
    assert not [path for path in site.asked[before:] if path.endswith((".wasm.gz", "/weights.gz"))]
    run(page)
    assert page.inner_text(".source .word") == "Run in a browser tab"
    shipped = Trace.load(TRACES / "short-and-long.jsonl")
    trace = Trace.load(saved(page, "Trace", tmp_path / "run.jsonl"))
    assert trace.outputs == shipped.outputs and "Chromium" in trace.header.device_name
    page.select_option("[name=policy]", "static")
    run(page)
    assert page.inner_text(".policy-chip >> nth=0").startswith("static")
    lines = saved(page, "Trace", tmp_path / "static.jsonl").read_text().splitlines()
    found = verify(lines, tokenizer_of, _engine)
    assert (
        Trace.from_lines(lines).header.policy.name == "static"
        and found.complete
        and found.rerun.tokens == found.num_tokens > 0
    )
    lanes = json.loads(saved(page, "Perfetto", tmp_path / "perfetto.json").read_text())
    assert lanes["traceEvents"]


def test_a_link_to_a_run_of_the_tab_runs_it_again(opened):
    page = opened()
    page.click(".edit-button")
    page.select_option("[name=policy]", "static")
    run(page)
    settled(page, "location.hash.includes('spec=')")
    texts = page.evaluate("inflight.run.requests.map(r => r.tokens?.length ?? r.id)")
    link = page.evaluate("location.hash.slice(1)")
    again = opened(link)
    settled(again, "!inflight.running && inflight.run.header.policy === 'static'")
    assert again.evaluate("inflight.run.requests.map(r => r.tokens?.length ?? r.id)") == texts
    assert again.inner_text(".source .word") == "Run in a browser tab"


def test_what_if_and_leak_are_run_in_the_tab(opened):
    page = opened("run=greedy-together")
    page.click(".what-button")
    page.locator(".what-policy", has_text="static").first.click()
    settled(page, "inflight.pair.members.length === 2")
    assert page.evaluate("inflight.pair.members.map(m => m.entry.id.slice(0, 4))") == [
        "tab-",
        "tab-",
    ]
    page.click(".pair-go")
    page.locator(".leak-button").first.click()
    settled(page, "inflight.leak.on")
    assert page.inner_text(".source .word") == "Run in a browser tab"
    expect(page.locator(".pair-says")).to_contain_text(
        "Every request also reads the next one's keys"
    )


def test_a_comparison_is_measured_in_the_tab_and_says_so(opened):
    page = opened("part=compare", drawn=False)
    settled(page, "inflightCompare.doc")
    page.click(".new-button")
    form = page.locator(".compare .drawer")
    form.locator("[name=preset]").select_option("short-and-long")
    form.locator("[name=repeats]").fill("1")
    form.locator(".run-button").click()
    expect(form.locator(".run-message")).to_have_text("Done: the race shows the run of each.")
    assert page.inner_text(".compare .source").startswith("Measured in this tab")
    assert "Chromium" in page.evaluate("document.querySelector('.compare .where').textContent")
    assert page.locator(".compare .chart").count() > 3
    assert not page.locator(".equivalence-run").is_visible()  # it takes torch


def test_files_are_opened_in_the_tab_and_sent_nowhere(opened, site):
    page = opened()
    asked = []
    page.on("request", lambda request: asked.append((request.method, request.url)))
    for files in (
        ["vllm-0.32.raw.jsonl.gz"],
        ["transformers-5.23.raw.jsonl.gz"],
        [f"vllm-0.32-two-ranks.rank{n}.raw.jsonl.gz" for n in (0, 1)],
    ):
        was = page.evaluate("inflight.runId")
        page.click(".export-button")
        with page.expect_file_chooser() as chooser:
            page.locator(".menu button", has_text="Open a trace").click()
        chooser.value.set_files([DATA / name for name in files])
        settled(page, "(was) => inflight.runId && inflight.runId !== was", was)
        expect(page.locator(".toast")).to_have_text(
            "Read and checked in this tab: nothing of it left your machine."
        )
        assert page.inner_text(".source .word") == "From a file"
    assert {method for method, _ in asked} == {"GET"}


def test_a_lesson_ends_with_the_learners_own_run(opened):
    page = opened("part=learn&lesson=one-token&stop=now-you", drawn=False)
    page.click(".stop-do .edit-run")
    page.select_option("[name=model]", "shakespeare-bpe")  # nobody brought the recorded run's
    page.locator(".request-rows textarea").first.fill(
        "To be, or not to be, that is the question: whether tis nobler in the mind to suffer"
    )
    run(page)
    expect(page.locator(".task-goals .goal.met")).not_to_have_count(0)


def test_two_clicks_start_one_run_and_stop_ends_it(opened):
    page = opened("run=poisson-32")
    page.click(".edit-button")
    for row in page.get_by_label("New tokens").all():
        row.fill("300")
    # thousands of steps: it goes on until it is cancelled
    page.select_option("[name=policy]", "sequential")
    page.evaluate(f"() => {{ const b = document.querySelector('{RUN}'); b.click(); b.click(); }}")
    settled(page, "inflight.live.run?.length > 3")
    page.evaluate("inflight.editor.run()")
    expect(page.locator(".toast")).to_have_text("A run is already in progress: cancel it first.")
    page.click(".drawer .cancel-button")
    settled(page, "!inflight.running")
    expect(page.locator(".drawer .run-message")).to_contain_text("The run was cancelled after")
    assert page.evaluate("inflight.visit.runs.length") <= 1


def test_on_a_servers_page_the_tab_is_the_first_choice_and_the_choice_is_kept(
    page_url,
    visit,
    engine_files,  # noqa: F811
):
    page = visit(url=page_url, hash="run=greedy-together", in_tab=True)
    device = page.locator("#watch [name=device]")
    run_button = "#watch .drawer .run-button"
    page.click("#watch .edit-button")
    settled(page, "inflight.editor.state")
    assert device.evaluate("s => [...s.options].map(o => o.text)") == [
        "your machine",
        "the server",
        "the server: CPU",
        "the server: CUDA",
    ]

    def ran():
        page.evaluate("inflight.live.ended = null")
        page.click(run_button)
        settled(page, "!inflight.running && inflight.live.ended")
        return page.inner_text("#watch .source .word"), page.evaluate(
            "inflight.run.requests.map(r => r.output ?? r.id)"
        )

    tab = ran()
    assert tab[0] == "Run in a browser tab"
    device.select_option("auto")
    server = ran()
    assert server[0] == "Run by the server" and server[1] == tab[1]
    page.select_option("#watch [name=dtype]", "bfloat16")
    assert device.evaluate("s => s.value") == "auto" and device.locator("option").count() == 3
    page.reload()
    settled(page, "inflight.drawn >= 0")
    page.click("#watch .edit-button")
    settled(page, "inflight.editor.state")
    assert device.evaluate("s => s.value") == "auto"


def test_where_pyodide_cannot_be_had_the_page_says_why_there_is_neither(visit, tmp_path):
    why = (
        "they need Pyodide, which `python -m inflight models --fetch smollm2` brings to the machine"
    )
    with serve(INFLIGHT_PYODIDE=str(tmp_path)) as url:
        page = visit(url=url, hash="run=short-and-long", in_tab=True)
        page.locator("#watch .tabs button", has_text="Write").click(force=True)
        expect(page.locator("#watch .toast")).to_contain_text(why)
        page.click("#watch .edit-button")
        settled(page, "inflight.editor.state")
        device = page.locator("#watch label:has([name=device])")
        expect(device.locator("small")).to_contain_text(why)
        assert device.locator("option").all_inner_texts() == ["auto", "CPU", "CUDA"]
        page.locator("#watch .tabs button", has_text="Learn").click()
        page.locator(".inflight-learn .tabs button", has_text="Write").click(force=True)
        expect(page.locator(".inflight-learn .toast")).to_contain_text(why)
        page.goto("about:blank")
