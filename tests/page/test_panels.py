"""What the panels say in words and bars is what ran, at every step: who waits since when, how the
budget was split, what was written.
"""

from __future__ import annotations

import re

import pytest

from core.config import EngineConfig
from core.trace.events import StepEvent
from core.trace.run_state import Frame, LaneRow, RunState
from core.trace.trace import Texts, Trace
from visualizer.documents.replay import replay
from worlds.visual import record, request

# Of every step at once: drawing and reading take no time between them, so nothing moves.
_PANELS = """() => inflight.run.events.map((_, i) => {
    inflight.seek(i);
    inflight.draw();
    const all = (selector) => [...inflight.root.querySelectorAll(selector)].filter((el) => !el.hidden);
    const id = (el) => (el.dataset.request === undefined ? null : inflight.run.requests[el.dataset.request].id);
    const first = (view, { x, y, w, h }) => view.hit(x + w / 2, y + h / 2).lines[0].map((part) => (part.request ? `@${part.request.id}` : part)).join("");
    const said = (el, of) => [...el.querySelectorAll(of)].filter((one) => !one.hidden).map((one) => one.textContent).join("");
    return {
        waiting: all(".wait").map((el) => (el.matches(".more") ? said(el, ".wait-text") : [id(el), said(el, ".wait-text"), said(el, ".wait-since")])),
        budget: all(".budget-bar .part").map((el) => [el.className.split(" ")[1], id(el), parseFloat(el.style.width)]),
        gauges: all(".gauge-value").map((el) => el.textContent),
        fills: all(".gauge-fill").map((el) => parseFloat(el.style.width)),
        texts: Object.fromEntries(all(".said").filter((el) => !el.matches(".gone")).map((el) => [id(el), [said(el, ".output"), said(el, "mark")]])),
        gone: all(".said.gone").map(id),
        ended: all(".said").filter((el) => /finished/.test(said(el, ".note"))).map(id).sort(),
        lengths: inflight.lengths.places().map((place) => first(inflight.lengths, place)),
        heard: inflight.lengths.table({ run: inflight.run, frame: inflight.frame }).rows,
        blocks: inflight.blocks.places().map((place) => first(inflight.blocks, place)),
        lanes: inflight.frame.lanes.map(({ lane }) => {
            const { scale } = inflight.lanes, [y, h] = inflight.lanes.lane(lane);
            return first(inflight.lanes, { x: scale.from(i), w: scale.to(i) - scale.from(i), y, h });
        }),
    };
})"""  # noqa: E501


def tokens(n: int) -> str:
    return f"{n} token" if n == 1 else f"{n} tokens"


def waiting(trace: Trace, frame: Frame) -> list:
    rows = [
        [
            one.request,
            (
                "preempted, waits again"
                if one.preempted
                else f"prompt of {tokens(trace.prompt_lengths[one.request])}"
            ),
            f"since step {one.since}",
        ]
        for one in frame.waiting
    ]
    return rows if len(rows) <= 4 else [*rows[:3], f"and {len(rows) - 3} more behind"]


def budget(event: StepEvent) -> list:
    parts: dict[tuple[str, str | None], int] = {}
    for s in event.segments:
        parts[s.phase, s.request] = parts.get((s.phase, s.request), 0) + s.length
    shares = sorted(parts.items(), key=lambda part: part[0][0])
    pads = sum(p.padding for p in event.passes)
    whole = event.budget.limit
    if whole is None:
        whole = sum(parts.values()) + pads
        shares += [(("pads", None), pads)] if pads else []
    return [
        [phase, owner, pytest.approx(100 * n / whole, abs=1e-3)] for (phase, owner), n in shares
    ]


def pointed_length(lane: int, one: LaneRow | None, cached: dict[str, int]) -> str:
    if one is None:
        return f"lane {lane} is free"
    grown = one.kv_len - cached[one.request]
    return f"@{one.request} holds {one.kv_len} [position|positions]" + (
        f", {grown} of them new in this step" if grown else ""
    )


def pointed_lane(lane: int, one: LaneRow | None, event: StepEvent) -> str:
    if one is None:
        return f"lane {lane} is free in step {event.step}"
    doing = {
        (): "nothing computed; it had stopped, and its lane is free after this step",
        ("stalled",): "stalled, nothing computed",
        ("finished",): "finished; its row is computed as padding until the wave ends",
        ("prefill",): "reads (prefill)",
        ("decode",): "writes (decode)",
        ("prefill", "decode"): "reads (prefill), then writes (decode)",
    }.get(one.doing, one.doing[0] if one.doing else "")
    return f"@{one.request} lane {lane}, step {event.step}: {doing}"


def pointed_block(
    block: int, owners: tuple[str, ...], state: RunState, frame: Frame, event: StepEvent
) -> str:
    (owner,) = owners
    size = LIMITS["block_size"]
    first = size * state.tables[owner][0].index(block)
    length = next(one.kv_len for one in frame.lanes if one.request == owner)
    new = any(block in change.added for change in event.kv.changes)
    filled = f"{min(size, max(0, length - first))} of {size} filled"
    return (
        f"Block {block}: @{owner} positions {first} to {first + size - 1},"
        f" {filled}{', new in this step' if new else ''}"
    )


