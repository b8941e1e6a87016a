"""The engine in a visitor's own tab as the page has it: brought with progress, kept, stopped,
freed, and what is said where it cannot be had.

That its tokens are right is tested in test_tab_presets.py.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from core.trace.trace import Trace
from core.workload.presets import PRESETS
from visualizer.documents.catalogue import TRACES
from visualizer.page.bundle import script, style
from worlds.pyodide import engine_files  # noqa: F401
from worlds.static_host import hosted

PAGE = """<!doctype html><title>An engine</title><style>%s</style><body><script>%s
const { BrowserEngine } = inflightModules["engine/browser_engine.js"];
window.engine = new BrowserEngine("%s");
window.running = (spec) => (window.job = engine.begin("run", spec)).then(async (id) => {
  window.deltas = [];
  for await (const delta of engine.follow(id)) deltas.push(delta);
  return deltas.at(-1);
});
</script>"""
GONE = (
    "Object.defineProperty(self, 'caches', { get() { throw new DOMException('', 'SecurityError'); }"
    " });\n"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory, engine_files):  # noqa: F811
    folder = tmp_path_factory.mktemp("tab")
    engine_files.write(folder)
    (folder / "index.html").write_text(
        PAGE % (style(), script("engine/browser_engine.js"), engine_files.address)
    )
    return folder


@pytest.fixture(scope="module")
def server(made):
    with hosted(made) as found:
        yield found


@pytest.fixture
def host(server):
    yield server
    server.reset()


@pytest.fixture
def opened(host, fresh):
    """A page at the host; before: put before the worker's script."""

    def open_page(before: str = "", **options):
        page = fresh(**options)
        if before:
            page.route(
                "**/worker.js",
                lambda r: r.fulfill(body=before + r.fetch().text(), content_type="text/javascript"),
            )
        page.goto(host.url)
        return page

    return open_page


@pytest.fixture
def at_home(returning, host):
    """A page at the host, in a browser that has started the engine before."""
    page = returning(host.url)
    page.goto(host.url)
    return page


def spec(name):
    preset = PRESETS[name]
    return {
        "workload": preset.workload.to_json(),
        "config": preset.config.to_json(),
        "model": preset.model,
    }


def kept(page):
    """Wait until the interpreter's memory is kept."""
    page.wait_for_function("""caches.open('inflight-engine').then(async (cache) => {
        const found = await cache.match(`${engine.base}snapshot`);
        return found && (await found.arrayBuffer()).byteLength > 1e7;
    })""")


@pytest.mark.slow
def test_a_later_visit_fetches_nothing_and_starts_from_what_was_kept(host, opened):
    page = opened()
    first = page.evaluate("engine.ready('shakespeare-char')")
    assert not first["restored"] and 7e6 < first["fetched"] < 8e6
    asked = len(host.asked)
    kept(page)
    page.reload()
    later = page.evaluate("engine.ready('shakespeare-char')")
    assert later["restored"] and later["fetched"] == 0
    assert not [path for path in host.asked[asked:] if path.endswith((".gz", ".json"))]
    last = page.evaluate(
        "(spec) => running(spec)", spec("chunk-7-by-4") | {"model": "shakespeare-char"}
    )
    assert last["done"] and last["id"].startswith("tab-") and last["url"].startswith("tab:")
    # a snapshot that does not fit is forgotten
    page.evaluate(
        "caches.open('inflight-engine').then((c) => c.put(`${engine.base}snapshot`, new"
        " Response(new Uint8Array(70000))))"
    )
    page.reload()
    again = page.evaluate("engine.ready()")
    assert not again["restored"] and again["fetched"] == 0
    kept(page)


@pytest.mark.slow
def test_a_run_is_stopped_at_a_step_and_the_next_one_starts_at_once(at_home):
    page = at_home
    long = spec("poisson-32")
    page.evaluate("(spec) => { window.first = running(spec); }", long)
    page.wait_for_function("window.deltas?.some((d) => d.events?.length)")
    page.evaluate("job.then((id) => engine.cancel(id))")
    last = page.evaluate("first")
    assert last["stopped"].startswith("The run was cancelled after ") and last["id"]
    again = page.evaluate("(spec) => running(spec)", spec("short-and-long"))
    assert again["done"] and not again.get("error")
    exported = page.evaluate(
        "(id) => engine.call('export', 'jsonl', id).then(({ url }) => fetch(url)).then((f) =>"
        " f.text())",
        again["id"],
    )
    trace = Trace.from_lines(exported.splitlines())
    assert trace.outputs == Trace.load(TRACES / "short-and-long.jsonl").outputs
    assert "WebAssembly" in trace.header.device_name


def _none_at_work(page) -> bool:
    """Whether its workers have ended, or do so before long: a browser tells of it a moment after
    they were.
    """
    for _ in range(100):
        if not page.workers:
            return True
        page.wait_for_timeout(100)
    return False


