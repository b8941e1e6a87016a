"""The sandbox in a real browser: what runs in it reaches neither network nor page nor storage, and
what it says is believed only as data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from worlds.browser import chromium, fresh  # noqa: F401
from worlds.sandboxed import Listener, listening, page_files

SCRIPTS = {
    path.name: path.read_bytes()
    for path in (Path(__file__).parents[1] / "data" / "sandbox").iterdir()
}
TOO_MUCH = "This code sent more than the page accepts from a stranger."
# A job in the sandbox, with a script of ours in place of the engine's worker: its deltas, or the
# sentence with which it ended.
JOB = """async ([sandbox, script, spec]) => {
    const { Sandbox } = await import(sandbox), bytes = async () => (await fetch(script)).arrayBuffer();
    const own = new Sandbox(async () => ({ 'worker.js': await bytes() }), 'shakespeare-bpe');
    const deltas = []; let said = '';
    try { for await (const delta of own.run('policy', spec)) deltas.push(delta); } catch (error) { said = error.message; }
    own.end();
    return { deltas, said, frames: document.querySelectorAll('iframe').length }; }"""  # noqa: E501


@pytest.fixture(scope="module")
def site() -> Iterator[Listener]:
    with listening(page_files(**SCRIPTS)) as own:
        yield own


@pytest.fixture
def elsewhere() -> Iterator[Listener]:
    with listening() as other:
        yield other


@pytest.fixture
def page(fresh: Callable[..., Page], site: Listener) -> Page:  # noqa: F811
    page = fresh()
    page.goto(site.url + "index.html")
    return page


def reaching(page: Page, sandbox: str, elsewhere: Listener) -> dict:
    # on a machine with other work it can be silent for longer than a sandbox's patience
    for _ in range(3):
        done = page.evaluate(JOB, [sandbox, "reaching.js", {"at": elsewhere.url}])
        if done["deltas"] or "Nothing was heard" not in done["said"]:
            break
    assert done["deltas"], done["said"]
    return done["deltas"][0]


def test_no_code_in_it_reaches_the_network_the_page_or_a_storage(page, site, elsewhere):
    found = reaching(page, "./sandbox.js", elsewhere)
    assert found["origin"] == "null"
    assert (found["through"], elsewhere.heard) == ([], [])
    assert page.title() == "page"


def test_without_its_policy_the_same_code_reaches_the_network(page, site, elsewhere):
    """The control: the requests would be seen, and it is the policy that holds them."""
    found = reaching(page, "./open.js", elsewhere)
    assert set(elsewhere.heard) == set(found["network"])


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("gigantic", TOO_MUCH),
        pytest.param("endless", TOO_MUCH, marks=pytest.mark.slow),
        pytest.param("flood", TOO_MUCH, marks=pytest.mark.slow),
        *(
            (way, "This code answered with something that is not an answer.")
            for way in ("word", "list", "object", "other")
        ),
        ("thrown", "The sandbox failed: “Error: <b>late</b>”."),
    ],
)
def test_what_is_no_answer_ends_it_with_a_sentence(page, way, said):
    ended = page.evaluate(JOB, ["./sandbox.js", "talking.js", {"way": way}])
    assert (ended["said"], ended["frames"]) == (said, 0)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["busy", "gone"])
def test_what_cannot_be_interrupted_is_ended_and_the_next_job_runs(page, way):
    ended = page.evaluate(JOB, ["./sandbox.js", "talking.js", {"way": way}])
    assert ended["said"].startswith("Nothing was heard from this code for 6 seconds")
    after = page.evaluate(JOB, ["./sandbox.js", "talking.js", {"way": "well"}])
    assert after == {"deltas": [{"done": True, "text": "<b>bold</b>"}], "said": "", "frames": 0}
