"""What was served, run again under another policy: told entry by entry, without a server, so that every number can be counted."""

from __future__ import annotations

import pytest

from core import Workload
from core.serving import rerun
from core.serving.event_log import LogEntry, ServedStep
from core.serving.rerun import Rerun, Twin
from core.trace.trace import Trace
from worlds.small import memory_engine, request


def served() -> Trace:
    return memory_engine(max_num_seqs=2, block_size=4).run(
        Workload([request(f"r{i}", 3 + i, 4 + i) for i in range(4)], arrival_unit="s")
    )


def told(trace: Trace) -> list[LogEntry]:
    asked = [
        request.to_json() | {"kind": "request", "prompt_token_ids": ids}
        for request, ids in trace.asked.values()
    ]
    return [*asked, *map(ServedStep, trace.events)]


def again(trace: Trace, now: float) -> Rerun:
    config = trace.header.config.under("static", num_blocks=trace.header.num_blocks)
    return Rerun(
        trace.header, config, lambda: now, Twin.of(memory_engine(max_num_seqs=2, block_size=4))
    )


def test_its_numbers_are_those_of_both_and_an_answer_of_other_tokens_is_counted():
    trace = served()
    own = again(trace, now=float("inf"))
    last = trace.events[-1].sampled[-1]
    for entry in told(trace):
        if isinstance(entry, ServedStep) and last in entry.event.sampled:
            entry = ServedStep(
                entry.event._replace(sampled=(last._replace(token_id=last.token_id ^ 1),))
            )
        own.hear(entry)
    while own.advance():
        pass
    state = own.state
    assert (state["status"], state["finished"], state["other_texts"]) == ("done", 4, 1)
    ends = {f.request: e.t_end for e in trace.events for f in e.finished}
    arrived = dict(arrival for e in trace.events for arrival in e.arrived)
    assert state["mean_e2e_s"][0] == pytest.approx(
        sum(ends[r] - arrived[r] for r in ends) / 4, abs=1e-4
    )
    # Answers of 4, 5, 6 and 7 tokens in two lanes: continuously 4 + 6 steps in one and 5 + 7 in the other, in waves max(4, 5) + max(6, 7).
    assert state["real"] == state["shadow"] == {"steps": 12, "occupancy": round(22 / 24, 4)}


def test_it_never_runs_ahead_of_what_is_known():
    trace = served()
    own = again(trace, now=-1.0)
    for entry in told(trace):
        own.hear(entry)
    assert not own.advance() and own.state["status"] == "waiting" and own.state["finished"] == 0


def test_too_many_without_a_pause_are_not_run_again(monkeypatch):
    monkeypatch.setattr(rerun, "MOST_WAITING", 3)
    trace = served()
    own = again(trace, now=float("inf"))
    for entry in told(trace):
        own.hear(entry)
    assert (
        own.state["sentence"]
        == "More than 3 requests came without a pause: this run is not run again for real."
        and not own.advance()
    )
