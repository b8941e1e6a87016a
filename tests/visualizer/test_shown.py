"""The views draw what Python's account of the run says, at every step: caches, blocks new or found,
budget, rows, masks, new text, idle time.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from core.config import POLICIES, EngineConfig
from core.policy import Policy
from core.recorders.convert import to_trace
from core.recorders.raw import read_raw
from core.trace.events import StepEvent
from core.trace.mask import Mask
from core.trace.phrases import letters
from core.trace.run_state import Frame, RunState
from core.trace.trace import NOT_USED, Trace
from visualizer.documents.catalogue import TRACES
from visualizer.documents.comparison import RECORDED
from visualizer.documents.replay import drawn
from worlds.asynchronous import asynchronous_run, real_run
from worlds.visual import record, request

SCRIPT = Path(__file__).parents[1] / "js" / "shown.js"
DATA = Path(__file__).parents[1] / "data"
MOST_CELLS = 1500  # of a mask that is compared cell by cell


def blocks(
    trace: Trace, state: RunState, event: StepEvent, kv_lens: dict[str, int]
) -> dict[str, list[list[Any]]]:
    """Who holds which block at which place, how full it is, and whether it is new: taken in this
    step and not found in the prefix cache.
    """
    found: dict[str, list[list[Any]]] = {}
    added = {(c.request, c.group, b) for c in event.kv.changes for b in c.added}
    for owner, tables in state.tables.items():
        for number, table in tables.items():
            group = trace.header.groups[number]
            length = (
                min(kv_lens[owner], group.window)
                if group.kind == "ring" and group.window
                else kv_lens[owner]
            )
            for place, block in enumerate(table):
                if block is None:
                    continue
                at = place // (group.units or 1)
                first = at * group.block_size
                fill = (
                    1
                    if group.kind == "mamba"
                    else min(1, max(0, (length - first) / group.block_size))
                )
                fresh = (owner, number, block) in added and first >= event.kv.cached_tokens.get(
                    owner, 0
                )
                found.setdefault(str(block), []).append([owner, number, at, fill, fresh])
    return {block: sorted(owners) for block, owners in found.items()}


def budget(event: StepEvent) -> list[Any]:
    over = {o.request for o in event.overrun}
    parts: dict[tuple[str, str], int] = {}
    for s in event.segments:
        key = ("overrun" if s.request in over else s.phase, s.request)
        parts[key] = parts.get(key, 0) + s.length
    listed: list[list[Any]] = [
        [owner, phase, n]
        for (phase, owner), n in sorted(parts.items(), key=lambda part: part[0][0])
    ]
    pads = sum(p.padding for p in event.passes)
    if event.budget.limit is not None:
        return [listed, event.budget.limit]
    return [
        listed + ([[None, "pads", pads]] if pads else []),
        event.budget.decode + event.budget.prefill + pads,
    ]


def row(trace: Trace, event: StepEvent, index: int, mask: Mask) -> list[list[Any]]:
    """The tokens and pads of a pass in order: whose, at which position, as what."""
    segments = {s.request: s for s in event.segments if s.pass_index == index}
    guessed = {
        d.request: segments[d.request].kv_len - d.drafted
        for d in event.drafts
        if d.request in segments
    }
    cells: list[list[Any]] = []
    for query in mask.queries:
        if query.position is None:
            cells.append([query.request, None])
            continue
        text = trace.token_text(query.request, query.position) if query.text != NOT_USED else None
        guess = (
            ""
            if query.position < guessed.get(query.request, query.position + 1)
            else "taken"
            if text is not None
            else "forgotten"
        )
        cells.append(
            [
                query.request,
                query.position,
                text,
                guess,
                "draft" if guess else segments[query.request].phase,
            ]
        )
    forward = event.passes[index]
    spare = max(0, forward.bucket - forward.rows * forward.width) if forward.bucket else 0
    return cells + ([["graph padding", spare]] if spare else [])


def held_positions(trace: Trace, state: RunState, frame: Frame) -> list[list[int]] | None:
    """Of each kind of layers, how many positions every lane still holds: those of blocks that have
    not left, as far as they are computed.
    """
    bands = {
        (group.kind, group.window): number
        for number, group in reversed([*enumerate(trace.header.kv_groups)])
    }
    found: list[list[int]] = []
    for number in sorted(bands.values()):
        group, lanes = trace.header.groups[number], [0] * trace.config.max_num_seqs
        for one in frame.lanes:
            table = state.tables.get(one.request, {}).get(number, [])[:: group.units or 1]
            size = group.block_size or trace.config.block_size
            places = [
                min(size, one.kv_len - at * size)
                for at, block in enumerate(table)
                if block is not None and one.kv_len > at * size
            ]
            lanes[one.lane] = (
                min(one.kv_len, group.window or 0) if group.kind == "ring" else sum(places)
            )
        found.append(lanes)
    return found or None


def kinds(trace: Trace, event: StepEvent) -> list[str]:
    """What somebody who goes from event to event stops at."""
    lengths = trace.prompt_lengths
    chunks = [
        s
        for s in event.segments
        if s.phase == "prefill" and (s.start > 0 or s.kv_len < lengths[s.request])
    ]
    found = {
        "admission": event.admitted,
        "chunk": chunks,
        "preemption": event.preempted,
        "finish": event.finished,
    }
    return [kind for kind, there in found.items() if there]


def expected(trace: Trace) -> Iterator[dict[str, Any]]:
    state = RunState.of(trace.prompt_lengths, trace.header.policy.requeue)
    written = dict.fromkeys(trace.prompts, 0)
    named = letters(trace)
    last: StepEvent | None = None
    since: dict[str, float] = {}  # seconds: when the present wait began, where that is on record
    for event in trace.events:
        idle = event.t_start - last.t_end if last and trace.header.is_asynchronous else 0
        served = bool(state.waiting) or bool(state.lanes)
        held = {r: sorted(state.blocks_of(r)) for r in state.tables}
        for arrived in event.newcomers:
            since[arrived.request] = arrived.t
        for gone in event.preempted:
            since[gone.request] = event.t_start
        state.begin(event)
        before = dict(state.computed)
        frame = state.frame(event)
        kv_lens = {one.request: one.kv_len for one in frame.lanes}
        wrote: dict[str, list[str]] = {}
        for owner, _ in event.tokens:
            pieces = trace.texts.output[owner]
            # the token by which a model ends its answer is not read
            ends = written[owner] == len(pieces) - 1 and trace.text(owner) != "".join(pieces)
            wrote.setdefault(owner, []).append("" if ends else pieces[written[owner]])
            written[owner] += 1
        masks = [trace.mask(event.step, n) for n in range(len(event.passes))]
        lanes = [
            [one.lane, one.request, before.get(one.request, 0), one.kv_len] for one in frame.lanes
        ]
        yield {
            "step": event.step,
            "lengths": [
                [str(lane), named[owner], str(old), str(new)] for lane, owner, old, new in lanes
            ],
            "lanes": lanes,
            "waiting": [[one.request, one.since, one.preempted] for one in frame.waiting],
            "waited": [
                pytest.approx(max(0, event.t_end - since[one.request]), abs=1e-9)
                for one in frame.waiting
            ],
            "held": held_positions(trace, state, frame),
            "kinds": kinds(trace, event),
            "vanished": [
                [p.request, p.lane, p.tokens_lost, None if event.resumed else held[p.request]]
                for p in event.preempted
            ],
            "blocks": blocks(trace, state, event, kv_lens),
            "wrote": wrote,
            "idle": [pytest.approx(idle, abs=1e-9), served] if idle > 0 else None,
            "budget": budget(event),
            "rows": [row(trace, event, n, mask) for n, mask in enumerate(masks)],
            "masks": [
                (
                    ["".join("01"[cell] for cell in line) for line in m.allowed]
                    if m.num_cells <= MOST_CELLS
                    else None
                )
                for m in masks
            ],
        }
        state.end(event)
        last = event


def differences(traces: list[tuple[str, Trace]], folder: Path) -> Iterator[str]:
    """The steps of which something else is shown."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    paths = [folder / f"{index}.json" for index in range(len(traces))]
    for path, (_, trace) in zip(paths, traces, strict=True):
        path.write_text(json.dumps(drawn(trace)), encoding="utf-8")
    done = subprocess.run([node, SCRIPT, *paths], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for (name, trace), line in zip(traces, done.stdout.splitlines(), strict=True):
        for here, there in zip(expected(trace), json.loads(line), strict=True):
            for what, value in here.items():
                if value != there[what]:
                    yield f"{name}, step {here['step']}, {what}: {value} here, {there[what]} there"


@pytest.mark.slow
def test_every_recorded_run(tmp_path: Path) -> None:
    files = [*sorted(TRACES.glob("*.jsonl")), *sorted(RECORDED.glob("*/*.jsonl"))]
    traces = [(f"{file.parent.name}/{file.name}", Trace.load(file, trusted=True)) for file in files]
    found = list(differences(traces, tmp_path))
    assert found == [], found[:5]


@pytest.mark.slow
def test_runs_made_to_be_awkward(tmp_path: Path) -> None:
    """Few blocks, prefixes that are shared, steps launched ahead, leaks and windows; and victims
    that are not the newest.
    """
    plan = [
        request(f"r{i}", 3 + 5 * i % 17, 4 + i % 7, i // 2, first=100 * (i % 3)) for i in range(12)
    ]
    few = {"max_num_seqs": 4, "max_num_batched_tokens": 8, "block_size": 2, "num_blocks": 15}
    made = [(policy, record(EngineConfig(policy, **few), *plan)) for policy in POLICIES]
    sharing = EngineConfig(
        "continuous",
        max_num_seqs=3,
        max_num_batched_tokens=16,
        block_size=4,
        num_blocks=14,
        prefix_caching=True,
    )
    made.append(("sharing prefixes", record(sharing, *plan)))
    made += [
        (f"{policy}, launched ahead", real_run(policy, seed))
        for policy in ("static", "continuous")
        for seed in (1, 2)
    ]
    made.append(("graphs", asynchronous_run()))
    for name, change in {
        "leak": {"leak": True},
        "window": {"model": replace(made[0][1].header.model, windows=(4, 6))},
    }.items():
        for policy in ("static", "continuous"):
            trace = record(EngineConfig(policy, **few), *plan)
            trace.header = replace(trace.header, **change)
            made.append((f"{policy}, {name}", trace))
    found = list(differences(made, tmp_path))
    assert found == [], found[:5]


@dataclass(frozen=True, kw_only=True)
class OldestGivesWay(Policy):
    name: str = "oldest-gives-way"
    victim: str = "the oldest"

    def select_victim(self, candidates):
        return candidates[0]


def test_several_give_way_in_one_step(tmp_path: Path) -> None:
    """In the order of a policy's own, which is not that of their admission: each goes to the front
    of the queue, before whoever went just before it.
    """
    plan = [request(f"r{i}", 3, 10) for i in range(4)] + [
        request(f"long{i}", 18, 4, 3) for i in range(3)
    ]
    few = {"max_num_seqs": 6, "max_num_batched_tokens": 24, "block_size": 2, "num_blocks": 24}
    trace = record(EngineConfig(OldestGivesWay(reserve="chunk"), **few), *plan)
    assert any(len(e.preempted) > 2 for e in trace.events)
    assert list(differences([("the oldest gives way", trace)], tmp_path)) == []


@pytest.mark.slow
def test_runs_of_another_engine(tmp_path: Path) -> None:
    """Drafts that were rejected, windows that give blocks back, several groups of layers, steps
    that are missing.
    """
    made = [
        (name, to_trace(recording))
        for name in ("hybrid", "sliding-window", "speculation", "snapshots")
        for recording in read_raw([DATA / f"vllm-0.32-{name}.raw.jsonl.gz"])
    ]
    assert any(d.accepted < d.drafted for _, trace in made for e in trace.events for d in e.drafts)
    found = list(differences(made, tmp_path))
    assert found == [], found[:5]
