"""One motion a step: it ends in the picture that seeking gives, yields to the next key, runs
backwards, and is the same at the same share.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from core.config import EngineConfig
from core.recorders.convert import to_trace
from core.recorders.raw import read_raw
from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES
from visualizer.documents.replay import replay
from worlds.browser import seek, settled, still
from worlds.player import trace_of
from worlds.visual import record, request

# What all canvases show now, the flights above them included; not what is drawn anew each time in
# its own rhythm.
PICTURE = (
    "() => [...document.querySelectorAll('.inflight canvas')].map(c => c.getClientRects().length ?"
    " c.toDataURL() : '').join()"
)
FLYING = (
    "() => { const c = document.querySelector('.flights'); return c.getClientRects().length > 0 &&"
    " c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(x => x); }"
)
# Presses a key and collects the shares that were drawn until all has settled.
SHARES = """(key) => new Promise(done => { const seen = []; document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
    const look = () => { seen.push(inflight.motion.share); if (inflight.motion.share < 1 || seen.length < 3) requestAnimationFrame(look); else done([seen, inflight.index]); }; requestAnimationFrame(look); })"""  # noqa: E501


def hold(page, share: float) -> str:
    page.evaluate("(share) => inflight.motion.hold(share)", share)
    settled(page)
    return page.evaluate(PICTURE)


@pytest.mark.slow
def test_a_step_moves_and_settles_where_seeking_goes(visit, traces):
    page = visit(replay=replay(traces["continuous"]))
    seek(page, 3)
    shares, index = page.evaluate(SHARES, "ArrowRight")
    assert (
        index == 4
        and shares[-1] == 1
        and shares == sorted(shares)
        and len([s for s in shares if 0 < s < 1]) > 1
    )
    moved = still(page)
    seek(page, 8)
    seek(page, 4)
    assert still(page) == moved
    page.wait_for_timeout(150)  # sooner it would be a key held down
    shares, index = page.evaluate(SHARES, "ArrowLeft")
    assert (
        index == 3
        and shares[:-1] == sorted(shares[:-1], reverse=True)
        and shares[-1] == 1
        and min(shares) < 0.9
    )
    back = still(page)
    seek(page, 9)
    seek(page, 3)
    assert still(page) == back


def test_the_next_key_cuts_it_short(visit, traces):
    page = visit(replay=replay(traces["continuous"]))
    seek(page, 3)
    page.keyboard.press("ArrowRight")
    page.wait_for_function("inflight.motion.share > 0 && inflight.motion.share < 1")
    page.wait_for_timeout(150)
    page.keyboard.press("ArrowRight")
    assert page.evaluate(
        "[inflight.index, inflight.motion.index, inflight.motion.share < 0.9]"
    ) == [5, 5, True]
    page.evaluate("inflight.scrub(9)")
    assert page.evaluate("[inflight.index, inflight.motion.share]") == [9, 1]
    for _ in range(3):  # as a key held down: nothing moves, all steps are taken
        page.evaluate("inflight.step(1); inflight.step(1)")
    assert page.evaluate("[inflight.index, inflight.motion.share]") == [
        min(15, len(traces["continuous"].events) - 1),
        1,
    ]


@pytest.mark.parametrize("how", ["reduced motion", "fast", "far"])
def test_what_does_not_move(visit, traces, how):
    page = visit(
        replay=replay(traces["continuous"]),
        **({"reduced_motion": "reduce"} if how == "reduced motion" else {}),
    )
    seek(page, 3)
    if how == "fast":
        page.evaluate("inflight.transport.setSpeed(4); inflight.transport.toggle(true)")
        page.wait_for_function("inflight.index > 6")
    else:
        page.keyboard.press("Shift+ArrowRight" if how == "far" else "ArrowRight")
    assert page.evaluate("inflight.motion.share") == 1


def test_a_share_is_one_picture(visit, traces):
    """However it is come to; and between its ends something flies."""
    page = visit(replay=replay(traces["continuous"]))
    admitted = next(i for i, e in enumerate(traces["continuous"].events) if i and e.admitted)
    seek(page, admitted)
    settled_picture = page.evaluate(PICTURE)
    first = {share: hold(page, share) for share in (0, 0.15, 0.4, 0.55, 0.7, 0.9)}
    assert len(set(first.values())) == len(first)
    seek(page, 0)
    seek(page, admitted)
    assert {share: hold(page, share) for share in (0.9, 0.4, 0, 0.7, 0.15, 0.55)} == first
    assert page.evaluate(FLYING)
    assert hold(page, 1) == settled_picture and not page.evaluate(FLYING)


def test_a_preempted_request_goes_back_and_gives_up_its_blocks(visit):
    trace = trace_of("continuous", num_blocks=5)
    index = next(i for i, e in enumerate(trace.events) if e.preempted)
    page = visit(replay=replay(trace))
    seek(page, index)
    lost = [p.request for p in trace.events[index].preempted]
    hold(page, 0.1)
    leaving = (
        "[...inflight.blocks.shown].filter(([block, owners]) => owners.some(o => o.strength <"
        " 1)).map(([, owners]) => owners[0].request.id)"
    )
    assert set(page.evaluate(leaving)) >= set(lost)
    assert page.evaluate(FLYING) and page.evaluate(
        "[...inflight.flights.places.keys()].filter(k => k.startsWith('after')).length"
    ) == len(lost)
    hold(page, 0.5)
    assert page.evaluate(leaving) == []


def test_a_cached_prefix_goes_as_its_block_is_taken(visit):
    plan = [request(f"r{i}", 9 + 3 * (i % 3), 5, i // 2, first=100 * (i % 4)) for i in range(14)]
    page = visit(
        replay=replay(
            record(
                EngineConfig(
                    "continuous",
                    max_num_seqs=3,
                    max_num_batched_tokens=16,
                    block_size=4,
                    num_blocks=14,
                    prefix_caching=True,
                ),
                *plan,
            )
        )
    )
    steps = page.evaluate("inflight.run.events.length")
    gone = []
    for index in range(1, steps):
        page.evaluate(
            "(i) => { inflight.seek(i); inflight.motion.hold(0.5); inflight.draw(); }", index
        )
        gone.append(page.evaluate("[...inflight.blocks.forgotten].length"))
    assert sum(gone) > 0


@pytest.mark.slow
@pytest.mark.parametrize("size", ["desk", "phone"])
@pytest.mark.parametrize(
    "name",
    [
        "kv-pressure",
        "shared-prefix",
        "long-prompt-chunked",
        "verses-static",
        "poisson-32",
        "speculation",
        "hybrid",
    ],
)
def test_every_step_of_recorded_runs_moves(visit, name, size):
    """No error at any step and share, and the end is the settled picture."""
    raw = Path(__file__).parents[1] / "data" / f"vllm-0.32-{name}.raw.jsonl.gz"
    trace = to_trace(read_raw([raw])[0]) if raw.exists() else Trace.load(TRACES / f"{name}.jsonl")
    page = visit(replay=replay(trace), size=size)
    length = page.evaluate("inflight.run.length")
    for index in range(1, length, max(1, length // 40)):
        seek(page, index)
        before = page.evaluate(PICTURE)
        page.evaluate(
            "for (const share of [0, 0.1, 0.25, 0.45, 0.6, 0.7, 0.8, 0.95, 1]) {"
            " inflight.motion.hold(share); inflight.draw(); }"
        )
        settled(page)
        assert page.evaluate(PICTURE) == before, f"step {index}"
