"""The Chrome trace says what the trace says: a track a lane, nested slices, counters."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from core import Workload
from core.account.delays import NAMES, SHARE_NAMES, delays
from core.account.perfetto import chrome_trace
from core.config import EngineConfig
from core.trace.events import Finished, Resumed
from worlds.small import memory_engine, requests
from worlds.visual import record, request


def _trace():
    config = EngineConfig(max_num_seqs=3, max_num_batched_tokens=10, block_size=2, num_blocks=13)
    return record(config, request("r0", 5, 20), request("r1", 6, 15), request("r2", 7, 9, 1))


def test_every_segment_is_a_slice_on_the_track_of_its_lane():
    trace = _trace()
    data = chrome_trace(trace)
    json.dumps(data, allow_nan=False)
    names = {e["tid"]: e["args"]["name"] for e in data["traceEvents"] if e["name"] == "thread_name"}
    drawn = [
        (e["args"]["step"], e["name"], names[e["tid"]], e["args"]["tokens"], e["args"]["kv_len"])
        for e in data["traceEvents"]
        if e["ph"] == "X" and e["pid"] == 1 and names[e["tid"]] != "engine"
    ]
    ran = [
        (e.step, f"{s.request} {s.phase}", f"lane {s.lane}", s.length, s.kv_len)
        for e in trace.events
        for s in e.segments
    ]
    assert drawn == ran


def test_a_track_of_each_request_says_where_its_time_went():
    trace = _trace()
    events = [e for e in chrome_trace(trace)["traceEvents"] if e["pid"] == 2]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert list(names.values()) == ["A r0", "B r1", "C r2"]
    slices = [e for e in events if e["ph"] == "X"]
    for tid, delay in zip(names, delays(trace).requests, strict=True):
        own = [e for e in slices if e["tid"] == tid]
        assert own[0]["ts"] == delay.start_us and sum(e["dur"] for e in own) == delay.whole_us
        for part, us in zip(NAMES, delay.us, strict=True):
            assert sum(e["dur"] for e in own if e["name"] == SHARE_NAMES[part]) == us
    assert all(e["args"] == {} for e in slices if e["name"] != SHARE_NAMES["queued"])
    waits = chrome_trace(
        record(EngineConfig(max_num_seqs=1), request("a", 3, 6), request("b", 3, 2, arrival=1))
    )["traceEvents"]
    assert [(e["dur"], e["args"]) for e in waits if e["name"] == SHARE_NAMES["queued"]] == [
        (50_000, {"limit": "lanes"})
    ]


def test_slices_of_a_track_never_overlap_except_where_one_holds_the_other():
    slices = [e for e in chrome_trace(_trace())["traceEvents"] if e["ph"] == "X"]
    for tid in {e["tid"] for e in slices}:
        open_until: list[float] = []
        for e in sorted((e for e in slices if e["tid"] == tid), key=lambda e: (e["ts"], -e["dur"])):
            while open_until and open_until[-1] <= e["ts"]:
                open_until.pop()
            assert not open_until or e["ts"] + e["dur"] <= open_until[-1] + 1e-6
            open_until.append(e["ts"] + e["dur"])


def test_counters_and_marks_are_the_events_own():
    trace = _trace()
    events = chrome_trace(trace)["traceEvents"]
    budget = [e["args"] for e in events if e["ph"] == "C" and e["name"] == "tokens in the step"]
    assert budget == [
        {"decode": e.budget.decode, "prefill": e.budget.prefill, "unused": e.budget.unused}
        for e in trace.events
    ]
    blocks = [e["args"] for e in events if e["ph"] == "C" and e["name"] == "KV blocks"]
    assert blocks == [{"used": e.kv.used, "free": 13 - e.kv.used} for e in trace.events]
    marks = [e["name"] for e in events if e["ph"] == "i"]
    assert sum("preempted" in m for m in marks) == sum(len(e.preempted) for e in trace.events) > 0
    assert sum("arrives" in m for m in marks) == 3
    tracks = {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name"}
    where = [(e["name"], e["tid"]) for e in events if e["ph"] == "i" and "preempted" in e["name"]]
    assert where == [
        (f"{p.request} preempted", tracks[f"lane {p.lane}"])
        for e in trace.events
        for p in e.preempted
    ]


def test_an_end_is_marked_on_its_lane_and_that_of_who_held_none_on_the_engines_track():
    engine = memory_engine(max_num_seqs=1)
    for event in engine.stream(Workload(requests((3, 2), (3, 2)))):
        if event.step == 0:
            engine.cancel("r1")
    marks = [e for e in chrome_trace(engine.trace)["traceEvents"] if e["ph"] == "i"]
    step = {f.request: e for e in engine.trace.events for f in e.finished}
    assert {e["name"]: (e["tid"], e["ts"]) for e in marks if "arrives" not in e["name"]} == {
        "r0 length": (1, pytest.approx(step["r0"].t_end * 1e6)),
        "r1 cancelled": (0, pytest.approx(step["r1"].t_start * 1e6)),
    }


def test_who_is_cancelled_in_a_lane_is_marked_there_before_the_passes():
    engine = memory_engine(max_num_seqs=2)
    for event in engine.stream(Workload(requests((3, 9), (3, 4)))):
        if event.step == 1:
            engine.cancel("r1")
    (mark,) = [e for e in chrome_trace(engine.trace)["traceEvents"] if e["name"] == "r1 cancelled"]
    assert (mark["tid"], mark["ts"]) == (2, pytest.approx(engine.trace.events[2].t_start * 1e6))


def test_who_ended_in_steps_that_are_not_shown_is_marked_before_the_one_after_them():
    trace = record(EngineConfig(max_num_seqs=2), request("r0", 3, 4), request("r1", 3, 9))
    gap = Resumed(3, 4, 2, (), (Finished("r0", "length"),), (), ())
    back = trace.events[5]._replace(resumed=gap)
    told = replace(trace, events=[*trace.events[:3], back, *trace.events[6:]])
    (mark,) = [e for e in chrome_trace(told)["traceEvents"] if e["name"] == "r0 length"]
    assert mark["ts"] == pytest.approx(back.t_start * 1e6)


def test_a_finished_row_that_is_computed_on_is_drawn_as_padding():
    trace = record(
        EngineConfig(policy="static", max_num_seqs=2), request("r0", 3, 5), request("r1", 3, 2)
    )
    events = chrome_trace(trace)["traceEvents"]
    padding = [e for e in events if e["name"] == "r1 padding"]
    assert len(padding) == 3 and {e["tid"] for e in padding} == {2}
    named = [(e["pid"], e["tid"], e["args"]) for e in events if e["name"] == "process_name"]
    assert named[0] == (1, 0, {"name": "invented, static"}) and named[1][:2] == (2, 0)
