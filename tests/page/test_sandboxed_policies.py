"""Policies of strangers on the real engine in its sandbox: what they cannot do, and what is said of
those that do not end.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page

from visualizer.write.tasks import MODEL, tasks
from worlds.pyodide import engine_files  # noqa: F401
from worlds.sandboxed import Listener, listening

pytestmark = pytest.mark.slow
TASK = next(iter(tasks().values()))
OVER = "Line {line_number} was still running when time was up: is there a loop that never ends?"
RAISED = "Line {line_number} raised {why}"
SILENT = (
    "Nothing was heard from this code for 6 seconds and it could not be interrupted, so its sandbox"
    " was ended."
)
# The last delta of a trial, or the sentence with which it ended.
TRY = """async ([code, task, model]) => {
    const base = new URL('engine/', document.baseURI).href, { Sandbox } = await import(base + 'sandbox.js');
    window.sandbox ??= Sandbox.of(base, model);
    let last = '';
    try { for await (const delta of sandbox.run('policy', { task, code })) last = delta; } catch (error) { last = error.message; }
    return last; }"""  # noqa: E501
KEPT = """async () => {
    const cache = await caches.open('inflight-engine'), found = {};
    for (const { url } of await cache.keys()) {
        const hash = await crypto.subtle.digest('SHA-256', await (await cache.match(url)).arrayBuffer());
        found[url] = btoa(String.fromCharCode(...new Uint8Array(hash)));
    }
    return found; }"""  # noqa: E501
OWN = """([model, spec]) => new Promise((done) => {
    const worker = new Worker('engine/worker.js', { type: 'module' });
    worker.onmessage = ({ data }) => {
        if (data.kind === 'ready') worker.postMessage({ id: 2, do: 'begin', kind: 'policy', spec });
        else if (data.kind !== 'loading') kept().then(() => { worker.terminate(); done(data.sentence ?? data.delta.error); });
    };
    const kept = async () => {
        const cache = await caches.open('inflight-engine');
        while (!(await cache.keys()).some(({ url }) => url.endsWith('snapshot'))) await new Promise((later) => setTimeout(later, 50));
    };
    worker.postMessage({ id: 1, do: 'load', model }); })"""  # noqa: E501


def ordering(body: str) -> tuple[str, int]:
    """A policy whose `order` has this body, and the number of the line before it."""
    head = (
        f"{TASK.code}\n\n@dataclass(frozen=True, kw_only=True)\nclass Hostile(Policy):\n    name:"
        " str = 'hostile'\n    order_by: str = 'whim'\n\n    def order(self, request):\n"
    )
    return head + textwrap.indent(textwrap.dedent(body), " " * 8), head.count("\n")


@pytest.fixture(scope="module")
def engine_site(engine_files) -> Iterator[Listener]:  # noqa: F811
    files = {f"engine/{name}": content for name, content in engine_files.contents().items()}
    with listening(
        {**files, "index.html": b"<!doctype html><title>page</title><link rel=icon href=data:,>"}
    ) as own:
        yield own


@pytest.fixture
def page(returning: Callable[..., Page], engine_site: Listener) -> Page:
    page = returning(engine_site.url)
    page.goto(engine_site.url + "index.html")
    return page


def tried(page: Page, code: str) -> dict | str:
    return page.evaluate(TRY, [code, TASK.name, MODEL])


def fault(page: Page, body: str) -> tuple[str, int | None, str]:
    """What is said of it, in which line of the body, and why."""
    code, before = ordering(body)
    found = tried(page, code)
    assert isinstance(found, dict), found
    said = found["attempt"]["fault"]
    return said["says"], said["line"] and said["line"] - before, said["holes"].get("why", "")


def test_code_that_does_not_end_is_stopped_at_its_line(page):
    page.evaluate(OWN, [MODEL, {}])  # keeps the snapshot, from which the sandboxes then start
    assert tried(page, TASK.code)["attempt"]["fault"] is None
    assert fault(page, "n = 0\nwhile True:\n    n += 1")[:2] in [(OVER, 2), (OVER, 3)]
    assert fault(page, "import re\nreturn re.match('(a+)+$', 'a' * 40 + 'b')")[:2] == (OVER, 2)
    catching = (
        "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n "
        "       pass"
    )
    assert fault(page, catching)[:2] in [(OVER, 3), (OVER, 4)]
    says, line, why = fault(page, "much = []\nwhile True:\n    much.append(bytearray(10**7))")
    assert (says, line, why) == (RAISED, 3, "MemoryError")


def test_one_long_call_ends_the_sandbox_and_the_next_trial_runs(page):
    assert tried(page, ordering("return sum(range(10**12))")[0]) == SILENT
    assert tried(page, TASK.code)["attempt"]["fault"] is None
    page.evaluate("sandbox.end()")
    assert page.evaluate("document.querySelectorAll('iframe').length") == 0


def test_no_python_reaches_the_network_or_what_is_kept(page, engine_site):
    with listening() as elsewhere:
        refused = page.evaluate(
            OWN,
            [MODEL, {"task": TASK.name, "code": "import js\njs.fetch('" + elsewhere.url + "')"}],
        )
        before = page.evaluate(KEPT)
        asked = list(engine_site.heard)
        ways = {
            "xhr": "import js\nx = js.XMLHttpRequest.new()\nx.open('GET', '{at}', False)\nx.send()",
            "open_url": "from pyodide.http import open_url\nopen_url('{at}')",
            "urllib": "from urllib.request import urlopen\nurlopen('{at}')",
            "eval": "from pyodide.code import run_js\nrun_js('fetch(\"{at}\")')",
        }
        for name, body in ways.items():
            said, *_ = fault(page, body.format(at=elsewhere.url + name))
            assert said in (RAISED, OVER), name  # to import urllib may take too long
        spoiling = (
            "import js, core.policy\njs.caches.open('inflight-engine')\ncore.policy.Policy.order ="
            " None\njs.fetch('{at}')\nreturn 0"
        )
        tried(page, ordering(spoiling.format(at=elsewhere.url + "fetch"))[0])
        assert tried(page, TASK.code)["attempt"]["fault"] is None
        assert (refused, elsewhere.heard) == ("A visitor's code runs in the sandbox alone.", [])
    assert page.evaluate(KEPT) == before
    assert {name for name in engine_site.heard[len(asked) :]} <= {
        name for name in engine_site.heard if name.endswith(".js")
    }
