"""The editor and the engine behind the page: run, follow, share, cancel, fail, upload, take
away.
"""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Route, expect

from worlds.browser import settled
from worlds.player import trace_of


@pytest.mark.slow
def test_edit_run_follow_and_share(visit, page_url):
    """A changed workload runs on the engine; the picture follows it and the address says it."""
    page = visit(page_url, hash="run=short-and-long")
    first = page.evaluate("inflight.run.header.workload.requests.length")
    page.click(".edit-button")
    settled(page, "(n) => document.querySelectorAll('.request-row').length === n", first)
    page.fill("[name=max_num_seqs]", "3")
    expect(page.locator(".run-button")).to_contain_text("Run these changes")
    expect(page.locator(".run-message")).to_contain_text("last run")
    page.fill(".request-row textarea >> nth=0", "<img src=x onerror=window.hacked=1>")
    page.click(".run-button")
    settled(page, "!inflight.running && inflight.run.header.source === 'live'")
    assert page.evaluate(
        "[inflight.run.numLanes, inflight.run.complete, window.hacked, inflight.drawn ==="
        " inflight.run.length - 1]"
    ) == [3, True, None, True]
    assert page.inner_text(".source .word") == "Run by the server"
    settled(page, "location.hash.includes('spec=')")
    steps = page.evaluate("inflight.run.events.map(e => e.step)")
    assert steps == sorted(set(steps))
    recorded = page.evaluate(
        "fetch(inflight.entry.url).then(r => r.json()).then(r => [r.events.length,"
        " JSON.stringify(r.texts.output)])"
    )
    assert recorded[0] == len(steps)
    assert json.loads(recorded[1]) == page.evaluate(
        "JSON.parse(JSON.stringify(inflight.run.texts.output))"
    )
    again = visit(page_url, hash=page.evaluate("location.hash.slice(1)"))
    settled(
        again,
        "(n) => !inflight.running && inflight.run.header.source === 'live' && inflight.run.length"
        " === n",
        len(steps),
    )


def test_a_recording_that_comes_late_does_not_take_the_place_of_a_run(visit, page_url):
    """Who chooses a preset and presses Run at once: the preset's recording is still on its way."""
    page = visit(page_url)
    page.click(".edit-button")
    page.wait_for_selector(".request-row")
    page.evaluate(
        "() => { const { fetch } = inflight, held = new Promise(go => { window.letGo = go; });"
        " inflight.fetch = async (url) => { await held; return fetch.call(inflight, url); }; }"
    )
    page.select_option(".preset-select", "nanogpt-chunked-4")
    page.fill("[name=max_num_seqs]", "3")
    page.click(".run-button")
    settled(
        page, "!inflight.running && inflight.run.header.source === 'live' && inflight.entry?.spec"
    )
    page.evaluate(
        "async () => { letGo(); await inflight.fetch(inflight.options.catalogue.find(e => e.name"
        " === 'nanogpt-chunked-4').url); await new Promise(done => setTimeout(done, 200)); }"
    )
    assert page.evaluate("[inflight.run.header.source, Boolean(inflight.entry.spec)]") == [
        "live",
        True,
    ]


@pytest.mark.slow
def test_a_run_that_begins_while_a_lesson_is_read_does_not_take_its_place(visit, page_url):
    page = visit(page_url, hash="run=short-and-long")
    page.click(".edit-button")
    page.wait_for_selector(".request-row")
    held: list[Route] = []
    page.route(re.compile("inflight/jobs/"), lambda route: held.append(route))
    page.click(".run-button")
    page.evaluate("location.hash = 'part=learn&lesson=one-token'")
    settled(page, "window.inflightLearn?.drawn?.startsWith('one-token/') && inflight.live.id")
    while not held:
        page.wait_for_timeout(20)
    page.unroute_all()  # it goes on
    settled(page, "!inflight.live.going && inflight.live.run?.complete")
    assert page.evaluate("[inflight.run.header.source, inflight.entry.name]") == [
        "recorded",
        "one-request",
    ]


