"""The live batch: whoever comes in the middle sees what those see who were there from the start;
readers who fall behind skip; what is hidden is not sent.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.config import POLICIES, EngineConfig
from core.serving import event_log
from core.serving.event_log import EventLog, ServedStep
from core.trace.events import Carried, Resumed, StepEvent
from core.trace.run_state import RunState
from core.trace.trace import Trace
from visualizer.charts.theme import deal
from visualizer.documents.catalogue import TRACES
from visualizer.documents.live import HIDDEN, LiveRun, shown
from visualizer.documents.replay import replay
from visualizer.server import routes
from visualizer.server.live import CHAPTER, CHAPTERS, Live
from worlds.asynchronous import with_overrun
from worlds.player import trace_of
from worlds.server_events import messages_in
from worlds.visual import record
from worlds.visual import request as asked_for

SCRIPT = Path(__file__).parents[1] / "js" / "beginnings.js"


def most_new(trace: Trace) -> dict[str, int]:
    return {request: one.request.sampling.max_new_tokens for request, one in trace.asked.items()}


def messages(trace: Trace) -> list:
    """What an engine tells of a run, as `core.serving.event_log` has it: every request just before
    the step in which it arrives.
    """
    asked = most_new(trace)
    told: list = [{"kind": "run", "header": trace.header.to_json()}]
    for event in trace.events:
        unseen = event.resumed.arrived if event.resumed else ()
        for arrived in (*unseen, *event.arrived):
            told.append(
                {
                    "kind": "request",
                    "id": arrived.request,
                    "prompt_token_ids": trace.prompts[arrived.request],
                    "max_new_tokens": asked[arrived.request],
                    "nickname": f"by {arrived.request}",
                }
            )
        told.append(ServedStep(event))
    return told


def begun(trace: Trace, every: int) -> list[dict]:
    """Replays that begin at every so many steps of a run, each going on to its end."""
    run = LiveRun(trace.header, trace.tokenizer)
    told, beginnings, deltas = messages(trace)[1:], [], []
    steps = 0
    for message in told:
        if isinstance(message, dict):
            run.meet(
                message["id"],
                message["prompt_token_ids"],
                message["max_new_tokens"],
                message["nickname"],
            )
            continue
        if steps % every == 0:
            beginnings.append((len(deltas), json.loads(json.dumps(run.beginning()))))
        deltas.append(json.loads(json.dumps(run.delta([message.event]))))
        steps += 1
    return [joined(beginning, deltas[at:]) for at, beginning in beginnings]


def joined(beginning: dict, deltas: list[dict]) -> dict:
    """A beginning and what came after it as one replay."""
    whole = {**beginning, "events": [], "captions": []}
    for delta in deltas:
        whole["events"] += delta["events"]
        whole["captions"] += delta["captions"]
        for part in ("letters", "hues", "asked"):
            whole[part] = {**whole.get(part, {}), **delta[part]}
        for side in ("prompt", "output"):
            for request, pieces in delta["texts"][side].items():
                whole["texts"][side].setdefault(request, []).extend(pieces)
    return whole


def pressed(policy: str) -> Trace:
    """So few blocks that requests give way while others come, and wait again from the same step
    on.
    """
    plan = [asked_for(f"r{i}", 3 + 5 * i % 11, 4 + i % 7, i) for i in range(14)]
    trace = record(
        EngineConfig(policy, max_num_seqs=3, max_num_batched_tokens=8, block_size=2, num_blocks=15),
        *plan,
    )
    assert sum(len(e.preempted) for e in trace.events) > 3
    return trace


def with_gaps(trace: Trace, *gaps: range) -> Trace:
    """The run without some of its steps, after which it goes on from the state that it had, as a
    recording of another engine with snapshots does.
    """
    events: list[StepEvent] = []
    state = RunState.of({request: len(prompt) for request, prompt in trace.prompts.items()})
    for event in trace.events:
        gap = next((gap for gap in gaps if event.step in gap or event.step == gap.stop), None)
        if gap is not None and event.step == gap.stop:
            unseen = trace.events[gap.start : gap.stop]
            here, lanes = (*state.lanes.values(), *state.waiting), state.lanes
            carried = {
                request: Carried(
                    request,
                    state.lane_of(request),
                    state.computed.get(request, 0),
                    tuple(s.token_id for e in unseen for s in e.sampled if s.request == request),
                    tuple(map(tuple, state.tables.get(request, {}).values())),
                    request in state.lost and state.lane_of(request) is None,
                )
                for request in here
            }
            event = event._replace(
                resumed=Resumed(
                    gap.start,
                    gap.stop - 1,
                    len(gap),
                    tuple(a for e in unseen for a in e.arrived if a.request in carried),
                    tuple(
                        f
                        for e in unseen
                        for f in e.finished
                        if not any(a.request == f.request for u in unseen for a in u.arrived)
                    ),
                    tuple(carried[request] for request in lanes.values()),
                    tuple(carried[request] for request in state.waiting),
                )
            )
        state.begin(event._replace(resumed=None))
        state.end(event)
        if gap is None or event.step == gap.stop:
            events.append(event)
    return replace(trace, events=events)


@pytest.mark.parametrize(
    "name",
    [
        *POLICIES,
        "continuous pressed",
        "transformers pressed",
        "continuous pressed gaps",
        "kv-pressure",
        "shared-prefix",
    ],
)
def test_a_run_from_a_beginning_is_the_run_from_its_start(name: str, tmp_path: Path) -> None:
    """Lanes, caches, blocks, waiting, letters, hues, texts, times: from every third step on."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    policy, *press = name.split()
    trace = (
        with_gaps(pressed(policy), range(1, 3), range(6, 10), range(20, 23), range(25, 26))
        if "gaps" in press
        else pressed(policy)
        if press
        else trace_of(name)
        if name in POLICIES
        else Trace.load(TRACES / f"{name}.jsonl")
    )
    others = begun(trace, 3)
    whole = {
        **replay(trace),
        "hues": deal(trace),
        "asked": {r: {"by": f"by {r}", "maxNew": most} for r, most in most_new(trace).items()},
    }
    # a recorded trace has its texts beside it; here tokens stand for themselves
    if trace.tokenizer is None:
        whole["texts"] = others[0]["texts"]
    path = tmp_path / "runs.json"
    path.write_text(json.dumps({"whole": whole, "begun": others}), encoding="utf-8")
    done = subprocess.run([node, SCRIPT, path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", done.stdout[:2000]
    assert len(others) > 3 and others[2]["captions"] == whole["captions"][6:]


def overrun() -> Trace:
    """`b` is over in step 2 and computed once more in step 3, in which `c` comes to a lane of its
    own: they were not there together.
    """
    limits = EngineConfig(max_num_seqs=3)
    return with_overrun(
        record(limits, asked_for("a", 4, 9), asked_for("b", 4, 4), asked_for("c", 3, 3, arrival=3)),
        "b",
    )


@pytest.mark.parametrize("name", [*POLICIES, "kv-pressure", "overrun"])
def test_how_a_request_went_is_counted_from_the_steps(name: str) -> None:
    """Its wait, its tokens, the steps in which it held a lane, and who held one beside it, until it
    was over.
    """
    trace = (
        overrun()
        if name == "overrun"
        else trace_of(name)
        if name in POLICIES
        else Trace.load(TRACES / f"{name}.jsonl")
    )
    run, told = LiveRun(trace.header, trace.tokenizer), {}
    for message in messages(trace)[1:]:
        if isinstance(message, dict):
            run.meet(message["id"], message["prompt_token_ids"], message["max_new_tokens"])
        else:
            told |= run.delta([message.event])["ended"]
    in_lane: set[str] = set()
    over: set[str] = set()
    beside: dict[str, list[set[str]]] = {}
    for event in trace.events:
        in_lane -= {left.request for left in event.released if left.when == "before"} | {
            gone.request for gone in event.preempted
        }
        in_lane |= {admitted.request for admitted in event.admitted}
        for request in in_lane - over:
            beside.setdefault(request, []).append(in_lane - over - {request})
        in_lane -= {left.request for left in event.released if left.when == "after"}
        over |= {finished.request for finished in event.finished}
    assert told.keys() == over == beside.keys()
    for request, ended in told.items():
        began = next(
            e.passes[s.pass_index].t_start
            for e in trace.events
            for s in e.segments
            if s.request == request
        )
        arrived = next(a.t for e in trace.events for a in e.arrived if a.request == request)
        assert ended == {
            "waited_s": round(began - arrived, 6),
            "tokens": sum(s.request == request for e in trace.events for s in e.sampled),
            "steps": len(beside[request]),
            "others": len(set().union(*beside[request])),
        }


class Spaced:
    """A tokenizer whose texts begin without a space, as those of SentencePiece do."""

    def decode(self, ids: list[int], **_: bool) -> str:
        return " ".join(f"t{token}" for token in ids)


def test_an_answers_text_goes_on_from_its_prompt() -> None:
    trace = record(EngineConfig(), asked_for("r0", 1, 2))
    run = LiveRun(trace.header, Spaced())
    run.meet("r0", [5], 2)
    texts = run.delta(trace.events)["texts"]
    assert (texts["prompt"], texts["output"]) == ({"r0": ["t5"]}, {"r0": [" t7", " t7"]})


def test_a_beginning_has_the_lanes_that_each_held_so_far() -> None:
    """By the frames of the run, at every step: first and last step of each stay, whether a request
    was done or gave way.
    """
    trace = Trace.load(TRACES / "kv-pressure.jsonl")
    run, stays, frames = (
        LiveRun(trace.header, trace.tokenizer),
        dict[str, list[list]](),
        iter(trace.frames()),
    )
    for message in messages(trace)[1:]:
        if isinstance(message, dict):
            run.meet(message["id"], message["prompt_token_ids"], message["max_new_tokens"])
            continue
        run.delta([message.event])
        step = message.event.step
        for row in next(frames).lanes:
            mine = stays.setdefault(row.request, [])
            if mine and mine[-1][2] == step - 1:
                mine[-1][2] = step
            else:
                mine.append([row.lane, step, step])
        for told in run.beginning()["begin"]["requests"]:
            last = told["laneSpans"][-1:]
            closed = [
                [lane, first, step if to is None else to] for lane, first, to in told["laneSpans"]
            ]
            assert closed == stays.get(told["id"], []), (told["id"], step)
            assert not last or last[0][2] is None or last[0][2] < step
    assert max(map(len, stays.values())) > 1


def test_a_bots_name_is_nobodys() -> None:
    asked = {
        "r": {"by": "Ada", "maxNew": 4, "isBot": False},
        "b": {"by": "Bot 1", "maxNew": 4, "isBot": True},
    }
    assert [
        one["by"] for one in shown({"asked": asked}, texts=True, nicknames=False)["asked"].values()
    ] == ["", "Bot 1"]


def now(log: EventLog, after: int | None = None, chapters: int | None = None) -> list[dict]:
    """What a reader is sent at once."""
    found, more = [], True
    while more:
        excerpt, more = log.take(after, chapters)
        if excerpt is not None:
            found, after = found + messages_in(excerpt.event), excerpt.last
    return found


def live_of(trace: Trace) -> Live:
    """The live batch of a run that is over."""
    live = Live(lambda: None, lambda run: trace.tokenizer)  # type: ignore[arg-type, return-value]
    for message in messages(trace):
        live.take([message])
    return live


def test_what_comes_at_once_is_told_in_the_order_in_which_it_came():
    """Steps go out together up to a message of another kind, such as that of the next run."""
    one, other = (record(EngineConfig(max_num_seqs=2), asked_for("r0", 3, n)) for n in (4, 6))
    begun, *steps = messages(one)
    between = [{"kind": "pace", "steps_per_s": 5}]
    told = [begun, *steps[:3], *between, *steps[3:], *messages(other)]

    def taken(at_once: int) -> list[Any]:
        live = Live(lambda: None, lambda run: one.tokenizer)  # type: ignore[arg-type, return-value]
        for first in range(0, len(told), at_once):
            live.take(told[first : first + at_once])
        sent = []
        for message in now(live.event_log)[1:]:
            if "events" in message:
                sent += [event["step"] for event in message["events"]]
            else:
                sent.append("run" if "begin" in message else message)
        return sent

    first, second = ([event.step for event in trace.events] for trace in (one, other))
    expected = ["run", *first[:2], {"pace": 5}, *first[2:], "run", *second]
    assert taken(1) == taken(3) == taken(len(told)) == expected


def test_a_slow_reader_skips_and_is_told_and_memory_is_bounded():
    """A reader that was away for longer than is kept goes on at a beginning; a quick one is sent
    every message once.
    """
    trace = trace_of("sequential")
    live = live_of(trace)
    log = live.event_log
    quick = now(log)
    assert quick[0] == {"kind": "skipped", "messages": 0}
    assert len(quick) == 1 + len(log) == 2 + len(trace.events)
    assert now(log, after=4) == quick[6:]
    for _ in range(2 * CHAPTERS * CHAPTER // len(trace.events)):
        for message in messages(trace):
            live.take([message])
    late = now(log, after=4)
    assert (
        late[0]["kind"] == "skipped"
        and late[0]["messages"] == len(log) - 5 - (len(late) - 1) > 0
        and "begin" in late[1]
    )
    assert len(late) <= CHAPTERS * (CHAPTER + 2)
    few = now(log, chapters=2)
    assert sum("begin" in message for message in few) == 2 and few[1:] == late[-len(few) + 1 :]


def test_a_run_whose_beginning_was_missed_is_late_until_the_next_one_begins():
    trace = trace_of("sequential")
    live, told = live_of(trace), messages(trace)

    def said() -> tuple[list[bool], int]:
        """What was said of being late, and the steps that were sent."""
        sent = now(live.event_log)
        late = [message["late"] for message in sent if "late" in message]
        return late, sum(len(message.get("events", ())) for message in sent)

    steps = len(trace.events)
    assert said() == ([], steps)
    live.take([{"kind": "skipped", "messages": 9}, *told[1:]])
    assert said() == ([True], steps)
    live.take(told)
    assert said()[0][-1] is False and said()[1] == 2 * steps


def test_what_is_hidden_is_in_nothing_that_is_sent_and_comes_back():
    """Texts and nicknames, those of earlier steps included; every reader begins anew with what is
    to be shown now.
    """
    trace = Trace.load(TRACES / "gpt2-six.jsonl")
    live = live_of(trace)
    seen = now(live.event_log)
    last = len(live.event_log) - 1
    assert "by r0" in json.dumps(seen) and HIDDEN not in json.dumps(seen)
    live.take([{"kind": "class", "hide_texts": True, "hide_nicknames": True}])
    veiled = now(live.event_log, after=last)
    assert veiled[0] == {"kind": "skipped", "messages": 0} and "by r0" not in json.dumps(veiled)
    pieces = [
        p
        for m in veiled
        for side in m.get("texts", {}).values()
        for by in side.values()
        for p in by
    ]
    assert pieces and set(pieces) == {HIDDEN}
    live.take([{"kind": "class", "hide_texts": False, "hide_nicknames": False}])
    again = now(live.event_log)
    assert [m.get("texts") for m in again if "events" in m] == [
        m.get("texts") for m in seen if "events" in m
    ]


@pytest.mark.slow
def test_a_delta_is_encoded_once_for_two_hundred_readers(monkeypatch):
    live = live_of(trace_of("continuous"))
    encoded = []
    encode = event_log._encoded
    monkeypatch.setattr(
        event_log, "_encoded", lambda message: encoded.append(message) or encode(message)
    )
    everybody = [now(live.event_log) for _ in range(200)]
    assert all(sent == everybody[0] for sent in everybody)
    assert len(encoded) == len(everybody[0]) - 1 + 200  # and to each of them what was skipped


def test_a_reader_that_takes_nothing_is_let_go(monkeypatch):
    """And what it followed is told at once, so that its place is another's."""
    monkeypatch.setattr(routes, "TAKING", 0.05)
    left = []

    async def pieces():
        try:
            yield b"data: [1]\n\n"
        finally:
            left.append(True)

    async def send(message):
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def go():
        await routes.streamed(pieces())(
            {"type": "http", "asgi": {"spec_version": "2.3"}}, asyncio.Event().wait, send
        )
        assert left == [True]

    asyncio.run(go())
