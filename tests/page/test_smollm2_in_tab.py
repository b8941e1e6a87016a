"""SmolLM2 in the visitor's own tab, on a site of files: offered with its size, fetched once, kept,
and what it writes is what was recorded.
"""

from __future__ import annotations

import json
import shutil

import pytest
from playwright.sync_api import expect

from core import Engine
from core.browser.pyodide import find_pyodide
from core.config import SMOLLM2
from core.torch_engine.models.load import load_adapter
from core.torch_engine.models.names import packed_smollm2
from core.trace.trace import Trace
from core.workload.presets import PRESETS
from visualizer.page.bundle import script, style
from visualizer.page.engine_files import EngineFiles
from visualizer.page.site import export_site
from visualizer.page.story import runs_of_story
from worlds.browser import open_editor, settled
from worlds.sites import some
from worlds.static_host import hosted
from worlds.tab_engine import TabEngine
from worlds.tab_runs import accept, writes_again

pytestmark = pytest.mark.slow

BAR = ".engine-bar"
OFFER = "To run here, smollm2 is fetched once: 93 MB."
WEIGHTS = "smollm2-1/weights.gz"
QUESTIONS = (
    "What is the capital of Italy?",
    "Who painted the Mona Lisa?",
    "What is 3 + 4?",
    "Name a big animal.",
    "Is the sun a star?",
    "What colour is grass?",
)
PAGE = """<!doctype html><title>An engine</title><style>%s</style><body><script>%s
const { BrowserEngine } = inflightModules["engine/browser_engine.js"];
window.start = (base) => { window.engine = new BrowserEngine(base); };
</script>"""


