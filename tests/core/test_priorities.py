"""vLLM's `--scheduling-policy priority`: the queue stands as vLLM had it, whoever is overtaken is
told by whom, a client that leaves is served until it leaves, and our own policy decides the same.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from core.account.delays import QUEUED, delays
from core.config import POLICIES, EngineConfig
from core.errors import InvalidRequest, InvalidTrace
from core.recorders.compare import compare_steps
from core.recorders.convert import checked_trace
from core.recorders.follow import Follower, RecordingBegun
from core.recorders.raw import read_raw
from core.scheduler.scheduler_state import WaitingQueue
from core.scheduler.state import RequestState
from core.simulate.cost import Load
from core.simulate.engine import SimulatedEngine
from core.simulate.fitted import Linear
from core.simulate.roofline import Roofline
from core.trace.events import StepEvent
from core.trace.trace import Trace
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload

SMOLLM2 = Path(__file__).parents[1] / "data" / "vllm-http" / "priority-smollm2.raw.jsonl.gz"
Lines = list[dict[str, Any]]


def written(path: Path, lines: Lines) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def opened(path: Path) -> tuple[Trace, list[str]]:
    """The trace, and what is wrong with the recording."""
    (recording,) = read_raw([path])
    return checked_trace(recording), recording.faults


def asked(request: str, t: float, priority: int) -> dict[str, Any]:
    known = {"request": request, "t": t, "max_tokens": 2, "prompt": [1, 2], "temperature": 0.0}
    return known | {"priority": priority, "arrival_time": 100 + t}


def step(number: int, arrived: Lines, runs: str, waiting: str, joins: bool) -> dict[str, Any]:
    """A second in which one request computes; it gets its last token unless it has just joined."""
    start, length = (0, 2) if joins else (2, 1)
    first, blocks = {"request": runs, "cached": 0}, [runs, [[1]], "table"]
    return {
        "kind": "step",
        "step": number,
        "t_start": 10.0 + number,
        "t_scheduled": 10.1 + number,
        "t_output": 10.9 + number,
        "t_end": 10.9 + number,
        "arrived": arrived,
        "preempted": [],
        "waiting": len(waiting),
        "head": waiting[0] if waiting else None,
        "skipped": False,
        "budget": 16,
        "blocks_free": 7,
        "segments": [
            {"request": runs, "start": start, "length": length, "num_tokens": 2 + start, "draft": 0}
        ]
        if joins
        else [{"request": runs, "start": 2, "length": 1, "num_tokens": 3, "draft": 0}],
        "blocks": [blocks] if joins else [],
        "admitted": [first] if joins else [],
        "row_order": [runs],
        "sampled": {runs: [7]},
        "finished": [] if joins else [[runs, "length"]],
    }


def small() -> Lines:
    """One lane. `a` runs; `b` and `c` (priority 5) come, then `d` (−5), and before it ends `c`
    leaves: at 13.25 s of a recording whose first request came at 9.5 s.
    """
    header = {
        "kind": "header",
        "raw": 1,
        "engine": "vllm",
        "version": "0.32.0",
        "model": "m",
        "policy": "priority",
        "priorities": True,
        "max_num_seqs": 1,
        "max_num_batched_tokens": 16,
        "block_size": 4,
        "num_blocks": 8,
    }
    low = [asked("b", 10.5, 5), asked("c", 10.75, 5)]
    return [
        header,
        step(0, [asked("a", 9.5, 0)], "a", "", True),
        step(1, [*low, asked("d", 10.9, -5)], "a", "dbc", False),
        step(2, [], "d", "bc", True),
        step(3, [], "d", "bc", False) | {"t_start": 13.0},
        {"kind": "abort", "t": 13.25, "requests": ["c"], "status": "FINISHED_ABORTED"},
        step(4, [], "b", "", True),
        step(5, [], "b", "", False),
        {"kind": "end", "dropped": 0},
    ]


def test_the_queue_is_in_the_order_of_priorities_and_then_of_arrivals(tmp_path: Path) -> None:
    trace, faults = opened(written(tmp_path / "run.raw.jsonl", small()))
    assert faults == [] and [e.warnings for e in trace.events if e.warnings] == []
    queues = [[row.request for row in frame.waiting] for frame in trace.frames()]
    assert queues == [[], ["d", "b", "c"], ["b", "c"], ["b", "c"], [], []]
    assert [event.queue for event in trace.events if event.queue] == [("d", "b", "c")]
    assert trace.header.policy.name == "priority-first"
    assert [one.request.priority for one in trace.asked.values()] == [0, 5, 5, -5]
    again = Trace.from_lines(trace.lines())
    assert again.events == trace.events and again.header == trace.header


def test_who_is_overtaken_is_told_by_whom_and_for_how_long(tmp_path: Path) -> None:
    trace, _ = opened(written(tmp_path / "run.raw.jsonl", small()))
    a, b, c, d = delays(trace).requests
    # overtaken from step 1, in which d heads the queue; passed in step 2, in which d joins
    assert b.queued_us["overtaken"] == 1_000_000 and b.queued_us["passed"] == 1_000_000
    assert b.queued_us["lanes"] == 1_000_000 and b.overtaken_by == c.overtaken_by == ("d",)
    assert sum(b.queued_us.values()) == b.us[QUEUED]
    assert d.overtaken_by == a.overtaken_by == () and "overtaken" not in d.queued_us
    real = checked_trace(read_raw([SMOLLM2])[0])
    number = {request: n for n, request in enumerate(real.asked)}
    late = {one.request: one.overtaken_by for one in delays(real).requests}
    assert len(late["chatcmpl-8cf821f8b027b7d1-a071f834"]) == 22
    assert all(number[other] > number[r] for r, others in late.items() for other in others)


def test_a_client_that_leaves_is_served_until_it_leaves(tmp_path: Path) -> None:
    trace, _ = opened(written(tmp_path / "run.raw.jsonl", small()))
    (gone,) = [f for event in trace.events for f in event.finished if f.t is not None]
    assert gone == ("c", "cancelled", 3.75)
    left = delays(trace).requests[2]
    assert (left.request, left.whole_us, left.reason) == ("c", 2_500_000, "cancelled")
    again = {r.id: (r.arrival, r.leaves_after, r.priority) for r in trace.as_run()}
    assert again == {
        "a": (0.0, None, 0),
        "b": (1.0, None, 5),
        "c": (1.0, 2.75, 5),
        "d": (1.0, None, -5),
    }


@pytest.mark.parametrize("queue", [("d", "b"), ("d", "b", "b"), ("a", "b", "c")])
def test_a_queue_of_others_than_those_that_wait_is_refused(
    tmp_path: Path, queue: tuple[str, ...]
) -> None:
    trace, _ = opened(written(tmp_path / "run.raw.jsonl", small()))
    trace.events[1] = trace.events[1]._replace(queue=queue)
    with pytest.raises(InvalidTrace, match="its queue is not made of those that wait"):
        Trace.from_lines(trace.lines())


def test_a_client_that_left_after_the_step_that_says_so_is_odd(tmp_path: Path) -> None:
    trace, _ = opened(written(tmp_path / "run.raw.jsonl", small()))
    at, event = next((i, e) for i, e in enumerate(trace.events) if any(f.t for f in e.finished))
    late = tuple(f._replace(t=event.t_start + 1) for f in event.finished)
    trace.events[at] = event._replace(finished=late)
    warned = Trace.from_lines(trace.lines()).events[at].warnings
    assert warned == ("Request “c” cannot have been cancelled at that time.",)


def test_whoever_gave_way_stands_in_the_queue_by_its_priority() -> None:
    queue = WaitingQueue(POLICIES["priority-first"])
    b, d, e = (
        RequestState(Request(name, prompt_token_ids=[1], priority=p), (1,))
        for name, p in (("b", 5), ("d", 9), ("e", 1))
    )
    queue.add(b)
    queue.add(d)
    assert queue.head() is b
    queue.remove(b)
    assert queue.head() is d
    queue.put_back(b)
    assert queue.head() is b
    queue.add(e)
    assert queue.head() is e


def test_a_recording_is_followed_on_the_clock_on_which_it_is_opened(tmp_path: Path) -> None:
    path = written(tmp_path / "run.raw.jsonl", small())
    trace, _ = opened(path)
    updates = Follower(path).poll()
    assert [u for u in updates if isinstance(u, StepEvent)] == trace.events
    (begun,) = [u for u in updates if isinstance(u, RecordingBegun)]
    assert begun.header.engine == trace.header.engine and updates[0] is begun


def test_the_clock_is_known_with_the_first_request_that_comes(tmp_path: Path) -> None:
    """An engine is followed from its start, long before anybody asks anything."""
    lines = small()
    path = written(tmp_path / "run.raw.jsonl", lines[:1])
    follower = Follower(path)
    assert [type(update) for update in follower.poll()] == [RecordingBegun]
    written(path, lines)
    updates = follower.poll()
    assert isinstance(updates[0], RecordingBegun)
    first = next(update for update in updates if isinstance(update, StepEvent))
    assert first.arrived[0].t == 0 and first.t_start == 0.5


def real() -> Lines:
    return [json.loads(line) for line in gzip.decompress(SMOLLM2.read_bytes()).splitlines()]


@pytest.mark.slow
def test_without_priorities_on_record_the_queue_is_the_snapshots(tmp_path: Path) -> None:
    trace, faults = opened(SMOLLM2)
    assert faults == [] and trace.header.policy.name == "priority"
    (snapshot,) = [line for line in real() if line["kind"] == "snapshot" and line["waiting"]]
    frame = next(f for f in trace.frames() if f.step == snapshot["step"])
    assert len(frame.waiting) == 51
    assert [row.request for row in frame.waiting] == snapshot["waiting"]
    assert "snapshot" in trace.header.inferred["waiting"]
    found = {compared.fact: compared for compared in compare_steps([SMOLLM2], trace)}
    assert found["queue"].count == 18 and not any(compared.differ for compared in found.values())


@pytest.mark.slow
def test_a_snapshot_in_another_order_contradicts_the_priorities(tmp_path: Path) -> None:
    """The real recording, with priorities that put the queue of its snapshot in that order."""
    lines = real()
    (snapshot,) = [line for line in lines if line["kind"] == "snapshot" and line["waiting"]]
    arrivals = [a for line in lines if line["kind"] == "step" for a in line["arrived"]]
    number = {arrived["request"]: n for n, arrived in enumerate(arrivals)}
    places = [number[request] for request in snapshot["waiting"]]
    cut = next(n for n in range(1, len(places)) if places[n] < places[n - 1])
    low = set(snapshot["waiting"][cut:])
    rows = [row for line in lines if line["kind"] == "snapshot" for row in line["requests"]]
    for row in (*arrivals, *rows):
        row["priority"], row["arrival_time"] = 5 * (row["request"] in low), number[row["request"]]
    lines[0]["priorities"] = True

    trace, faults = opened(path := written(tmp_path / "run.raw.jsonl", lines))
    assert faults == []
    frame = next(f for f in trace.frames() if f.step == snapshot["step"])
    assert [row.request for row in frame.waiting] == snapshot["waiting"]

    waiting = snapshot["waiting"]
    waiting[7], waiting[8] = waiting[8], waiting[7]
    trace, faults = opened(written(path, lines))
    assert faults == [
        f"The snapshot before step {snapshot['step']} does not agree with the steps before it:"
        f" request {waiting[7]} does not have the same place in the queue."
    ]
    found = {compared.fact: compared for compared in compare_steps([path], trace)}
    assert found["queue"].differ == 1


def test_first_come_first_served_is_compared_with_snapshots_too(tmp_path: Path) -> None:
    lines = small()
    lines[0] |= {"policy": "fcfs", "priorities": False}
    for line in lines[1:]:
        if line["kind"] == "step":
            line["head"] = None
    row = {"max_tokens": 2, "prompt": [1, 2], "computed": 0, "output": []}
    rows = [asked("a", 9.5, 0), *lines[2]["arrived"]]
    rows = [row | one for one in rows] + [row | asked("d", 10.9, -5)]
    rows[0] |= {"computed": 3, "output": [7, 7], "finished": "length"}
    snapshot = {
        "kind": "snapshot",
        "step": 2,
        "t": 12.0,
        "running": [],
        "waiting": ["d", "b", "c"],
        "blocks_free": 8,
        "requests": rows,
    }
    _, faults = opened(written(tmp_path / "run.raw.jsonl", [*lines[:3], snapshot, *lines[3:]]))
    assert faults == [
        "The snapshot before step 2 does not agree with the steps before it: request d does not"
        " have the same place in the queue."
    ]


def run(policy: str, **limits: Any) -> Trace:
    """Three requests of 8 tokens and 8 more, of priorities 0, 5 and −5, one step after another."""
    requests = [
        Request(name, prompt_token_ids=[1] * 8, sampling=SamplingParams(8), arrival=n, priority=p)
        for n, (name, p) in enumerate((("a", 0), ("b", 5), ("c", -5)))
    ]
    config = EngineConfig(policy, block_size=4, **limits)
    return SimulatedEngine(Roofline.named("h100", "8b"), config).run(Workload(requests))


def test_the_policy_takes_the_lowest_number_first() -> None:
    joined = {
        policy: [a.request for e in run(policy, max_num_seqs=1).events for a in e.admitted]
        for policy in ("continuous", "priority-first")
    }
    assert joined == {"continuous": ["a", "b", "c"], "priority-first": ["a", "c", "b"]}


def test_of_the_highest_number_the_newest_gives_way_and_waits_at_its_place() -> None:
    trace = run("priority-first", max_num_seqs=3, num_blocks=8)
    gave_way = [p.request for event in trace.events for p in event.preempted]
    assert gave_way and gave_way[0] == "b" and "c" not in gave_way
    assert {f.finish_reason for e in trace.events for f in e.finished} == {"length"}
    assert (
        next(
            p.request
            for e in run("continuous", max_num_seqs=3, num_blocks=8).events
            for p in e.preempted
        )
        == "c"
    )


@pytest.mark.parametrize("unit", ["step", "s"])
def test_a_request_whose_client_leaves_is_ended_then(unit: Any) -> None:
    leaves = 3 if unit == "step" else 0.03
    requests = [
        Request("stays", prompt_token_ids=[1], sampling=SamplingParams(8)),
        Request("goes", prompt_token_ids=[1], sampling=SamplingParams(8), leaves_after=leaves),
        Request("is done", prompt_token_ids=[1], sampling=SamplingParams(1), leaves_after=leaves),
    ]
    engine = SimulatedEngine(Roofline.named("h100", "8b"), EngineConfig(max_num_seqs=3))
    trace = engine.run(Workload(requests, arrival_unit=unit))
    ends = {f.request: f.finish_reason for event in trace.events for f in event.finished}
    assert ends == {"stays": "length", "goes": "cancelled", "is done": "length"}
    assert 0 < len(trace.outputs["goes"]) < 8
    assert Workload.from_json(trace.workload.to_json()) == trace.workload


def test_patience_is_counted_from_the_arrival_and_not_from_when_the_engine_sees_it() -> None:
    """A pass takes 0.1 s: who comes at 0.05 s joins at 0.1, and is gone at 0.2, 0.15 s later."""
    requests = [
        Request("stays", prompt_token_ids=[1], sampling=SamplingParams(8)),
        Request(
            "goes",
            prompt_token_ids=[1],
            sampling=SamplingParams(8),
            arrival=0.05,
            leaves_after=0.12,
        ),
    ]
    engine = SimulatedEngine(Linear(0.1, 0.0, 0.0, 1, Load(8, 1000)), EngineConfig())
    trace = engine.run(Workload(requests, arrival_unit="s"))
    assert len(trace.outputs["goes"]) == 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"priority": 0.5}, "priority must be a whole number, not 0.5."),
        ({"priority": True}, "priority must be a whole number, not True."),
        ({"leaves_after": 0}, "leaves_after must be a finite number above 0, not 0."),
        ({"leaves_after": "soon"}, "leaves_after must be a finite number above 0, not 'soon'."),
    ],
)
def test_a_priority_or_a_departure_that_is_none_is_refused(wrong: Any, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        Request("r", prompt_token_ids=[1], **wrong)