LIMITS = {"max_num_seqs": 3, "max_num_batched_tokens": 12, "block_size": 4, "num_blocks": 9}
PLAN = [
    (9, 5, 0),
    (3, 8, 0),
    (17, 3, 1),
    (2, 1, 2),
    (6, 4, 2),
    (5, 6, 2),
    (3, 2, 2),
    (4, 1, 2),
    (7, 3, 90),
    (6, 9, 91),
]  # nothing to do for some time before the last two


@pytest.mark.smoke
@pytest.mark.parametrize(
    "policy", ["static", "split-chunked", "continuous"]
)  # pads beside no limit, two tokens in one step, preemptions
def test_the_panels_say_what_ran(visit, policy):
    plan = [
        request(f"r{i}", prompt, new, at, first=100 * i) for i, (prompt, new, at) in enumerate(PLAN)
    ]
    trace = record(EngineConfig(policy, **LIMITS), *plan)
    assert trace.events[-1].step > len(trace.events), "no step's number is its index"
    page = visit(replay=replay(trace))
    said = page.evaluate(_PANELS)
    letters = page.evaluate(
        "Object.fromEntries(inflight.run.requests.map((one) => [one.id, one.letter]))"
    )
    state, written = RunState.of(trace.prompt_lengths), dict.fromkeys(trace.prompts, 0)
    over: dict[str, int] = {}  # when it ended
    for index, (event, panels) in enumerate(zip(trace.events, said, strict=True)):
        before = {r: "".join(trace.texts.output[r][:n]) for r, n in written.items()}
        for owner, _ in event.tokens:
            written[owner] += 1
        state.begin(event)
        cached, frame = dict(state.computed), state.frame(event)
        held = {one.lane: one for one in frame.lanes}
        fills = [len(held) / LIMITS["max_num_seqs"], event.kv.used / event.kv.total]
        new = {r: "".join(trace.texts.output[r][:n])[len(before[r]) :] for r, n in written.items()}
        assert panels["waiting"] == waiting(trace, frame), event.step
        assert panels["budget"] == budget(event), event.step
        assert panels["gauges"] == [
            f"{len(held)} of {LIMITS['max_num_seqs']}",
            f"{event.kv.used} of {event.kv.total}",
        ], event.step
        assert panels["fills"] == [pytest.approx(100 * fill, abs=0.01) for fill in fills], (
            event.step
        )
        for one in frame.lanes:
            assert panels["texts"][one.request] == [
                before[one.request],
                new[one.request],
            ], event.step
        assert {f.request for f in event.finished} <= set(panels["ended"]), event.step
        lately = [r for r in trace.asked if over.get(r, -99) >= index - 12]
        assert (
            panels["gone"]
            == [r for r in reversed(lately) if r not in {one.request for one in frame.lanes}][:3]
        ), event.step
        over |= {f.request: index for f in event.finished}
        assert panels["lengths"] == [
            pointed_length(lane, held.get(lane), cached) for lane in range(LIMITS["max_num_seqs"])
        ], event.step
        assert panels["heard"] == [
            [str(one.lane), letters[one.request], str(cached[one.request]), str(one.kv_len)]
            for one in frame.lanes
        ], event.step
        assert panels["lanes"] == [
            pointed_lane(lane, held.get(lane), event) for lane in range(LIMITS["max_num_seqs"])
        ], event.step
        for block, owners in frame.blocks.items():
            assert panels["blocks"][block] == pointed_block(block, owners, state, frame, event), (
                event.step
            )
        state.end(event)


# What the door says, and every text that any canvas is given to draw, at every step.
_SIMPLE = """() => {
    const ink = CanvasRenderingContext2D.prototype, { fillText } = ink;
    let drawn = new Set();
    ink.fillText = function (text, ...at) { drawn.add(text); return fillText.call(this, text, ...at); };
    return inflight.run.events.map((_, i) => {
        drawn = new Set();
        inflight.seek(i);
        inflight.draw();
        const door = [...inflight.root.querySelectorAll(".waiter")].filter((el) => !el.hidden);
        return {
            door: door.map((el) => [inflight.run.requests[el.dataset.request].id, el.lastChild.textContent]),
            more: inflight.root.querySelector(".door-more").textContent,
            drawn: [...drawn],
        };
    });
}"""  # noqa: E501