def test_what_cannot_run_is_said_and_changes_nothing(visit, page_url):
    page = visit(page_url)
    before = page.evaluate("inflight.run.length")
    page.click(".edit-button")
    page.wait_for_selector(".request-row")
    page.fill("[name=max_num_batched_tokens]", "1")
    page.click(".run-button")
    settled(page, "document.querySelector('.run-message.bad')")
    assert "budget" in page.inner_text(".run-message").lower()
    page.fill("[name=max_num_batched_tokens]", "24")
    page.fill(".request-row input >> nth=0", "")
    page.click(".run-button")
    expect(page.locator(".run-message")).to_contain_text("whole number")
    assert page.evaluate("inflight.run.length") == before


@pytest.mark.slow
def test_a_run_that_fails_leaves_the_last_one_on_screen_and_itself_a_click_away(visit, space_url):
    """A public Space stops a run after 800 steps, and after a minute: here six requests, one after
    the other, want 840.
    """
    page = visit(space_url)
    before = page.evaluate("[inflight.run.header.source, inflight.run.length, inflight.index]")
    requests = [
        {
            "id": f"r{i}",
            "prompt": "To be",
            "sampling": {"max_new_tokens": 140, "ignore_eos": True},
            "arrival": 0,
        }
        for i in range(6)
    ]
    config = {
        "policy": "sequential",
        "max_num_seqs": 2,
        "max_num_batched_tokens": 64,
        "block_size": 8,
    }
    spec = {
        "workload": {"schema": 1, "name": "long", "requests": requests},
        "config": config,
        "model": "shakespeare-char",
        "device": "cpu",
    }
    page.click(".edit-button")
    page.wait_for_selector(".request-row")
    assert page.evaluate("(spec) => inflight.editor.runSpec(spec)", spec) is False
    assert (
        page.evaluate("[inflight.run.header.source, inflight.run.length, inflight.index]") == before
    )
    message = page.locator(".run-message.bad")
    expect(message).to_contain_text("stopped after")
    whole = message.get_by_role("button", name=re.compile(r"Show the \d+ steps until it failed"))
    steps = int(re.search(r"\d+", whole.inner_text())[0])
    whole.click()
    settled(page, "(n) => inflight.run.length === n && inflight.drawn === n - 1", steps)
    assert page.evaluate("[inflight.run.header.source, inflight.run.complete]") == ["live", False]
    expect(message).to_contain_text("stopped after")
    message.get_by_role("button", name="Back to the run before").click()
    settled(page, "(n) => inflight.run.length === n", before[1])


@pytest.mark.slow
def test_another_run_can_be_looked_at_while_one_goes_on(visit, page_url):
    page = visit(page_url)
    shown = page.evaluate("inflight.run.length")
    requests = [
        {
            "id": f"r{i}",
            "prompt": "To be",
            "sampling": {"max_new_tokens": 200, "ignore_eos": True},
            "arrival": 0,
        }
        for i in range(4)
    ]
    config = {
        "policy": "sequential",
        "max_num_seqs": 2,
        "max_num_batched_tokens": 64,
        "block_size": 8,
    }
    page.evaluate(
        "(spec) => { window.ran = inflight.editor.ready().then(() =>"
        " inflight.editor.runSpec(spec)); }",
        {
            "workload": {"schema": 1, "name": "long", "requests": requests},
            "config": config,
            "model": "shakespeare-char",
            "device": "cpu",
        },
    )
    settled(page, "inflight.run.header.source === 'live' && inflight.run.length > 2")
    page.evaluate("inflight.open(inflight.options.catalogue[0])")
    settled(page, "inflight.run.header.source === 'recorded'")
    assert page.evaluate("ran") is True
    assert page.evaluate("[inflight.run.length, inflight.live.run.length]") == [shown, 800]


