"""Write in a real browser: a policy typed there runs in the sandbox on the engine, is drawn by the
page's player, and says what it misses.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from visualizer.write.exercises import cases_of
from visualizer.write.tasks import tasks
from worlds.axe import serious
from worlds.browser import settled
from worlds.pyodide import engine_files  # noqa: F401
from worlds.writing import put, ran
from worlds.wrong_answers import ENDLESS, HEAD, RIGHT, WRONG

pytestmark = pytest.mark.usefixtures("engine_files")
TASKS = tasks()
LIES = "import js\njs.fetch('http://elsewhere.test/')\n"


@pytest.fixture
def write(visit, page_url):
    """`write("task=refill")`: the part with its editor."""

    def opened(hash: str = "", **how) -> Page:
        page = visit(f"{page_url}/", hash=f"part=write&{hash}", **how)
        page.wait_for_selector(".inflight-write .cm-content")
        settled(page, "inflightWrite.task")
        return page

    return opened


def test_the_code_is_reached_typed_in_and_left_by_keys_alone(write):
    page = write("task=arrival")
    for _ in range(40):
        if page.evaluate("document.activeElement.classList.contains('cm-content')"):
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Control+End")
    page.keyboard.type("if x:\ny")  # indented by itself
    page.keyboard.press("Tab")
    assert page.evaluate("inflightWrite.code.code").endswith("if x:\n        y")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("!document.activeElement.closest('.cm-editor')")
    page.reload()
    page.wait_for_selector(".inflight-write .cm-content")
    settled(page, "inflightWrite.task")
    # kept in this browser
    assert page.evaluate("inflightWrite.code.code").endswith("if x:\n        y")
    page.click(".again-button")
    assert page.evaluate("inflightWrite.code.code") == TASKS["arrival"].code


@pytest.mark.slow
def test_code_of_a_link_is_shown_and_nothing_of_it_runs(write):
    page = write("task=refill")
    mine = TASKS["refill"].code.replace('"mine"', '"ours"')
    put(page, mine)
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.click(".link-button")
    settled(page, "window.copied")
    link = page.evaluate("window.copied")
    put(page, TASKS["refill"].code.replace('"mine"', '"later"'))
    page.evaluate("(link) => { location.hash = link.split('#')[1]; }", link)
    settled(page, "inflightWrite.came")
    assert page.evaluate("inflightWrite.code.code") == mine
    assert page.is_visible(".came") and page.evaluate(
        "[inflightWrite.stop, inflightWrite.trials._sandbox]"
    ) == [None, None]
    assert page.evaluate("document.querySelectorAll('iframe').length") == 0
    page.click(".task-list [aria-current]")  # it is open already
    assert page.is_visible(".came") and "&code=" in page.url
    page.click(".own-button")
    assert '"later"' in page.evaluate("inflightWrite.code.code") and not page.is_visible(".came")


@pytest.mark.slow
@pytest.mark.parametrize("size", ["desk", "phone"])
def test_axe_finds_nothing_serious_and_nothing_is_cut(write, size):
    for scheme in ("light", "dark"):
        page = write("task=victim", size=size, color_scheme=scheme)
        assert serious(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
def test_a_task_is_solved_step_by_step(write):
    page = write("task=arrival")
    assert page.is_visible(".hidden-run") and not page.is_visible("#watch .inflight")
    found = ran(page)
    assert found["fault"] is None and not found["goals"][0]["met"]
    assert "still the code that you were given" in page.inner_text(".outcome") and page.is_visible(
        "#watch .panel.lanes"
    )
    header = page.evaluate("inflight.run.header")
    assert (
        header["device"] == "cpu"
        and "WebAssembly" in header["device_name"]
        and header["config"]["policy"] == "mine"
    )
    put(page, TASKS["arrival"].code.replace("-request.num_prompt_tokens", "request.nope"))
    found = ran(page)
    assert found["fault"]["line"] == 13 and page.locator(".cm-lint-marker-error").count() == 1
    assert not page.is_visible("#watch .inflight")  # what was drawn was another code's run
    put(page, TASKS["arrival"].code.replace("-request.num_prompt_tokens", "request.arrival_index"))
    found = ran(page)
    assert all(goal["met"] for goal in found["goals"]) and "Every goal is met." in page.inner_text(
        ".outcome"
    )
    assert page.locator(".task-list .done").count() == 1
    # the run stays; what would run it again is not offered
    page.click(".inflight-write .tabs button:has-text('Watch')")
    assert page.is_visible("#watch .panel.lanes") and not page.is_visible("#watch .what-button")
    page.click("#watch .tabs button:has-text('Write')")
    page.click(".outcome .mini")
    settled(page, "inflightWrite.task.name === 'refill'")


@pytest.mark.slow
def test_what_breaks_a_rule_never_ends_or_reaches_out_is_said(write):
    page = write("task=promise")
    head = TASKS["promise"].code.split("        need =")[0]
    put(
        page,
        head + "        for other in capacity.running:\n            request.block_table ="
        " other.block_table\n        return None\n",
    )
    found = ran(page)
    step = found["fault"]["step"]
    assert (
        "breaks a rule that every run keeps" in page.inner_text(".outcome")
        and page.evaluate("inflight.frame.event.step") == step
    )
    put(page, head + "        while True:\n            pass\n")
    found = ran(page)
    assert found["fault"]["line"] in (12, 13) and "never ends" in page.inner_text(".outcome")
    page.route(
        "http://elsewhere.test/**", lambda route: pytest.fail("the sandbox reached the network")
    )
    put(page, LIES + TASKS["promise"].code)
    assert ran(page)["replay"]["complete"]
    put(page, head + "        return LimitReached('policy')\n")
    found = ran(page)
    assert "Nobody can go on" in page.inner_text(".outcome")
    page.meant = ["Program terminated with exit(3)"]
    put(page, "import os\nos._exit(3)\n")
    page.click(".run-button")
    settled(page, "inflightWrite.stop")
    settled(page, "!inflightWrite.stop")
    assert "This code ended the Python that ran it." in page.inner_text(".outcome")


HOSTILE = (
    """