@pytest.mark.parametrize("detail", ["simple", "full"])
def test_the_door_counts_who_waits_and_no_word_is_drawn_before_it_was_written(visit, detail):
    plan = [request(f"r{i}", 3 + i, 4 + i % 5, 0) for i in range(12)]
    trace = record(
        EngineConfig(
            "continuous", max_num_seqs=4, max_num_batched_tokens=12, block_size=4, num_blocks=8
        ),
        *plan,
    )
    assert any(e.preempted for e in trace.events)
    words = {
        r: [f"{chr(97 + i)}{n}" for n in range(len(ids))]
        for i, (r, ids) in enumerate(trace.outputs.items())
    }  # each is written once
    trace.recorded_texts = Texts(trace.recorded_texts.prompt, words)
    page = visit(replay=replay(trace), detail=detail, device_scale_factor=1)
    state, since, written = RunState.of(trace.prompt_lengths), {}, set()
    is_long = trace.events[-1].t_end - trace.events[0].t_start >= 1
    for event, said in zip(trace.events, page.evaluate(_SIMPLE), strict=True):
        state.begin(event)
        frame = state.frame(event)
        since |= {a.request: a.t for a in event.arrived} | {
            p.request: event.t_start for p in event.preempted
        }
        state.end(event)
        new = {words[r][state.num_tokens[r] - trace.prompt_lengths[r] - 1] for r, _ in event.tokens}
        written |= new
        drawn = {word for text in said["drawn"] for word in re.findall(r"[a-l]\d", text)}
        assert drawn <= written, event.step
        if detail == "full":
            continue
        assert new <= drawn, event.step
        shown = frame.waiting[: 5 if len(frame.waiting) > 6 else 6]
        waited = {r: event.t_end - t for r, t in since.items()}
        assert said["door"] == [
            [r, f"waits {waited[r]:.2f} s" if is_long else f"waits {1000 * waited[r]:.0f} ms"]
            for r in (one.request for one in shown)
        ], event.step
        rest = len(frame.waiting) - len(shown)
        assert said["more"] == (
            f"and {rest} more" if rest else "" if shown else "Nobody waits at the door."
        ), event.step


@pytest.mark.slow
def test_a_new_word_leaves_nothing_in_the_line_above_and_who_waits_keeps_the_question(
    visit, page_url
):
    shown = f"{page_url}/", "run=kv-pressure&step=16&detail=simple"
    page = visit(shown[0], hash=shown[1])
    lines = page.locator(".texts mark:not([hidden])").evaluate_all(
        "(marks) => Array.from({ length: 150 }, (_, n) => {"
        " document.querySelector('.texts').style.width = `${120 + n}px`;"
        " const seen = (mark) => [...mark.getClientRects()].filter((r) => r.width > 1).length;"
        " return Math.max(...marks.map(seen)); })"
    )
    assert lines == [1] * 150  # however wide, and wherever a line ends
    page = visit(shown[0], hash=f"{shown[1]}&present=1", viewport={"width": 1024, "height": 768})
    above = page.locator(".said:not([hidden])").evaluate_all(
        "(rows) => rows.map((row) => row.getBoundingClientRect().top -"
        " row.querySelector('.words').getBoundingClientRect().top > 1)"
    )
    assert above == [True] * 5 + [False]  # F alone writes nothing


def test_a_long_answer_shows_the_words_that_are_new(visit, page_url):
    page = visit(f"{page_url}/", hash="run=six-questions&detail=full&step=133")
    rows = page.evaluate(
        "[...document.querySelectorAll('.said:not([hidden])')].map((row) => ["
        "row.textContent.length,"
        " row.querySelector('.note').getBoundingClientRect().bottom,"
        " row.querySelector('.words').getBoundingClientRect().bottom])"
    )
    assert max(length for length, _, _ in rows) > 200
    assert all(end <= seen + 1 for _, end, seen in rows)


def test_the_buttons_of_passes_name_who_is_in_them_at_every_step(visit, page_url):
    page = visit(f"{page_url}/", hash="run=nanogpt-chunked-4&detail=full&step=0")
    told, ran = page.evaluate(
        """(async () => {
          const told = [], ran = [];
          for (const { i } of inflight.run.events.map((_, i) => ({ i }))) {
            inflight.seek(i);
            await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
            const { passes } = inflight.frame;
            const letters = (p) => p.items.map((x) => x.request.letter).join(" ");
            const names = (p) => p.padded ? "decode" : letters(p);
            ran.push(passes.length > 1 ? passes.map((p, n) => `${n + 1} ${names(p)}`) : []);
            told.push([...document.querySelectorAll(".pass-choice")].map((b) => b.textContent));
          }
          return [told, ran];
        })()"""
    )
    assert told == ran and len({tuple(step) for step in told}) > 2


def test_what_is_pointed_at_belongs_to_the_run_on_screen(visit, page_url):
    """Live: a run that has dropped its oldest steps takes the place of the one drawn before it."""
    page = visit(f"{page_url}/", hash="run=gpt2-six&detail=full&step=9")
    same = page.evaluate(
        "(() => { const drawn = inflight.run.requests[0];"
        " inflight.put({run: new inflight.run.constructor(inflight.replay)});"
        " inflight.pin(drawn); inflight.hover({request: drawn});"
        " return [inflight.pinned, inflight.store.state.hovered].map((one) =>"
        " one !== drawn && one === inflight.run.requests[0]) })()"
    )
    assert same == [True, True]
