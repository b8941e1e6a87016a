"""Every policy's greedy tokens are those of `generate` on each request alone, on the built-in
models.
"""

from functools import cache

import pytest
import torch

from core import Engine, EngineConfig, InflightError, Request, SamplingParams, Workload
from core.config import POLICIES
from core.scheduler.scheduler import Scheduler
from core.scheduler.state import RequestState
from core.torch_engine.eager import ModelRunner
from worlds import small
from worlds.clock import Clock

PROMPTS = {
    "shakespeare-char": [
        "O Romeo, ",
        "KING HENRY:\nWhat",
        "a",
        "Now is the winter of our discontent made",
        "Why? ",
    ],
    "shakespeare-bpe": [
        "JULIET:\nO Romeo,",
        "Speak",
        "First Citizen:\nBefore we proceed any further, hear me",
        "Ü 😀",
        "\n\n",
    ],
}
NEW = (12, 25, 3, 18, 9)
SAMPLED, SAMPLING = "shakespeare-bpe", {"temperature": 0.9, "top_k": 40, "top_p": 0.95, "seed": 5}


@cache
def loaded(model: str) -> Engine:
    return Engine.from_pretrained(model)


@cache
def alone(model: str, prompt: str, new: int) -> list[int]:
    """`generate` on one request, EOS disabled."""
    engine = loaded(model)
    ids = engine.tokenizer(prompt, return_tensors="pt")["input_ids"]
    out = engine.adapter.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=new,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return out[0, ids.shape[1] :].tolist()


def workload(model: str, **sampling) -> Workload:
    return Workload(
        Request(
            f"r{i}",
            prompt=p,
            sampling=SamplingParams(max_new_tokens=n, ignore_eos=True, **sampling),
            arrival=2 * i,
        )
        for i, (p, n) in enumerate(zip(PROMPTS[model], NEW, strict=True))
    )


def engine(model: str, **config) -> Engine:
    base = loaded(model)
    return Engine(
        base.adapter,
        base.tokenizer,
        EngineConfig(**{"max_num_seqs": 3, "max_num_batched_tokens": 12, **config}),
    )