from visualizer.write import attempt

attempt.report = lambda *_: REPLACED
"""
    + TASKS["arrival"].code
)


NONE: list[dict] = [
    {"replay": {"header": {}, "events": [1]}, "goals": [], "fault": None, "help": None},
    {
        "replay": None,
        "goals": [
            {"name": "overtaken", "met": True, "says": "<img src=x onerror=window.hacked=1>"}
        ],
        "fault": None,
        "help": 3,
    },
    {"goals": 5},
]


@pytest.mark.slow
def test_an_answer_that_is_none_is_only_text(write):
    page = write("task=arrival")
    for answer in NONE:
        put(page, HOSTILE.replace("REPLACED", repr(answer)))
        page.click(".run-button")
        settled(page, "inflightWrite.stop")
        settled(page, "!inflightWrite.stop")
        assert page.evaluate(
            "[window.hacked, document.querySelectorAll('.inflight-write img').length]"
        ) == [None, 0]
        assert not page.is_visible("#watch .inflight")
    put(page, TASKS["arrival"].code)
    assert ran(page)["replay"]["complete"]


@pytest.mark.slow
def test_it_is_german_throughout_and_changes_language_with_a_run_on_screen(write):
    page = write("task=victim&lang=de")
    settled(page, "inflightWrite.root.lang === 'de'")
    ran(page)
    assert "weicht" in page.inner_text(".outcome") and "Starten" in page.inner_text(".acts")
    said = page.evaluate("inflight.sentence()")
    assert page.evaluate("[...inflight.speech.missingKeys]") == []
    page.evaluate(
        "document.dispatchEvent(new CustomEvent('inflight-language', { detail: { language: 'en'"
        " } }))"
    )
    settled(page, "inflightWrite.root.lang === 'en' && inflight.speech.opened === null")
    assert page.evaluate("inflight.sentence()") != said and "gives way" in page.inner_text(
        ".outcome"
    )


@pytest.mark.slow
def test_it_stands_beside_continuous_on_compare(write):
    page = write("task=refill")
    put(
        page,
        TASKS["refill"].code.replace(
            "        if capacity.wave:\n"
            '            return LimitReached("barrier", capacity.wave, 0, capacity.num_lanes)\n',
            "",
        ),
    )
    assert all(goal["met"] for goal in ran(page)["goals"])
    page.click(".beside-button")
    settled(
        page,
        "document.documentElement.dataset.part === 'compare' &&"
        " window.inflightCompare?.doc?.names.includes('mine')",
    )
    assert page.evaluate("inflightCompare.doc.names") == ["continuous", "mine"]
    assert "Chrom" in page.evaluate(
        "inflightCompare.doc.says.where"
    ) or "WebAssembly" in page.evaluate("inflightCompare.doc.says.where")


@pytest.mark.slow
def test_an_exercise_is_checked_in_the_tab_as_by_the_command(write):
    page = write("task=static&lang=de")
    settled(page, "inflightWrite.root.lang === 'de'")
    assert page.evaluate("inflightWrite.code.code") == TASKS["static"].code
    assert ran(page)["fault"]["says"] == "Not written yet: line {line_number}."
    for title in ("refills at once", "never ends"):
        put(page, HEAD + (WRONG["static"] | ENDLESS["static"])[title][0])
        found = ran(page)
        case = page.inner_text(".outcome .case")
        assert not found["goals"][0]["met"] and "schedule_static(waiting, running, lanes)" in case
        if title == "refills at once":
            assert "kommt in keine Welle" in page.inner_text(".outcome") and "# erwartet {" in case
            assert page.evaluate("inflight.frame.event.step") == found["fault"][
                "step"
            ] and not page.is_visible(".beside-button")
        else:
            assert found["fault"]["line"] in (5, 6) and "Schleife ohne Ende" in page.inner_text(
                ".outcome"
            )
    put(page, RIGHT)
    of = len(cases_of("static", 0))
    assert ran(page)["goals"] == [{"name": "cases", "met": True, "says": f"{of} of {of}"}]
    page.click(".outcome .mini")
    settled(page, "inflightWrite.task.name === 'continuous'")
    assert page.evaluate("[...inflight.speech.missingKeys]") == []


def test_a_trial_ends_with_its_code_and_leaves_nothing_in_another_task(write):
    page = write("task=arrival")
    page.evaluate(
        """inflightWrite.trials.run = async function* (_, signal) {
            yield { progress: { step: 5 } };
            await new Promise((_, fail) => { signal.onabort = () => fail(signal.reason); });
        }"""
    )
    bar = page.locator(".inflight-write .progress")
    put(page, "mine = 1")
    page.click(".run-button")
    expect(bar).to_have_text("Step 5")
    page.click(".again-button")
    expect(page.locator(".outcome")).to_contain_text("Stopped.")
    expect(bar).to_be_hidden()
    offered = page.locator(".inflight-write .toast", has_text="Back to my code")
    expect(offered).to_be_visible()
    page.click(".run-button")
    expect(bar).to_be_visible()
    page.locator(".task-list button").nth(1).click()
    expect(bar).to_be_hidden()
    expect(offered).to_be_hidden()
    expect(page.locator(".outcome")).to_be_empty()


@pytest.mark.slow
def test_stop_ends_a_trial_and_the_next_one_runs(write):
    page = write("task=budget")
    page.click(".run-button")
    page.click(".stop-button")
    settled(page, "!inflightWrite.stop")
    expect(page.locator(".outcome")).to_contain_text("Stopped.")
    assert ran(page)["replay"]["complete"]
