"""A run under asynchronous execution as the page shows it: a stopped request that is still
computed, graph padding, a device that waits.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from playwright.sync_api import expect

from core.config import POLICIES, EngineConfig
from core.trace.header import ExecutionFacts
from core.trace.trace import Trace
from visualizer.charts.step_figure import step_figure
from visualizer.documents.replay import replay
from visualizer.words.captions import MAX_CHARACTERS, captions, plain
from worlds import visual
from worlds.asynchronous import MEMORY, NOTE, asynchronous_run, real_run
from worlds.browser import mask_drawn, seek, settled


@pytest.fixture(scope="module")
def ran() -> Trace:
    return asynchronous_run()


@pytest.fixture(scope="module")
def at(ran) -> int:
    """The index of the step that computes for a request that had stopped."""
    return next(i for i, e in enumerate(ran.events) if e.overrun)


def sentences(trace: Trace, index: int) -> tuple[str, list[str]]:
    found = captions(trace)[index]
    return plain(found["say"]), [plain(s) for s in found["why"]]


def test_the_fold_keeps_a_stopped_request_in_its_lane_until_its_blocks_are_given_back(ran, at):
    shown = list(ran.frames())
    for request, rows in ran.events[at].overrun:
        before, now, after = (
            [r for r in f.lanes if r.request == request] for f in shown[at - 1 : at + 2]
        )
        assert (
            before[0].doing == ("decode",)
            and now[0].doing == ("overrun",)
            and now[0].length == rows
            and not after
        )
        assert any(request in owners for owners in shown[at].blocks.values())
        assert not any(request in owners for owners in shown[at + 1].blocks.values())
    assert all(len(f.blocks) == e.kv.used for f, e in zip(shown, ran.events, strict=True))


ONE_PASS = [name for name, policy in POLICIES.items() if policy.layout != "split"]


@pytest.mark.parametrize("policy", ONE_PASS)
def test_what_the_engine_runs_ahead_is_what_the_fold_says(policy):
    """Lanes, blocks, waiting and sentences of real runs in which requests stop and are cancelled
    while their next row is on its way.
    """
    overruns = 0
    for seed in range(4):
        trace = real_run(policy, seed)
        for event, frame, caption in zip(
            trace.events, trace.frames(), captions(trace), strict=True
        ):
            where = f"{policy}, seed {seed}, step {event.step}"
            assert len(frame.blocks) == event.kv.used, where
            assert len(frame.waiting) == event.waiting.count, where
            assert {r.request for r in frame.lanes if "overrun" in r.doing} == {
                o.request for o in event.overrun
            }, where
            assert {r.request for r in frame.lanes if "stalled" in r.doing} == {
                s.request for s in event.stalled
            }, where
            assert {r.request for r in frame.lanes if "finished" in r.doing} >= {
                f.request for p in event.passes for f in p.finished_rows
            }
            assert len(plain(caption["say"], lambda r: "A")) <= MAX_CHARACTERS and all(
                plain(s).endswith(".") for s in caption["why"]
            )
            overruns += len(event.overrun)
    assert overruns > 0


@pytest.mark.parametrize("policy", ["static", "dynamic", "continuous"])
def test_what_the_engine_runs_ahead_is_what_is_drawn(visit, policy):
    trace = real_run(policy, 2)
    page = visit(replay=replay(trace))
    counts = page.evaluate("inflight.lanes.counted")
    assert counts["overrun"] == sum(len(e.overrun) for e in trace.events) > 0
    assert counts["wasted"] - counts["overrun"] == sum(
        len({r.lane for p in e.passes for r in p.finished_rows}) for e in trace.events
    )
    owned = page.evaluate(
        "inflight.run.events.map((_, i) => inflight.blocks.owners(inflight.run.frame(i)).size)"
    )
    assert owned == [event.kv.used for event in trace.events]
    waiting = page.evaluate("inflight.run.events.map((_, i) => inflight.run.waitingAt(i).length)")
    assert waiting == [e.waiting.count for e in trace.events]
    for index in [i for i, e in enumerate(trace.events) if e.overrun or e.finished]:
        seek(page, index)
        for number in range(len(trace.events[index].passes)):
            drawn = mask_drawn(page, number)
            assert np.array_equal(drawn, trace.mask(trace.events[index].step, number).allowed), (
                f"step {index}, pass {number}"
            )


def test_it_is_said_that_it_was_for_nothing(ran, at):
    request = ran.events[at].overrun[0].request
    say, why = sentences(ran, at)
    assert f"{request} is computed for nothing, as it had stopped" in say
    assert any(
        f"{request} stopped in step {ran.events[at - 1].step}, when this step was already launched:"
        " 1 position" in s
        for s in why
    )
    assert not any(s.startswith(request) and "gets the next" in s for s in why)
    assert any(
        f"{request} is done" in s and "becomes free after it" in s
        for s in sentences(ran, at - 1)[1]
    )


@pytest.mark.parametrize(("arrival", "waits"), [(0, True), (20, False)])
def test_a_device_waits_for_the_host_only_if_there_is_somebody_to_serve(arrival, waits):
    config = EngineConfig(max_num_seqs=1, max_num_batched_tokens=10, block_size=4)
    trace = visual.record(config, visual.request("r0", 5, 2), visual.request("r1", 4, 2, arrival))
    header = replace(trace.header, execution=ExecutionFacts(asynchronous=True, attention="triton"))
    begins = next(i for i, e in enumerate(trace.events) if e.segments[0].request == "r1")
    late = [
        e._replace(t_start=e.t_start + (i >= begins), t_end=e.t_end + (i >= begins))
        for i, e in enumerate(trace.events)
    ]
    told = captions(replace(trace, header=header, events=late, recorded_texts=trace.texts))
    said = [plain(s) for s in told[begins]["why"] if "The device waited" in plain(s)]
    assert len(said) == waits


def test_graph_padding_and_the_waiting_device_are_said(ran, at):
    event = ran.events[at]
    pads = (event.passes[0].bucket or 0) - event.passes[0].width
    why = sentences(ran, at)[1]
    assert (
        f"The pass runs as a CUDA graph of 4 positions: {pads} of them is padding that belongs to"
        " no request." in why
    )
    assert "The device waited 1.00 ms for the host before this step." in why
    assert not any(
        "device" in s
        for s in sentences(
            replace(ran, header=replace(ran.header, execution=None), recorded_texts=ran.texts), at
        )[1]
    )


def test_an_exported_step_says_so_too(ran, at):
    row = step_figure(ran, ran.events[at].step).data[0]
    assert sum("overrun" in text for text in row["customdata"][0]) == sum(
        o.rows for o in ran.events[at].overrun
    )


def test_every_view_calls_it_overrun(visit, ran, at):
    page = visit(replay=replay(ran))
    seek(page, at)
    over = sum(o.rows for e in ran.events for o in e.overrun)
    counts = page.evaluate("inflight.lanes.counted")
    assert (counts["overrun"], counts["wasted"]) == (over, over)
    assert counts["decode"] + counts["prefill"] + over == sum(
        len({s.lane for s in e.segments}) for e in ran.events
    )
    assert page.evaluate("inflight.row.cells.filter(c => c.item.overrun).length") == sum(
        o.rows for o in ran.events[at].overrun
    )
    assert "(1 overrun)" in page.inner_text(".panel.row .key")
    assert (
        "1 of it overrun" in page.inner_text(".budget-split")
        and page.locator(".part.overrun").count() == 1
    )
    assert (
        page.locator(".lanes .legend-overrun").is_visible()
        and page.locator(".mask .legend-overrun").is_visible()
    )
    hovered = page.evaluate(
        """(() => { const { at, pass } = inflight.mask.drawn, i = pass.items.find(i => i.overrun);
        return inflight.mask.explain(i.q0, i.k0).lines.flat().join(' '); })()"""
    )
    assert "overrun, computed for nothing" in hovered
    row = page.evaluate("inflight.mask.table(inflight.mask.state).rows.map(r => r.at(-1))")
    assert row.count("overrun: computed for nothing") == 1
    lane = page.evaluate(
        "(i) => inflight.frame.lanes.find(l => inflight.run.statuses[i][l.lane] & 32).lane", at
    )
    assert (
        page.evaluate("(n) => inflight.lanes.table(inflight.lanes.state).rows[n][3]", lane)
        == "overrun"
    )
    seek(page, at + 1)
    assert page.evaluate("(n) => inflight.frame.lanes[n].request", lane) is None


@pytest.mark.slow
def test_its_mask_is_the_mask_that_was_computed(visit, ran):
    page = visit(replay=replay(ran))
    for index, event in enumerate(ran.events):
        seek(page, index)
        drawn = mask_drawn(page)
        assert np.array_equal(drawn, ran.mask(event.step, 0).allowed), f"step {event.step}"
        assert page.evaluate("inflight.blocks.owners(inflight.frame).size") == event.kv.used


def test_graph_padding_stands_after_the_row(visit, ran, at):
    page = visit(replay=replay(ran))
    seek(page, at)
    assert page.evaluate("inflight.row.cells.map(c => c.text).at(-1)") == "+1 graph padding"
    x, y = page.evaluate(
        """(() => { const c = inflight.row.cells.at(-1), box = inflight.row.surface.canvas.getBoundingClientRect();
        return [box.x + c.x + 2, box.y + c.y + 2]; })()"""  # noqa: E501
    )
    page.mouse.move(x, y)
    expect(page.locator(".tooltip")).to_contain_text(
        "Graph padding: the CUDA graph has 4 positions, 1 of them for no request"
    )
    wide = next(i for i, e in enumerate(ran.events) if e.passes[0].bucket is None)
    seek(page, wide)
    assert not page.evaluate("inflight.row.cells.some(c => c.graph)")


def test_the_clock_shows_the_device_idle(visit, ran, at):
    page = visit(replay=replay(ran), hash="axis=time")
    seek(page, at)
    assert page.inner_text(".lanes .key").startswith("device waited 1.00 ms for the host, step")
    assert page.inner_text(
        ".queue .waited"
    ) == "Device waited 1.00 ms for the host" and "on the device" in page.inner_text(".time-key")
    assert [t for t in page.locator(".timings dt").all_inner_texts() if t.startswith("host")] == [
        "host: schedule",
        "host: prepare",
    ]
    assert page.locator(".legend-idle").is_visible()
    assert page.evaluate("inflight.lanes.idle") == pytest.approx(
        sum(b.t_start - a.t_end for a, b in zip(ran.events, ran.events[1:], strict=False))
    )
    middle = page.evaluate(
        "(i) => (inflight.lanes.scale.to(i) + inflight.lanes.scale.from(i + 1)) / 2", at
    )
    assert page.evaluate(
        "([x, y]) => inflight.lanes.hit(x, y).lines[0][0]", [middle, 40]
    ).startswith("device waited 1.00 ms for the host")
    page.evaluate("inflight.setClock(false)")
    settled(page, "document.querySelector('.legend-idle').hidden")


@pytest.mark.slow
def test_what_the_engine_noted_stands_where_the_machine_does(visit, ran):
    page = visit(replay=replay(ran))
    assert page.locator(".source.noted").count() == 1 and NOTE in (
        page.get_attribute(".source", "title") or ""
    )
    page.click(".source")
    card = page.inner_text(".card[open]")
    assert (
        NOTE in card
        and "3.00 GiB weights" in card
        and "12.0 GiB KV pool" in card
        and f"{MEMORY['peak'] / 2**30:.1f} GiB" in card
    )
    page.keyboard.press("Escape")
    phone = visit(replay=replay(ran), size="phone")
    phone.tap(".more-button")
    phone.tap("text=About this run")
    assert NOTE in phone.inner_text(".card[open]")


def test_overruns_have_their_word_below_the_mask_of_any_run(visit, ran):
    header = replace(ran.header, execution=None)
    page = visit(
        replay=replay(Trace(header, ran.asked, ran.events, recorded_texts=ran.texts)),
    )
    assert page.locator(".mask .legend-overrun").is_visible()


def test_a_run_without_any_of_it_shows_none_of_it(visit, ran):
    plain_header = replace(ran.header, execution=None, notes=(), memory=None)
    events = [e for e in ran.events if not e.overrun][:4]
    page = visit(
        replay=replay(Trace(plain_header, ran.asked, events, recorded_texts=ran.texts)),
        hash="axis=time",
    )
    assert page.evaluate("inflight.lanes.idle") == 0 and not page.locator(".source.noted").count()
    assert (
        not page.locator(".queue .waited").is_visible()
        and not page.locator(".lanes .legend-overrun").is_visible()
    )
    assert page.locator(".timings dt").all_inner_texts() == [
        "schedule",
        "prepare",
        "forward",
        "sample",
        "other",
    ]
