"""vLLM's own steps on the page: rows in their real order, guesses as what they are, what is
inferred labelled, what is absent said.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from playwright.sync_api import expect

from core.measure.plan import plan
from core.recorders.convert import to_trace
from core.recorders.raw import read_raw
from core.trace.run_state import RunState
from core.trace.trace import Trace
from visualizer.documents.replay import replay
from worlds.browser import seek, settled

DATA = Path(__file__).resolve().parents[1] / "data"


@pytest.fixture(scope="module")
def plain():
    return to_trace(read_raw([DATA / "vllm-0.32.raw.jsonl.gz"])[0])


@pytest.mark.smoke
def test_the_engine_and_what_is_inferred_are_named(visit, plain):
    page = visit(replay=replay(plain))
    assert "vLLM 0.32.0" in page.locator(".policy-chip").first.inner_text()
    for panel, fact in ((".panel.lanes", "lanes"), (".panel.queue", "reasons")):
        mark = page.locator(f"{panel} .inferred")
        assert mark.is_visible() and mark.get_attribute("title") == plain.header.inferred[fact]
    times = page.locator(".timings dd").all_inner_texts()
    assert times.count("not recorded") == 2


def test_rows_stand_in_their_real_order(visit, plain):
    at = next(
        i
        for i, e in enumerate(plain.events)
        if [s.lane for s in e.segments] != sorted(s.lane for s in e.segments)
    )
    page = visit(replay=replay(plain))
    seek(page, at)
    drawn = page.evaluate("() => inflight.frame.passes[0].items.map((i) => i.request.id)")
    assert drawn == [s.request for s in plain.events[at].segments]


def test_guesses_are_drawn_as_guesses(visit):
    trace = to_trace(read_raw([DATA / "vllm-0.32-speculation.raw.jsonl.gz"])[0])
    at, event = next(
        (i, e)
        for i, e in enumerate(trace.events)
        if {(d.drafted, d.accepted) for d in e.drafts} == {(3, 1), (3, 0)}
    )
    page = visit(replay=replay(trace))
    seek(page, at)
    cells = page.evaluate(
        "() => inflight.row.cells.map((c) => [c.item.request.id, c.guess || '', c.text])"
    )
    for draft in event.drafts:
        guesses = [guess for request, guess, _ in cells if request == draft.request and guess]
        assert guesses == ["taken"] * draft.accepted + ["forgotten"] * (
            draft.drafted - draft.accepted
        )
    assert all(text == "✗" for _, guess, text in cells if guess == "forgotten")
    guessed, right = sum(d.drafted for d in event.drafts), sum(d.accepted for d in event.drafts)
    assert f"{guessed} guessed: {right} used" in page.locator(".panel.row .key").inner_text()
    # the mask in a terminal knows no later token either
    assert trace.mask(event.step).queries[-1].text


@pytest.mark.parametrize("name", ["hybrid", "sliding-window"])
def test_a_cache_is_as_long_as_its_layers_keep_it(visit, name):
    """In the step in which a window passes blocks: lengths by kind of layer, the blocks that left,
    and both in words.
    """
    trace = to_trace(read_raw([DATA / f"vllm-0.32-{name}.raw.jsonl.gz"])[0])
    at, change = next((i, c) for i, e in enumerate(trace.events) for c in e.kv.changes if c.left)
    event = trace.events[at]
    state = RunState.of(trace.prompt_lengths)
    for earlier in trace.events[:at]:
        state.begin(earlier)
        state.end(earlier)
    state.begin(event)
    table, kv_len = (
        state.tables[change.request][change.group],
        next(s.kv_len for s in event.segments if s.request == change.request),
    )
    held = sum(
        min(kv_len - 32 * place, 32) for place, block in enumerate(table) if block is not None
    )
    assert 64 <= held < 96 and held < kv_len  # a window of 64, rounded up to blocks of 32

    page = visit(replay=replay(trace))
    seek(page, at)
    page.evaluate("(id) => inflight.pin(inflight.run.request(id))", change.request)
    settled(page)
    left = sorted(b for c in event.kv.changes for b in c.left)
    assert (
        sorted(page.evaluate("[...inflight.blocks.ghosts].map(([block, g]) => g.passed && block)"))
        == left
    )
    assert page.evaluate("[...inflight.blocks.owned.keys()].length") == event.kv.used
    assert (
        f"window 64: {held} held, {kv_len - held} given back"
        in page.locator(".request-card").inner_text()
    )
    assert (
        f"full: {kv_len} held" in page.locator(".request-card").inner_text()
        or name == "sliding-window"
    )
    words = [f"gives back {len(left)} block{'s' if len(left) > 1 else ''}", "behind its window"]
    assert all(said in page.locator(".sentence").inner_text() for said in words)
    assert "window 64: " in page.locator(".lengths-key").inner_text()
    seek(page, at + 1)  # they are free again, or another's
    assert page.evaluate("inflight.blocks.ghosts.size") == sum(
        len(c.left) for c in trace.events[at + 1].kv.changes
    )


def test_the_mask_of_a_layer_with_a_window_has_its_window(visit):
    trace = to_trace(read_raw([DATA / "vllm-0.32-hybrid.raw.jsonl.gz"])[0])
    page = visit(replay=replay(trace))
    assert (
        page.evaluate("inflight.run.windows")
        == [64, 64, 64, None]
        == list(trace.header.model.windows)
    )


def test_a_queue_stands_as_the_engine_had_it(visit):
    """SmolLM2 under priorities: from the snapshot that holds the queue of 51 to the end of the
    rush, step by step as in Python.
    """
    trace = to_trace(read_raw([DATA / "vllm-http" / "priority-smollm2.raw.jsonl.gz"])[0])
    at = next(i for i, event in enumerate(trace.events) if event.queue)
    page = visit(replay=replay(trace))
    frames = list(trace.frames())[at : at + 60]
    assert len(frames[0].waiting) == 51
    drawn = page.evaluate(
        "([from, to]) => Array.from({length: to - from}, (_, n) =>"
        " inflight.run.waitingAt(from + n).map((w) => w.request.id))",
        [at, at + 60],
    )
    assert drawn == [[row.request for row in frame.waiting] for frame in frames]


DROPPED = """([name, text]) => {
    const held = new DataTransfer();
    held.items.add(new File([text], name));
    document.querySelector("#watch .inflight").dispatchEvent(
        new DragEvent("drop", { dataTransfer: held, bubbles: true, cancelable: true }));
}"""


def test_what_if_of_a_recording_leads_to_its_plan_and_a_point_of_it_to_watch(visit, page_url):
    """Opened, planned under a form's settings, one request across them, and a simulated run, which
    says that it is one.
    """
    page = visit(url=page_url)
    recording = DATA / "vllm-settings" / "smollm2-lanes-8-budget-512.raw.jsonl.gz"
    page.evaluate(DROPPED, ["run.raw.jsonl", gzip.decompress(recording.read_bytes()).decode()])
    page.wait_for_function("inflight.run.header.engine?.name === 'vLLM'")
    button = page.locator(".what-button")
    assert button.get_attribute("title") == (
        "There is no vLLM here, so this run is not run again: its settings are planned."
    )
    button.click()
    plan = page.locator(".inflight-compare .plan")
    expect(plan.locator("[name=lanes]")).to_have_value("8, 16, 4")
    plan.locator("[name=blocks]").fill("lots")
    plan.get_by_role("button", name="Simulate").click()
    expect(plan.locator(".plan-message")).to_contain_text("are whole numbers")
    plan.locator("[name=blocks]").fill("")
    plan.locator("[name=budgets]").fill("")
    plan.locator("[name=ttft_s]").fill("soon")
    plan.get_by_role("button", name="Simulate").click()
    expect(plan.locator(".plan-message")).to_have_text(
        "The limits of a good request are seconds above 0."
    )
    plan.locator("[name=ttft_s]").fill("1.5")
    plan.get_by_role("button", name="Simulate").click()
    names = plan.locator("tbody th")
    expect(names).to_have_text(["measured", "as recorded", "16 lanes", "4 lanes"], timeout=60_000)
    expect(page.locator(".inflight-compare .headline")).to_contain_text(
        "goodput is highest with 16 lanes"
    )
    watched = [plan.locator("tbody tr").nth(n).get_by_role("button").count() for n in range(4)]
    assert watched == [0, 1, 1, 1]  # what was measured is the recording itself
    expect(plan.locator("thead th").nth(-2)).to_have_text("good/s")
    for hidden in ("transport", "cause"):  # the row of the one is not left empty
        expect(page.locator(f".inflight-compare .{hidden}")).to_be_hidden()
    ends = [
        page.locator(f".inflight-compare .{part}").bounding_box() for part in ("scroll", "page")
    ]
    assert ends[0]["y"] + ends[0]["height"] == ends[1]["y"] + ends[1]["height"]
    expect(plan.locator(".plan-run")).to_contain_text("vLLM 0.")
    plan.locator("[name=request]").select_option(label="F")
    assert plan.locator("thead th").all_inner_texts() == ["setting", "queued", "TTFT", "E2E", ""]
    page.locator(".chart .plot").scroll_into_view_if_needed()
    point = page.locator(".chart .scatterlayer .point").first
    point.wait_for(timeout=30_000)
    # Plotly hears what is above its points
    box = point.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_function("document.documentElement.dataset.part === 'watch'")
    page.wait_for_function("inflight.run.header.source === 'simulated'")
    assert page.evaluate("inflight.run.header.config.max_num_seqs") in (16, 4)
    expect(page.locator("#watch .source").first).to_contain_text("Simulated")


@pytest.mark.slow
def test_a_point_of_the_saved_picture_opens_the_page_of_its_run(fresh, tmp_path):
    made = plan(Trace.load(DATA.parents[1] / "assets/traces/gpt2-six.jsonl"), lanes=[1])
    made.run(made.points[0]).save_html(tmp_path / "1.html")
    made.save_html(tmp_path / "plan.html", pages=tmp_path)
    page = fresh()
    page.goto(f"file://{tmp_path}/plan.html")
    box = page.locator(".scatterlayer .point").first.bounding_box()
    with page.context.expect_page() as opened:
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    opened.value.wait_for_function("window.inflight?.run?.header.source === 'simulated'")
    assert opened.value.evaluate("inflight.run.header.config.max_num_seqs") == 1


def test_a_recording_that_no_engine_has_is_not_planned_and_says_so_before(visit, plain):
    page = visit(replay=replay(plain))
    page.evaluate("document.querySelector('.what-button').hidden = false")
    button = page.locator(".what-button")
    assert "Open its recording" in (button.get_attribute("title") or "")
    button.click()
    expect(page.locator("#watch .toast").first).to_contain_text("Open its recording")