@pytest.mark.parametrize("model", PROMPTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_greedy_tokens_are_those_of_generate(model, policy):
    trace = engine(model, policy=policy).run(workload(model))
    expected = [alone(model, p, n) for p, n in zip(PROMPTS[model], NEW, strict=True)]
    assert [trace.outputs[f"r{i}"] for i in range(len(NEW))] == expected


@pytest.mark.parametrize(
    "limits",
    [
        {"num_blocks": 20, "block_size": 4},
        {"prefill_first": True},
        {"prefix_caching": True, "block_size": 4},
    ],
)
def test_no_limit_changes_a_token(limits):
    model = "shakespeare-char"
    trace = engine(model, **limits).run(workload(model))
    assert [trace.outputs[f"r{i}"] for i in range(len(NEW))] == [
        alone(model, p, n) for p, n in zip(PROMPTS[model], NEW, strict=True)
    ]


@pytest.fixture(scope="module")
def sampled_alone() -> dict[str, list[int]]:
    alone = [
        engine(SAMPLED).run(Workload([request])).outputs
        for request in workload(SAMPLED, **SAMPLING)
    ]
    return {request: tokens for outputs in alone for request, tokens in outputs.items()}


@pytest.mark.parametrize("policy", POLICIES)
def test_sampled_text_does_not_depend_on_company(policy, sampled_alone):
    assert (
        engine(SAMPLED, policy=policy).run(workload(SAMPLED, **SAMPLING)).outputs == sampled_alone
    )


def test_a_finished_cache_holds_prompt_and_all_but_the_last_token():
    trace = engine("shakespeare-char").run(workload("shakespeare-char"))
    last = {s.request: s.kv_len for event in trace.events for s in event.segments}
    assert last == {r: len(ids) + len(trace.outputs[r]) - 1 for r, ids in trace.prompts.items()}


def test_static_finishes_a_request_at_its_own_last_token_and_goes_on_computing_its_row():
    trace = engine("shakespeare-char", policy="static").run(
        Workload(
            Request(f"r{i}", prompt="O", sampling=SamplingParams(max_new_tokens=n, ignore_eos=True))
            for i, n in enumerate((2, 5, 3, 1))
        )
    )
    finished = {f.request: event.step for event in trace.events for f in event.finished}
    assert finished == {"r0": 1, "r2": 2, "r1": 4, "r3": 5}
    rows = [
        (p.rows, [r.request for r in p.finished_rows])
        for event in trace.events
        for p in event.passes
    ]
    assert rows == [(3, []), (3, []), (3, ["r0"]), (3, ["r0", "r2"]), (3, ["r0", "r2"]), (1, [])]
    released = [
        (event.step, c.request) for event in trace.events for c in event.kv.changes if c.released
    ]
    assert released == [(4, "r0"), (4, "r1"), (4, "r2"), (5, "r3")]


def test_requests_one_by_one_with_cancel():
    e = engine("shakespeare-char", policy="continuous")
    for i in range(5):
        e.add_request(
            Request(
                f"r{i}",
                prompt="O Romeo",
                sampling=SamplingParams(max_new_tokens=6, ignore_eos=True),
            )
        )
    e.step()
    e.cancel("r0")  # running
    e.cancel("r4")  # waiting
    while e.has_work:
        e.step()
    reasons = {f.request: f.finish_reason for event in e.trace.events for f in event.finished}
    assert reasons == {
        "r0": "cancelled",
        "r4": "cancelled",
        "r1": "length",
        "r2": "length",
        "r3": "length",
    }
    assert e.trace.outputs["r1"] == alone("shakespeare-char", "O Romeo", 6)
    with pytest.raises(InflightError, match="no request 'r9'"):
        e.cancel("r9")


def test_eos_and_stop_strings_end_a_request():
    base = loaded("shakespeare-char")
    text = base.tokenizer.decode(alone("shakespeare-char", "O Romeo, ", 40))
    stop = text[10:13]
    trace = engine("shakespeare-char").run(
        Workload(
            [
                Request(
                    "r0",
                    prompt="O Romeo, ",
                    sampling=SamplingParams(max_new_tokens=40, stop=(stop,)),
                )
            ]
        )
    )
    assert trace.events[-1].finished[0].finish_reason == "stop"
    assert trace.text("r0") == text[: text.index(stop) + len(stop)]


def test_generate_works_as_before_between_steps():
    e = engine("shakespeare-char")
    before = alone("shakespeare-char", "What light", 8)
    e.add_request(
        Request("r0", prompt="O Romeo", sampling=SamplingParams(max_new_tokens=6, ignore_eos=True))
    )
    e.step()
    alone.cache_clear()
    assert alone("shakespeare-char", "What light", 8) == before


def test_arrivals_in_seconds_and_idle_turns():
    e = engine("shakespeare-char")
    requests = [
        Request(
            f"r{i}",
            prompt="O",
            sampling=SamplingParams(max_new_tokens=2, ignore_eos=True),
            arrival=0.2 * i,
        )
        for i in range(2)
    ]
    trace = e.run(Workload(requests, arrival_unit="s"))
    arrived = {a.request: a.t for event in trace.events for a in event.arrived}
    assert arrived == {"r0": 0.0, "r1": 0.2}
    assert (
        next(
            event for event in trace.events if event.admitted and event.admitted[0].request == "r1"
        ).t_start
        >= 0.2
    )
    late = [
        Request(
            "r0", prompt="O", sampling=SamplingParams(max_new_tokens=2, ignore_eos=True), arrival=3
        )
    ]
    assert [event.step for event in e.run(Workload(late)).events] == [3, 4]


def test_a_run_can_be_repeated_and_is_the_same_but_for_its_times():
    e = engine("shakespeare-char")
    first, second = (e.run(workload("shakespeare-char", temperature=1.0, seed=3)) for _ in range(2))
    assert first.outputs == second.outputs
    assert [event.segments for event in first.events] == [event.segments for event in second.events]


def test_a_pass_lasts_until_its_tokens_are_sampled():
    """Under a clock that moves by one each time it is read: packed, computed, sampled."""
    ticks = iter(range(100))
    scheduler, state = (
        Scheduler(EngineConfig(), 8),
        RequestState(small.request("r0", 3, 2), (4, 5, 6)),
    )
    scheduler.add(state)
    (output,) = scheduler.schedule()
    result = ModelRunner(small.MemoryModel(), 8, 16, clock=lambda: next(ticks)).launch(
        output, {"r0": state.request.sampling}
    )
    assert (result.t_start, result.t_end) == (0, 3) and (
        result.prepare,
        result.forward,
        result.sample,
    ) == (1, 1, 1)


def test_who_leaves_before_the_planned_arrival_arrived_when_leaving():
    clock = Clock()
    e = small.Engine(
        small.MemoryModel(), None, EngineConfig(num_blocks=8), clock=clock, sleep=clock.advance
    )
    e.begin("s")
    for name, at in (("now", 0.0), ("late", 9.0)):
        e.add_request(small.request(name, 3, 2, at))
    clock.now = 2.0
    e.cancel("late")
    event = e.step()
    assert [tuple(a) for a in event.arrived] == [("late", 2.0), ("now", 0.0)]
    assert [f.request for f in event.finished] == ["late"]


def test_a_clock_of_the_devices_own_never_goes_back():
    """Its passes seem to end before the step before them did: both their times are moved, so that
    no pass ends before it begins.
    """

    class Behind(ModelRunner):
        own_clock = True

        def launch(self, output, params):
            clock.advance(1.0)
            result = super().launch(output, params)
            result.t_start, result.t_end = clock.now - 5.5, clock.now - 5.0
            return result

    clock = Clock()
    clock.now = 10.0
    model = small.MemoryModel()
    e = small.Engine(
        model, None, runner=lambda blocks: Behind(model, blocks, 16, clock=clock), clock=clock
    )
    trace = e.run(Workload(small.requests((3, 3))))
    times = [(e.t_start, e.passes[0].t_start, e.passes[0].t_end, e.t_end) for e in trace.events]
    assert times == [(0.0, 0.0, 0.0, 1.0), (1.0, 1.0, 1.0, 2.0), (2.0, 2.0, 2.0, 3.0)]
    assert not any(map(small.checker_of(trace).fault, trace.events))
