"""Why was it slow: the parts of a request's time on its card, the worst of the run as links, and a
table that sorts; what is shown is what core computed.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from playwright.sync_api import expect

from core.account.delays import NAMES, SHARE_NAMES, delays
from core.trace.phrases import letters
from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES
from visualizer.documents.replay import replay
from visualizer.words.delays import gap_sentence, wait_sentence
from visualizer.words.language import speaking
from visualizer.words.vocabulary import plain
from worlds.browser import settled
from worlds.delays import adds_up

BAR = (
    "[...document.querySelectorAll('.request-card .time-bar i')].map((el) => [el.className,"
    " Number(el.style.flexGrow)])"
)


def loaded(name: str) -> Trace:
    return Trace.load(TRACES / f"{name}.jsonl")


def told(page) -> list[str]:
    return [
        " ".join(text.split()) for text in page.locator(".slow-card .worst li").all_inner_texts()
    ]


def sentences(trace: Trace) -> list[str]:
    """As they stand in the card: a step, then the sentence."""
    found, names = delays(trace), letters(trace)
    said = [(gap.step, gap_sentence(gap)) for gap in found.gaps] + [
        (d.first_step, wait_sentence(d)) for d in found.waits
    ]
    return [
        " ".join(f"step {step} {plain(sentence, names.__getitem__)}".split())
        for step, sentence in said
    ]


@pytest.mark.parametrize("name", ["kv-pressure", "short-and-long", "vllm-kv-pressure"])
def test_the_bar_on_the_card_has_the_parts_that_core_computed(visit, name):
    trace = loaded(name)
    page = visit(replay=replay(trace))
    for delay in adds_up(trace).requests:
        page.evaluate(
            "(id) => { inflight.store.set({ pinned: inflight.run.request(id) }); }",
            delay.request,
        )
        settled(page, "inflight.card._named.request.id === arg", delay.request)
        parts = [(name, us) for name, us in zip(NAMES, delay.us, strict=True) if us]
        assert page.evaluate(BAR) == [[f"went went-{name}", us] for name, us in parts]
        words = page.get_attribute(".request-card .time-bar", "aria-label")
        assert all(SHARE_NAMES[part] in words for part, _ in parts)
        boxes = page.evaluate(
            "[...document.querySelectorAll('.request-card .time-bar i')].map((el) =>"
            " el.getBoundingClientRect().width)"
        )
        assert len(boxes) == len(parts) and all(width >= 2 for width in boxes)


@pytest.mark.parametrize("name", ["long-prompt-arrives", "short-and-long"])
def test_the_worst_of_a_run_are_links_to_their_steps(visit, name):
    trace = loaded(name)
    page = visit(replay=replay(trace))
    page.click(".slow-button")
    assert told(page) == sentences(trace)
    gap = delays(trace).gaps[1]
    page.locator(".slow-card .worst a").nth(1).click()
    expect(page.locator(".slow-card[open]")).to_have_count(0)
    settled(
        page,
        "inflight.frame.event.step === arg[0] && inflight.pinned?.id === arg[1]",
        [gap.step, gap.request],
    )


@pytest.mark.smoke
def test_the_table_sorts_by_what_is_pressed_and_its_rows_select(visit):
    trace = loaded("short-and-long")
    page = visit(replay=replay(trace))
    page.keyboard.press("w")
    rows = page.locator(".slow-table tbody tr th")
    found = {d.request: d for d in delays(trace).requests}

    def order() -> list[str]:
        return [text.split()[-1] for text in rows.all_inner_texts()]

    by = lambda part: sorted(found, key=lambda r: -found[r].us[NAMES.index(part)])  # noqa: E731
    assert order() == by("queued")
    expect(page.locator("th[aria-sort]")).to_have_text("queued ↓")
    page.click(".slow-table [data-by=others]")
    values = [found[r].us[NAMES.index("others")] for r in order()]
    assert values == sorted(values, reverse=True)
    assert page.evaluate("document.activeElement.dataset.by") == "others"
    page.keyboard.press("Enter")
    values = [found[r].us[NAMES.index("others")] for r in order()]
    assert values == sorted(values) and page.locator("th[aria-sort=ascending]").count() == 1
    third = order()[2]
    search = page.locator(".slow-card input")
    search.fill("nobody")
    expect(page.get_by_text("No request has this as its letter or in its id.")).to_be_visible()
    search.fill("")
    rows.nth(2).click()
    settled(page, "inflight.pinned?.id === arg", third)
    assert page.locator(".slow-card[open]").count() == 0


def test_a_run_that_goes_on_says_when_it_is_known(visit):
    """The control: without the record of a run that is over, nothing is drawn."""
    page = visit(replay={**replay(loaded("kv-pressure")), "delays": None})
    expect(page.locator(".slow-button")).to_be_hidden()
    page.evaluate("() => { inflight.store.set({ pinned: inflight.run.requests[0] }); }")
    settled(page, "!document.querySelector('.request-card').hidden")
    assert (
        page.inner_text(".went-key") == "known when the run has ended"
        and page.locator(".time-bar").count() == 0
    )


def test_a_simulated_run_says_so_there(visit):
    trace = loaded("kv-pressure")
    page = visit(replay=replay(trace))
    page.click(".slow-button")
    assert "Simulated" not in page.inner_text(".slow-card")
    trace.header = replace(trace.header, source="simulated", cost={"kind": "fitted"})
    page = visit(replay=replay(trace))
    page.click(".slow-button")
    assert "Simulated: these times come from a cost model." in page.inner_text(".slow-card")


def on_the_axis(page, step: int) -> list[str]:
    """What the axis says where a step is drawn."""
    return page.evaluate(
        """(step) => { const i = inflight.run.indexOf(step), { lanes } = inflight;
        return lanes.hit((lanes.scale.from(i) + lanes.scale.to(i)) / 2, 3).lines.map((line) => line.map((s) => s.said ?? s.r ?? s).join("")); }""",  # noqa: E501
        step,
    )


def test_a_step_that_took_long_is_seen_on_the_axis_of_steps(visit):
    trace = loaded("long-prompt-arrives")
    page = visit(replay=replay(trace))
    took = sorted(e.t_end - e.t_start for e in trace.events)
    median = took[(len(took) - 1) // 2]
    slow = [i for i, e in enumerate(trace.events) if e.t_end - e.t_start >= 2 * median]
    assert page.evaluate("[...inflight.lanes.slow.keys()]") == slow and 8 in slow
    longest = trace.event(8).t_end - trace.event(8).t_start
    said = f"step 8 took {1e3 * longest:.1f} ms, {longest / median:.1f} times the median step"
    assert on_the_axis(page, 8) == [
        said,
        (
            f"r0 r1 r2 r3 each get the next token after {1e3 * longest:.1f} ms: r4 computes 493"
            " tokens of prefill in the same pass."
        ),
    ]
    assert on_the_axis(page, 12) == [
        f"step 12 took {1e3 * (trace.event(12).t_end - trace.event(12).t_start):.2f} ms"
    ]
    ink = """([step, w]) => { const i = inflight.run.indexOf(step), { lanes } = inflight, { d } = lanes.surface;
        return [...lanes.ground.getContext("2d").getImageData(Math.round(lanes.scale.to(i) * d) - w, Math.round(2 * d), 1, 1).data]; }"""  # noqa: E501
    assert page.evaluate(ink, [8, 4])[3] > 0 and page.evaluate(ink, [12, 4])[3] == 0
    page.evaluate("inflight.seekStep(8)")
    expect(page.locator(".panel.lanes > h3 > .key")).to_have_text(said)
    page.keyboard.press("c")  # over seconds its width tells
    settled(page, "inflight.lanes.scale.clock")
    assert page.evaluate(ink, [8, 4])[3] == 0


def test_sentences_have_the_same_numbers_in_german():
    for path in sorted(TRACES.glob("*.jsonl")):
        found = delays(Trace.load(path, trusted=True))
        for say, one in [(gap_sentence, gap) for gap in found.gaps] + [
            (wait_sentence, d) for d in found.waits
        ]:
            english = plain(say(one))
            with speaking("de"):
                german = plain(say(one))
            digits = lambda text: sorted(c for c in text if c.isdigit())  # noqa: E731
            assert digits(english) == digits(german) and english != german
