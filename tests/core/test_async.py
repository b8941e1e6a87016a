"""Asynchronous execution: the next step is launched before this one is read, and nothing but times
and overruns may tell.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip(
    "triton", reason="the paged runner needs the package triton, which this platform does not have"
)

from hypothesis import given
from hypothesis import strategies as st

from core import Trace, Workload
from core.account.metrics import metrics
from core.config import POLICIES
from core.errors import ExecutionFailed, InvalidConfig
from core.proof.replay import Replay
from core.torch_engine.gpu.runner import HostClock
from core.trace.events import Overrun
from worlds.clock import Clock
from worlds.examples import examples
from worlds.forging import checked, refusal, rows_of
from worlds.integrity import check_integrity
from worlds.paged import PagedMemoryModel, again, paged_engine
from worlds.small import checker_of, generate, memory_engine, request, requests

MIXED = ((9, 10, 0), (3, 16, 0), (17, 12, 2), (1, 14, 5), (6, 3, 5), (5, 1, 6))


def faults(trace: Trace) -> list[str]:
    """What the rules find wrong, and what the scheduler would have decided otherwise."""
    checker, replay = checker_of(trace), Replay(trace.header)
    for asked in trace.asked.values():
        replay.fault_of_request(*asked)
    found = [
        fault
        for event in trace.events
        for fault in (checker.fault(event), replay.fault(event))
        if fault
    ]
    return found + [fault for fault in (replay.fault_at_end(trace.complete),) if fault]


def decisions(trace: Trace) -> list[dict]:
    """Every event without its times."""
    plain = []
    for event in trace.events:
        data = event.to_json()
        del data["t_start"], data["t_end"], data["timings"]
        data["arrived"] = [a.request for a in event.arrived]
        data["passes"] = [p._replace(t_start=0, t_end=0, bucket=None) for p in event.passes]
        data["sampled"] = [s[:3] for s in event.sampled]
        plain.append(data)
    return plain


LIMITS = {
    "plain": {},
    "tight budget": {"max_num_batched_tokens": 7, "block_size": 4},
    "few blocks": {
        "max_num_seqs": 4,
        "block_size": 2,
        "num_blocks": 18,
        "max_num_batched_tokens": 16,
    },
    "shared prefixes": {"prefix_caching": True, "block_size": 2},
    "prefill first": {"prefill_first": True, "max_num_batched_tokens": 5},
}


@pytest.mark.parametrize("capture", [None, again], ids=["eager", "buckets"])
@pytest.mark.parametrize("policy", POLICIES)
def test_where_nobody_stops_early_the_trace_is_that_of_the_cpu(policy, capture):
    limits = {"max_num_seqs": 3, "max_num_batched_tokens": 8, "block_size": 4}
    mine = paged_engine(policy, capture=capture, **limits).run(
        Workload(requests(*MIXED), name="small")
    )
    theirs = memory_engine(policy, **limits).run(Workload(requests(*MIXED), name="small"))
    assert decisions(mine) == decisions(theirs)
    assert not any(event.overrun for event in mine.events)
    assert faults(mine) == []
    assert mine.header.is_asynchronous == (not policy.startswith("split"))
    if mine.header.is_asynchronous:  # a step is its device's time, first pass to last
        for event in mine.events:
            first, last = event.passes[0], event.passes[-1]
            assert (event.t_start, event.t_end) == (first.t_start, last.t_end)


def test_filling_in_what_was_read_is_scheduling():
    """A clock that moves by a second with each pass that is settled."""
    engine, clock = paged_engine(), Clock()
    engine.add_request(request("a", 3, 4))
    settle, engine._loop._clock = engine._loop.scheduler.settle, clock

    def settling(*given):
        clock.advance(1.0)
        settle(*given)

    engine._loop.scheduler.settle = settling
    events = []
    while engine.has_work:
        events.append(engine.step())
    assert [event.timings.schedule for event in events] == [1.0] * 4


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_so_it_is_under_every_limit(limits):
    limits = {"max_num_seqs": 3, **limits}
    mine = paged_engine(**limits).run(Workload(requests(*MIXED), name="small"))
    theirs = memory_engine(**limits).run(Workload(requests(*MIXED), name="small"))
    assert decisions(mine) == decisions(theirs)


def test_a_request_that_stops_costs_one_row_and_holds_lane_and_blocks_until_it_is_computed():
    stops, goes_on = request("stops", (11, 5, 6), 40, ignore_eos=False), request("goes-on", 3, 60)
    length = len(generate(stops))
    assert 1 < length < 40, "the model must say EOS on its own"
    trace = paged_engine(max_num_seqs=2).run(
        Workload([stops, goes_on, request("next", 2, 4)], name="stop")
    )
    last = next(e for e in trace.events if [f[:2] for f in e.finished] == [("stops", "stop")])
    after = trace.event(last.step + 1)
    assert trace.outputs["stops"] == generate(stops)
    assert not last.overrun and [tuple(o) for o in after.overrun] == [("stops", 1)]
    assert [s.request for s in after.segments] == ["stops", "goes-on"]
    assert [s.request for s in after.sampled] == ["goes-on"]
    assert [c.request for e in (last, after) for c in e.kv.changes if c.released] == ["stops"]
    assert [a.request for a in trace.event(after.step + 1).admitted] == ["next"]
    useful = sum(len(trace.prompts[r]) + len(output) - 1 for r, output in trace.outputs.items())
    assert metrics(trace)["positions"] == {"tokens": useful, "padding": 1, "computed": useful + 1}
    assert faults(trace) == []


@pytest.mark.parametrize(
    ("altered", "says"),
    [
        ({"overrun": (Overrun("stops", 2),)}, "no row of 2 positions to match its overrun"),
        ({"timings": None}, "not those that the header names"),
        ({}, ""),
    ],
)
def test_what_is_wasted_is_a_row_of_its_step(altered, says):
    trace = paged_engine(max_num_seqs=2).run(
        Workload([request("stops", (11, 5, 6), 40, ignore_eos=False), request("goes-on", 3, 60)])
    )
    checker, told = checker_of(trace), None
    for event in trace.events:
        if event.overrun:
            if "timings" in altered:
                altered = {"timings": event.timings._replace(prepare=None)}
            event = event._replace(**altered)
        told = told or checker.fault(event)
    assert (says in told) if says else told is None


@pytest.mark.parametrize(
    ("others", "says"),
    [
        ((), "step 5: it is not on record, and the policy takes it."),
        ((("late", 3, 4, 20),), "step 20: lane 0 is taken."),
    ],
    ids=["at the end", "between"],
)
def test_a_step_that_was_launched_ahead_is_on_record(others, says):
    """`stops` is computed in vain in step 5: whoever leaves that step out lets it leave nowhere, or
    in step 4.
    """
    asked = [request("stops", (11, 5, 6), 40, ignore_eos=False), *(request(*o) for o in others)]
    trace = paged_engine(max_num_seqs=2).run(Workload(asked))
    before, vain, *later = trace.events[4:]
    assert [o.request for o in vain.overrun] == ["stops"] and faults(trace) == []
    changes = (*before.kv.changes, *vain.kv.changes)
    left = before._replace(released=vain.released, kv=before.kv._replace(changes=changes))
    found = [
        faults(replace(trace, events=[*trace.events[:4], forged, *later]))[0]
        for forged in (before, left)
    ]
    assert found[0] == says and found[1].startswith("step 4: kv: ")


@pytest.mark.parametrize("policy", ["split", "split-chunked"])
def test_policies_of_several_passes_a_step_read_each_before_the_next(policy):
    with pytest.raises(
        InvalidConfig, match=f"^Asynchronous execution is not for the policy {policy}: "
    ):
        paged_engine(policy, asynchronous=True)


def test_a_step_is_launched_before_the_last_one_is_read():
    engine = paged_engine()
    log: list[str] = []
    launch = engine._runner().launch

    def launching(output, params):
        number = sum(entry.startswith("launch") for entry in log)
        log.append(f"launch {number}")
        launched = launch(output, params)
        result = launched.result
        launched.result = lambda: (log.append(f"read {number}"), result())[1]
        return launched

    engine._runner().launch = launching
    for r in requests((3, 4)):
        engine.add_request(r)
    while engine.has_work:
        engine.step()
    assert log == [
        "launch 0",
        "launch 1",
        "read 0",
        "launch 2",
        "read 1",
        "launch 3",
        "read 2",
        "read 3",
    ]


def test_cancelling_throws_away_the_row_on_its_way():
    engine = paged_engine(max_num_seqs=2)
    for r in requests((3, 30), (3, 30), (3, 30)):
        engine.add_request(r)
    for _ in range(4):
        engine.step()
    engine.cancel("r0")  # runs, and has been launched again
    engine.cancel("r2")  # waits
    while engine.has_work:
        engine.step()
    trace = engine.trace
    reasons = {f.request: (e.step, f.finish_reason) for e in trace.events for f in e.finished}
    assert (
        reasons["r0"] == (5, "cancelled")
        and reasons["r2"] == (5, "cancelled")
        and reasons["r1"][1] == "length"
    )
    assert [(e.step, *o) for e in trace.events for o in e.overrun] == [(4, "r0", 1)]
    assert trace.outputs["r1"] == generate(request("r1", 3, 30))
    assert faults(trace) == []
    # in a step that computes nothing
    engine.add_request(request("alone", 3))
    engine.cancel("alone")
    event = engine.step()
    assert [f.request for f in event.finished] == ["alone"] and not event.passes


def test_logits_that_are_not_finite_end_that_request_alone():
    model = PagedMemoryModel(fails_after=8)
    trace = paged_engine(model=model, max_num_seqs=2).run(
        Workload(requests((5, 20), (30, 20)), name="nan")
    )
    assert {f.request: f.finish_reason for e in trace.events for f in e.finished} == {
        "r0": "error",
        "r1": "length",
    }
    assert len(trace.outputs["r0"]) == 3
    assert sum(len(e.overrun) for e in trace.events) == 1
    assert faults(trace) == []


def test_a_pass_in_a_graph_says_how_many_positions_it_computed():
    trace = paged_engine(capture=again, max_num_seqs=3, max_num_batched_tokens=100).run(
        Workload(requests((9, 4), ([5] * 70, 4)), name="b")
    )
    forward = [p for e in trace.events for p in e.passes]
    assert [p.bucket for p in forward] == [128] + [2] * 3
    assert [p.width for p in forward] == [79] + [2] * 3
    assert Trace.from_lines(_with_texts(trace)).events == trace.events


def _with_texts(trace: Trace):
    from core.trace.trace import Texts

    trace.recorded_texts = Texts(
        {r: [""] * len(ids) for r, ids in trace.prompts.items()},
        {r: [""] * len(ids) for r, ids in trace.outputs.items()},
    )
    return trace.lines()


def test_a_failing_launch_keeps_what_was_under_way_and_the_engine_runs_again():
    class Breaks(PagedMemoryModel):
        broken = False

        def forward(self, batch, pool, backend=None):
            if self.broken and int(batch.position_ids.max()) == 7:
                raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")
            return super().forward(batch, pool, backend)

    model = Breaks()
    engine = paged_engine(model=model)
    workload = Workload(requests((3, 20)), name="breaks")
    model.broken = True
    with pytest.raises(
        Exception,
        match=(
            r"^Step 5 could not be computed: CUDA error: an illegal memory access was"
            r" encountered\.$"
        ),
    ):
        engine.run(workload)
    assert [e.step for e in engine.trace.events] == [0, 1, 2, 3, 4] and not engine.trace.complete
    model.broken = False
    assert engine.run(workload).outputs["r0"] == generate(request("r0", 3, 20))


def test_a_failure_that_shows_when_a_step_is_read_ends_the_run_in_a_sentence(monkeypatch):
    """As one on a GPU does, which computes while the host goes on."""
    waits = iter(range(100))

    def wait(self, mark):
        if next(waits) == 3:
            raise RuntimeError("CUDA error: device-side assert triggered\nmore")

    monkeypatch.setattr(HostClock, "wait", wait)
    engine, workload = paged_engine(), Workload(requests((3, 20)), name="breaks")
    with pytest.raises(
        ExecutionFailed,
        match=r"^Step 3 could not be computed: CUDA error: device-side assert triggered\.$",
    ):
        engine.run(workload)
    assert [e.step for e in engine.trace.events] == [0, 1, 2] and not engine.trace.complete
    assert engine.run(workload).outputs["r0"] == generate(request("r0", 3, 20))


@pytest.mark.slow
@examples(150)
@given(data=st.data())
def test_any_run_says_what_each_request_says_alone(data):
    policy = data.draw(st.sampled_from(list(POLICIES)))
    continuous = policy == "continuous"
    limits = {
        "max_num_seqs": data.draw(st.integers(1, 4)),
        "max_num_batched_tokens": data.draw(st.integers(4, 20)),
        "block_size": data.draw(st.integers(1, 5)),
        "prefill_first": data.draw(st.booleans()),
        "prefix_caching": continuous and data.draw(st.booleans()),
    }
    asked = [
        request(
            f"r{i}",
            data.draw(st.lists(st.integers(4, 6), min_size=1, max_size=14)),
            data.draw(st.integers(1, 40)),
            data.draw(st.integers(0, 12)),
            ignore_eos=data.draw(st.booleans()),
        )
        for i in range(data.draw(st.integers(1, 6)))
    ]
    longest = max(len(r.prompt_token_ids) + r.sampling.max_new_tokens for r in asked)
    if data.draw(st.booleans()):
        limits["num_blocks"] = -(-longest // limits["block_size"]) + data.draw(st.integers(0, 6))
    engine = paged_engine(policy, capture=data.draw(st.sampled_from([None, again])), **limits)
    for _ in engine.stream(Workload(asked, name="any")):
        check_integrity(engine._loop.scheduler)
    trace = engine.trace
    assert trace.complete and faults(trace) == []
    assert trace.outputs == {r.id: generate(r) for r in asked}
    reasons = {f.request: f.finish_reason for e in trace.events for f in e.finished}
    assert reasons == {
        r.id: "stop" if not r.sampling.ignore_eos and trace.outputs[r.id][-1] == 3 else "length"
        for r in asked
    }
    assert engine._loop.scheduler.pool.num_used == 0


@pytest.mark.slow
@examples(80)
@given(data=st.data())
def test_cancels_at_any_time_cost_rows_and_nothing_else(data):
    policy = data.draw(st.sampled_from(list(POLICIES)))
    engine = paged_engine(
        policy,
        capture=data.draw(st.sampled_from([None, again])),
        max_num_seqs=data.draw(st.integers(1, 3)),
        max_num_batched_tokens=data.draw(st.integers(3, 12)),
        block_size=data.draw(st.integers(1, 4)),
    )
    asked = [
        request(
            f"r{i}",
            data.draw(st.integers(1, 9)),
            data.draw(st.integers(1, 20)),
            data.draw(st.integers(0, 6)),
            ignore_eos=False,
        )
        for i in range(data.draw(st.integers(1, 5)))
    ]
    for r in asked:
        engine.add_request(r)
    cancels = data.draw(
        st.lists(st.tuples(st.integers(0, 25), st.sampled_from([r.id for r in asked])), max_size=4)
    )
    for turn in range(500):
        if not engine.has_work:
            break
        for at, name in cancels:
            if at == turn:
                engine.cancel(name)
        engine.step()
        check_integrity(engine._loop.scheduler)
    trace = engine.trace
    assert not engine.has_work and faults(trace) == []
    reasons = {f.request: f.finish_reason for e in trace.events for f in e.finished}
    assert set(reasons) == {r.id for r in asked}
    for r in asked:
        whole = generate(r)
        assert trace.outputs[r.id] == (
            whole[: len(trace.outputs[r.id])] if reasons[r.id] == "cancelled" else whole
        )
    assert engine._loop.scheduler.pool.num_used == 0


@pytest.mark.slow
def test_top_logprobs_equal_those_of_the_plain_engine_though_passes_are_launched_ahead():
    """Joining, stopping early, preempted and reading graphs' buffers: each token's alternatives are
    its own, and none are left over.
    """
    import asyncio

    from core import SamplingParams
    from core.serving.engine import ServingEngine
    from worlds.paged import GATHERING, engine_on_buffers
    from worlds.serving import char_engine, idle, serving, whole

    config = {"max_num_seqs": 3, "num_blocks": 14, "block_size": 4, "max_num_batched_tokens": 12}
    plain = char_engine(**config)
    text = "O Romeo, Romeo, wherefore art"
    bias = ((45, 4.0),)
    asked = [
        (
            text[: 3 + 4 * i],
            SamplingParams(
                24 - 3 * i,
                temperature=0.9,
                seed=i,
                logit_bias=bias if i == 3 else (),
                stop=("e ",) if i == 2 else (),
            ),
            i % 5,
        )
        for i in range(7)
    ]

    async def all_of(made: ServingEngine) -> list[list]:
        streams = [
            await made.submit(prompt, s, num_top_logprobs=count) for prompt, s, count in asked
        ]
        found = await asyncio.gather(*map(whole, streams))
        await idle(made)
        assert (
            not made.engine.outputs.top_logprobs._asked
            and not made.engine.outputs.top_logprobs._found
        )
        return found

    expected = None
    for engine in (
        plain,
        engine_on_buffers(plain.adapter, plain.tokenizer, plain.config, attention=GATHERING),
        engine_on_buffers(
            plain.adapter, plain.tokenizer, plain.config, attention=GATHERING, capture=again
        ),
    ):
        with serving(engine) as made:
            found = asyncio.run(all_of(made))
            assert engine.trace.header.is_asynchronous == (engine is not plain)
            assert any(event.preempted for event in made.session().events), (
                "the pool must be too small"
            )
        expected = expected or found
        for pieces, theirs, (_, _, count) in zip(found, expected, asked, strict=True):
            assert [p.token_id for p in pieces] == [p.token_id for p in theirs]
            for piece, their in zip(pieces, theirs, strict=True):
                if piece.token_id is None:
                    continue
                assert len(piece.top_logprobs) == count
                assert [near.token_id for near in piece.top_logprobs] == [
                    near.token_id for near in their.top_logprobs
                ]
                assert [near.logprob for near in piece.top_logprobs] == pytest.approx(
                    [n.logprob for n in their.top_logprobs], abs=1e-3
                )


@pytest.mark.parametrize(
    ("said", "told"),
    [({"leaves_after": 1e-6}, "does not leave"), ({"arrival": 1e-6}, "stands after the step")],
)
def test_who_is_said_to_have_been_due_sooner_by_the_clock_is_refused(
    said: dict[str, float], told: str
) -> None:
    """A step begins once the last but one has been read: by then the client had left, or come."""
    asked = [
        request("r0", 3, 60),
        replace(request("r1", 3, 60), leaves_after=1e6),
        replace(request("r2", 3, 4), arrival=0.4),
    ]
    engine = paged_engine(capture=again, asynchronous=True)
    rows = rows_of(engine.run(Workload(asked, arrival_unit="s")))
    checked(rows)
    name = "r1" if "leaves_after" in said else "r2"
    next(
        r["asked"] for r in rows if r.get("kind") == "request" and r["asked"]["id"] == name
    ).update(said)
    if name == "r2":
        next(e for e in rows if any(a[0] == name for a in e.get("arrived", ())))["arrived"] = [
            [name, 1e-6]
        ]
    assert told in refusal(rows)