def test_cancel_keeps_what_ran(visit, page_url):
    page = visit(page_url, hash="run=short-and-long")
    page.click(".edit-button")
    page.wait_for_selector(".request-row")
    page.fill("[name=num_blocks]", "")
    page.select_option("[name=policy]", "sequential")  # the longest way to do it
    for n in range(4):
        page.fill(f".request-row [aria-label='New tokens'] >> nth={n}", "400")
    page.click(".run-button")
    page.wait_for_function(
        """() => inflight.running && inflight.run.header.source === 'live' && inflight.run.length > 1
            && (window.before = inflight.run.length, inflight.seek(0, true), true)"""  # noqa: E501
    )
    page.wait_for_function(  # it goes on without us
        """() => inflight.run.length > before
            && (window.stood = [inflight.index, inflight.following], document.querySelector(".cancel-button").click(), true)"""  # noqa: E501
    )
    settled(page, "!inflight.running")
    assert page.evaluate("stood") == [0, False]
    expect(page.locator(".run-message")).to_contain_text("cancelled")
    assert page.evaluate("inflight.run.complete") is False


@pytest.mark.slow
def test_an_upload_opens_and_exports_come_back(visit, page_url, tmp_path):
    page = visit(page_url)
    trace = trace_of("static")
    trace.save(tmp_path / "mine.jsonl")
    page.click(".export-button")
    with page.expect_file_chooser() as chooser:
        page.click("text=Open a trace")
    chooser.value.set_files(tmp_path / "mine.jsonl")
    settled(page, "inflight.run.header.source === 'uploaded'")
    for words, start in (
        ("JSON lines: open it", b'{"kind":"header"'),
        ("HTML that opens", b"<!doctype html>"),
        ("ui.perfetto.dev", b"{"),
    ):
        page.click(".export-button")
        with page.expect_download() as found:
            page.click(f"text={words}")
        assert found.value.path().read_bytes().startswith(start), words
    page.click(".export-button")
    with page.expect_file_chooser() as chooser:
        page.click("text=Open a trace")
    (tmp_path / "bad.jsonl").write_text("{}")
    chooser.value.set_files(tmp_path / "bad.jsonl")
    expect(page.locator("#watch .toast")).to_contain_text("cannot be opened")
    assert page.evaluate("inflight.run.header.source") == "uploaded"


@pytest.mark.slow
def test_edits_outlive_another_run_and_a_run_of_this_visit_is_found_again(visit, page_url):
    page = visit(url=f"{page_url}/")
    page.click(".edit-button")
    page.wait_for_selector(".request-rows > *")
    page.select_option(".preset-select", "nanogpt-chunked-4")
    settled(page, "inflight.entry && inflight.entry.name === 'nanogpt-chunked-4'")
    page.fill("[name=max_num_seqs]", "2")
    # another run on screen
    page.evaluate("inflight.open(inflight.options.catalogue.find(e => e.name === 'gpt2-six'))")
    settled(page, "inflight.entry.name === 'gpt2-six'")
    assert page.input_value(
        "[name=max_num_seqs]"
    ) == "2" and "These are your edits" in page.inner_text(".run-message")
    page.click(".run-message .mini")
    assert (
        page.input_value("[name=max_num_seqs]") == "3" and page.locator(".request-row").count() == 6
    )
    page.click(".run-message .mini")  # and back
    assert (
        page.input_value("[name=max_num_seqs]") == "2" and page.locator(".request-row").count() == 4
    )
    said = page.evaluate("inflight.editor.said()")
    # what Compare is given is what the form shows
    assert said["spec"]["config"]["max_num_seqs"] == 2
    page.click(".run-button")
    page.wait_for_function("() => inflight.running")
    page.evaluate("inflight.open(inflight.options.catalogue[0])")
    settled(page, "!inflight.running && inflight.visit.runs.length === 1")
    page.click(".runs-button")
    kept = page.locator(".visit-run")
    assert kept.count() == 1 and "2 lanes" in kept.inner_text()
    kept.locator(".run-choice").click()
    assert page.evaluate(
        "[inflight.run.header.source, inflight.run.header.config.max_num_seqs,"
        " inflight.run.complete]"
    ) == [
        "live",
        2,
        True,
    ]
    page.click(".runs-button")
    page.click(".visit-run .icon-button")
    assert page.locator(".visit-run").count() == 0