@pytest.fixture(scope="module")
def files(users_packed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFLIGHT_MODELS_DIR", users_packed)
        return EngineFiles(find_pyodide(), packed_smollm2())


@pytest.fixture(scope="module")
def folder(tmp_path_factory, files):
    made = tmp_path_factory.mktemp("site")
    shipped = some(made, "three-short", *runs_of_story())
    folder = export_site(made / "site", *shipped, engine=files).parent
    (folder / "favicon.ico").touch()
    (folder / "blank.html").write_text("<!doctype html><title>An engine</title>")
    page = PAGE % (style(), script("engine/browser_engine.js"))
    (folder / "engine.html").write_text(page)
    return folder


@pytest.fixture(scope="module")
def host(folder):
    with hosted(folder) as host:
        yield host


@pytest.fixture
def site(host):
    yield host
    host.reset()


@pytest.fixture
def page(returning, site):
    """In a browser that may have kept the engine, but has not this model."""
    page = returning(site.url, viewport={"width": 1440, "height": 900})
    page.goto(f"{site.url}blank.html")
    page.evaluate(
        """async () => {
            const cache = await caches.open('inflight-engine');
            for (const { url } of await cache.keys())
                if (url.includes('smollm2')) await cache.delete(url);
        }"""
    )
    return page


def watched(page, site, run="six-questions"):
    page.asked = []
    page.on("request", lambda r: page.asked.append((r.method, r.url)))
    page.goto(f"{site.url}watch.html#run={run}&detail=full")
    page.wait_for_function("() => window.inflight && inflight.drawn >= 0")


def press_run(page):
    page.locator(".inflight:not(.compare) .drawer .run-button").click()


def fetched(site):
    return [path for path in site.asked if path.endswith(WEIGHTS)]


def ended(page):
    settled(
        page,
        "!inflight.live.going && inflight.live.ended && inflight.run === inflight.live.ended.run",
    )


def trace(page):
    saved = page.evaluate(
        "inflight.engines.call('export', 'jsonl', inflight.entry.id).then(({ url }) =>"
        " fetch(url)).then(f => f.text())"
    )
    return Trace.from_lines(saved.splitlines())


def test_six_questions_of_ones_own_are_answered_in_three_lanes(
    site, page, users_packed, monkeypatch
):
    """As torch answers them."""
    monkeypatch.setenv("INFLIGHT_MODELS_DIR", users_packed)
    watched(page, site)
    open_editor(page)
    expect(page.locator(".drawer .model-says").first).to_contain_text("To fetch88.7 MiB")
    rows = page.locator(".request-row textarea")
    expect(rows).to_have_count(6)
    expect(page.locator("[name=as_messages]")).to_be_checked()
    for row, question in zip(rows.all(), QUESTIONS, strict=True):
        row.fill(question)
    for row in page.locator(".request-row [aria-label='New tokens']").all():
        row.fill("8")
    press_run(page)
    expect(page.locator(BAR)).to_contain_text(OFFER)
    page.locator(".drawer .run-buttons").get_by_role("button", name="Cancel").click()
    expect(page.locator(BAR)).to_have_count(0)
    press_run(page)
    page.locator(BAR).get_by_role("button", name="Cancel").click()
    expect(page.locator(".run-message").first).to_have_text(
        "Nothing was run, because its model was not fetched."
    )
    assert not [path for path in site.asked if path.endswith((WEIGHTS, ".wasm.gz"))]
    press_run(page)
    site.held = {WEIGHTS}
    page.locator(BAR).get_by_role("button", name="Fetch it").click()
    expect(page.locator(BAR)).to_contain_text("Fetching the model smollm2: ")
    site.held = set()
    ended(page)
    found = trace(page)
    assert "Chromium" in found.header.device_name and found.header.config.max_num_seqs == 3
    messages = [r.messages for r in found.workload]
    assert messages == [({"role": "user", "content": q},) for q in QUESTIONS]
    torchs = Engine(*load_adapter(SMOLLM2, "cpu", "float32"), found.header.config)
    assert len(found.outputs) == 6 and found.outputs == torchs.run(found.workload).outputs
    assert {s.lane for event in found.events for s in event.segments} == {0, 1, 2}
    assert {method for method, _ in page.asked} == {"GET"}
    outside = [url for _, url in page.asked if not url.startswith((site.url, "data:", "blob:"))]
    assert outside == [] and len(fetched(site)) == 1


@pytest.fixture(scope="module")
def engine(chromium, host, files):
    """One with the model, in a page that is closed afterwards."""
    page = chromium.new_page()
    page.goto(f"{host.url}blank.html")
    engine = TabEngine(page, files.address + "worker.js")
    engine.ask("load", model=SMOLLM2, agreed=True)
    yield engine
    page.close()


@pytest.mark.parametrize("name", [name for name, p in PRESETS.items() if p.model == SMOLLM2])
def test_every_recorded_run_is_written_again(engine, users_packed, monkeypatch, name):
    """Token for token; `check` accepts a trace with chunks and one under pressure."""
    if name in ("page-to-summarize", "chat-under-pressure"):
        monkeypatch.setenv("INFLIGHT_MODELS_DIR", users_packed)
        accept(engine, name, "Chromium")
    else:
        writes_again(engine, name)


def test_threads_write_the_same_where_the_host_isolates_the_page(site, page, folder, files, engine):
    """And one thread computes where it does not. The site says itself what a host should send."""
    every, *lines = (folder / "_headers").read_text().splitlines()
    assert every == "/*"
    site.headers = dict(line.strip().split(": ") for line in lines)
    page.reload()
    isolated = TabEngine(page, files.address + "worker.js")
    isolated.ask("load", model=SMOLLM2, agreed=True)
    preset = PRESETS["brief-continuous"]
    spec = {
        "workload": preset.workload.to_json(),
        "config": preset.config.to_json(),
        "model": preset.model,
    }
    one, many = (Trace.from_lines(tab.trace(spec)) for tab in (engine, isolated))
    cores = page.evaluate("navigator.hardwareConcurrency")
    assert (one.header.threads, many.header.threads) == (1, min(4, cores)) and cores > 1
    assert [event.sampled for event in one.events] == [event.sampled for event in many.events]


def test_what_if_leak_and_a_comparison_run_on_it(site, page):
    watched(page, site, "three-short")
    page.click(".what-button")
    page.locator(".what-policy", has_text="static").first.click()
    page.locator(BAR).get_by_role("button", name="Fetch it").click()
    settled(page, "inflight.pair.members.length === 2")
    assert page.evaluate("inflight.pair.members.every(m => m.entry.id.startsWith('tab-'))")
    page.click(".pair-go")
    page.locator(".leak-button").first.click()
    settled(page, "inflight.leak.on")
    found = page.evaluate(
        """async () => {
            const spec = await inflight.editor.specOnScreen();
            for (const request of spec.workload.requests) request.sampling.max_new_tokens = 6;
            const asked = { ...spec, policies: ["static", "continuous"], repeats: 1 };
            const { url } = await inflight.engines.ask("compare", asked, "", () => {});
            return inflight.engines.tab.document(url);
        }"""
    )
    assert found["data"]["outputs_identical"] and "Chromium" in found["says"]["where"]
    assert len(fetched(site)) == 1


KEPT = """caches.open('inflight-engine').then((cache) => cache.keys()).then((kept) =>
    kept.map(({ url }) => url).filter((url) => url.includes('smollm2')))"""
LOADED = "engine.ready('smollm2').then(({ fetched }) => fetched, (e) => e.message)"
WHOLE = 92_000_000  # bytes, and some more


def keeps(page, condition):
    """Wait until this holds of what is `kept`; looking in every frame would hold up the worker."""
    page.evaluate(
        f"""async () => {{
            for (let kept = []; !({condition}); kept = await {KEPT})
                await new Promise((done) => setTimeout(done, 500));
        }}"""
    )


def begun(page, site):
    """A page that is asked for the model: the question."""
    page.goto(f"{site.url}engine.html")
    address = next(path.name for path in (site.folder / "engine").glob("????????????"))
    page.evaluate("(name) => start(`engine/${name}/`)", address)
    page.evaluate(f"() => {{ window.loading = {LOADED}; }}")
    return page.locator(BAR)


def test_a_download_that_breaks_off_is_taken_up_where_it_ended(site, page):
    bar = begun(page, site)
    site.broken = {WEIGHTS: 60_000_000}
    bar.get_by_role("button", name="Fetch it").click()
    expect(bar).to_contain_text("The download of the engine broke off")
    kept, sent, site.broken = page.evaluate("engine.kept('smollm2')"), site.sent, {}
    assert 2**22 <= kept <= 60_000_000
    bar.get_by_role("button", name="Try again").click()
    assert page.evaluate("loading") > WHOLE  # all that this page's worker fetched
    size = (site.folder / "engine" / WEIGHTS).stat().st_size
    assert size <= kept + site.sent - sent < size + 2**20 and len(fetched(site)) == 2
    keeps(page, "kept.length === 1 && !kept[0].includes('?')")


def test_a_reload_in_the_middle_of_the_download(site, page):
    bar = begun(page, site)
    site.pace = 40e6
    bar.get_by_role("button", name="Fetch it").click()
    keeps(page, "kept.length >= 3")
    page.reload()
    site.pace = None
    bar = begun(page, site)
    expect(bar).to_contain_text(OFFER)
    expect(bar).to_contain_text("MB of it are here already.")
    bar.get_by_role("button", name="Fetch it").click()
    assert 0 < page.evaluate("loading") < WHOLE


@pytest.mark.parametrize("wrong", ["no ranges", "a piece that is not right"])
def test_a_download_that_cannot_be_taken_up_begins_anew(site, page, wrong):
    bar = begun(page, site)
    site.broken, site.ranges = {WEIGHTS: 60_000_000}, wrong != "no ranges"
    bar.get_by_role("button", name="Fetch it").click()
    expect(bar).to_contain_text("The download of the engine broke off")
    site.broken = {}
    if site.ranges:
        page.evaluate(
            """async () => {
                const cache = await caches.open('inflight-engine');
                const kept = (await cache.keys()).filter(({ url }) => url.includes('?from='));
                const size = (await (await cache.match(kept.at(-1))).arrayBuffer()).byteLength;
                await cache.put(kept.at(-1), new Response(new Uint8Array(size)));
            }"""
        )
        bar.get_by_role("button", name="Try again").click()
        expect(bar).to_contain_text("The download of the engine broke off")
        assert page.evaluate(KEPT) == []
    bar.get_by_role("button", name="Try again").click()
    assert page.evaluate("loading") > WHOLE


def test_it_is_taken_out_of_this_browser_where_its_size_is_shown(site, page):
    watched(page, site)
    open_editor(page)
    says = page.locator(".drawer .model-says").first
    expect(says).to_contain_text("To fetch88.7 MiB")
    for row in page.locator(".request-row [aria-label='New tokens']").all():
        row.fill("4")
    press_run(page)
    page.locator(BAR).get_by_role("button", name="Fetch it").click()
    ended(page)
    expect(says).to_contain_text("In this browser94.1 MiB")
    says.get_by_role("button", name="Remove").click()
    expect(says).to_contain_text("To fetch88.7 MiB")
    assert page.evaluate(KEPT) == []
    settled(page, "location.hash.includes('spec=')")
    page.reload()
    page.wait_for_function("() => window.inflight && inflight.drawn >= 0")
    expect(page.locator(BAR)).to_contain_text(OFFER)  # its address runs it again


@pytest.mark.parametrize(
    "lacks",
    [
        "Object.defineProperty(navigator, 'deviceMemory', { value: 1 });\n",
        "WebAssembly.Memory = class { constructor() { throw new RangeError('no'); } };\n",
    ],
)
def test_a_browser_without_memory_is_told_before_anything_is_fetched(site, fresh, lacks):
    page = fresh()
    page.route(
        "**/worker.js",
        lambda r: r.fulfill(body=lacks + r.fetch().text(), content_type="text/javascript"),
    )
    page.goto(f"{site.url}engine.html")
    address = next(path.name for path in (site.folder / "engine").glob("????????????"))
    page.evaluate("(name) => start(`engine/${name}/`)", address)
    said = page.evaluate("engine.ready('smollm2').catch(e => e.message)")
    assert said == "This browser has too little memory for the model: 99 MB."
    assert not [path for path in site.asked if path.endswith(".gz")]


def test_a_question_that_waits_for_its_answer_holds_nothing_up(site, page):
    page.goto(f"{site.url}engine.html")
    address = next(path.name for path in (site.folder / "engine").glob("????????????"))
    page.evaluate("(name) => start(`engine/${name}/`)", address)
    page.evaluate("() => { window.asked = engine.ready('smollm2').catch((e) => e.message); }")
    expect(page.locator(BAR)).to_contain_text(OFFER)
    page.evaluate("engine.ready('shakespeare-char')")
    page.locator(BAR).get_by_role("button", name="Cancel").click()
    assert page.evaluate("asked") == "Nothing was run, because its model was not fetched."
    assert not fetched(site)


def test_another_version_of_all_else_does_not_fetch_it_again(site, page):
    address = next(path for path in (site.folder / "engine").glob("????????????"))
    other = address.with_name("0" * 12)
    shutil.copytree(address, other)
    manifest = json.loads((other / "manifest.json").read_text())
    (other / "manifest.json").write_text(json.dumps({**manifest, "version": other.name}))
    page.goto(f"{site.url}engine.html")
    page.evaluate("(name) => start(`engine/${name}/`)", address.name)
    page.evaluate("() => { window.loading = engine.ready('smollm2'); }")
    page.locator(BAR).get_by_role("button", name="Fetch it").click()
    page.evaluate("loading")
    page.reload()
    page.evaluate("(name) => start(`engine/${name}/`)", other.name)
    assert page.evaluate("engine.ready('smollm2').then(({ fetched }) => fetched)") < 20e6
    assert len(fetched(site)) == 1
    kept = page.evaluate(
        "caches.open('inflight-engine').then(c => c.keys()).then(k => k.map(r => r.url))"
    )
    assert not [url for url in kept if address.name in url]
    shutil.rmtree(other)