@pytest.mark.slow
def test_leaving_the_page_frees_the_worker(at_home, host):
    page = at_home
    page.evaluate("engine.ready()")
    assert len(page.workers) == 1
    page.goto(f"{host.url}engine/")
    assert _none_at_work(page)
    page.go_back()
    assert page.evaluate("engine.ready().then(() => 'again')") == "again"


@pytest.mark.slow
def test_the_download_says_how_far_it_is_and_can_be_cancelled(host, opened):
    page = opened()
    host.held = {"pyodide.asm.wasm.gz"}
    page.evaluate(
        "() => { engine.ready('shakespeare-bpe').catch((error) => { window.said = error.message;"
        " }); }"
    )
    bar = page.locator(".engine-bar")
    expect(bar).to_contain_text("Fetching Python")
    expect(bar).to_contain_text(" of 16.")
    kept = (
        "caches.open('inflight-engine').then((cache) => cache.keys()).then((files) => files.some(({"
        " url }) => url.endsWith('stdlib.zip')))"
    )
    page.wait_for_function(kept)
    bar.get_by_role("button", name="Cancel").click()
    page.wait_for_function("window.said")
    assert page.evaluate("said") == "The engine was not loaded, because that was cancelled."
    expect(bar).to_have_count(0)
    assert _none_at_work(page)
    host.held = set()
    asked = len(host.asked)
    assert not page.evaluate("engine.ready('shakespeare-bpe')")["restored"]
    assert not [path for path in host.asked[asked:] if "stdlib" in path], (
        "what had arrived was kept"
    )


@pytest.mark.slow
def test_a_model_that_is_on_its_way_holds_up_no_other(at_home, host):
    page = at_home
    host.held = {"shakespeare-char/weights.gz"}
    page.evaluate(
        """() => {
            engine.ready('shakespeare-char').catch(() => {});
            engine.ready('shakespeare-bpe').then(() => { window.isReady = true; });
        }"""
    )
    page.wait_for_function("window.isReady")
    assert [path for path in host.asked if path.endswith("shakespeare-char/weights.gz")]


@pytest.mark.slow
def test_a_download_that_breaks_off_is_said_and_tried_again(host, opened):
    page = opened()
    host.broken = {"python_stdlib.zip.gz": 100_000}
    page.evaluate(
        "() => { window.loading = engine.ready().then(({ restored }) => `ready ${restored}`); }"
    )
    bar = page.locator(".engine-bar")
    expect(bar).to_contain_text("The download of the engine broke off")
    host.broken = {}
    bar.get_by_role("button", name="Try again").click()
    assert page.evaluate("loading") == "ready false"


def test_files_that_are_gone_are_said_to_be(host, opened):
    page = opened()
    host.broken = {"manifest.json": -1}
    page.evaluate("() => { window.loading = engine.ready().catch((error) => error.message); }")
    page.locator(".engine-bar").get_by_role("button", name="Close").click()
    assert (
        page.evaluate("loading")
        == "The engine's files have changed since this page was opened: load the page again."
    )


def test_a_browser_without_simd_is_told_so(opened):
    page = opened(before="WebAssembly.validate = () => false;\n")
    said = page.evaluate("engine.ready().catch((error) => error.message)")
    assert (
        said
        == "This browser cannot run the engine: WebAssembly with SIMD is missing or turned off."
    )


def test_a_page_from_disk_is_told_what_it_needs(made, fresh):
    page = fresh()
    page.goto((made / "index.html").as_uri())
    assert "python -m http.server" in page.evaluate(
        "engine.ready().catch((error) => error.message)"
    )


@pytest.mark.slow
def test_without_storage_every_visit_is_a_first_one_and_says_so(host, opened):
    page = opened(before=GONE)
    host.held = {"pyodide.asm.wasm.gz"}
    page.evaluate("() => { window.loading = engine.ready().then(({ restored }) => restored); }")
    expect(page.locator(".engine-bar")).to_contain_text(
        "This browser keeps nothing of it for the next visit."
    )
    host.held = set()
    assert page.evaluate("loading") is False


@pytest.mark.slow
def test_where_a_browser_can_have_none_the_server_runs_what_is_asked(page_url, fresh, engine_files):  # noqa: F811
    page = fresh(viewport={"width": 1440, "height": 900})
    unable = "WebAssembly.validate = () => false;\n"
    page.route(
        "**/worker.js",
        lambda r: r.fulfill(body=unable + r.fetch().text(), content_type="text/javascript"),
    )
    page.goto(f"{page_url}/#run=short-and-long")
    page.wait_for_function("window.inflight?.drawn >= 0")
    page.click(".edit-button")
    page.wait_for_function("inflight.editor.state")
    page.click(".drawer .run-buttons .primary")
    expect(page.locator(".run-message")).to_have_text("Done: 40 steps.")
    assert "WebAssembly" not in page.evaluate("inflight.run.header.device_name")
