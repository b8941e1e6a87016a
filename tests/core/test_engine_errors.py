"""When things are wrong: one clear sentence from an InflightError, and nothing has changed."""

from __future__ import annotations

import math
import re
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from core import (
    Capacity,
    Engine,
    EngineConfig,
    InflightError,
    Policy,
    Request,
    RequestView,
    SamplingParams,
    Trace,
    Workload,
)
from core.config import Execution
from core.engine.arrivals import FutureRequests
from core.errors import ExecutionFailed, InvalidConfig, InvalidRequest, InvalidWorkload
from core.proof.verify import check
from core.scheduler.state import RequestState
from core.torch_engine.engine import ModelExecutor
from core.workload.presets import preset
from worlds.small import (
    EOS,
    MemoryModel,
    SchedulerWorld,
    checker_of,
    generate,
    memory_engine,
    request,
    requests,
)

GOOD = request("good", 4, 3)


def letters(unk: str | None = None) -> PreTrainedTokenizerFast:
    """A character tokenizer of a, b, c."""
    vocab = {c: i for i, c in enumerate("abc")} | ({unk: 3} if unk else {})
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=unk or "?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **({"unk_token": unk} if unk else {})
    )


def snapshot(engine: Engine) -> tuple:
    """All that a refused request could have changed."""
    scheduler = engine._loop.scheduler
    return (
        repr(engine.trace.header),
        list(engine.trace.events),
        dict(engine._arrivals.future._states),
        dict(engine._loop.sampling),
        list(scheduler.waiting),
        list(scheduler.running),
        scheduler.pool.num_free,
        engine.num_steps,
        engine._runner(),
    )


def one_sentence(message: str) -> bool:
    return message.endswith(".") and "\n" not in message and len(message) < 300


def refused(engine: Engine, bad: Request, match: str) -> None:
    """Refused by its name at every door, nothing changed; afterwards the engine works."""
    before = snapshot(engine)
    for door in (
        lambda: engine.run(Workload([GOOD, bad])),
        lambda: engine.stream(Workload([bad, GOOD])),
        lambda: engine.add_request(bad),
    ):
        with pytest.raises(InvalidRequest, match=f"^Request {bad.id}: .*{match}") as caught:
            door()
        assert one_sentence(str(caught.value)), str(caught.value)
        assert snapshot(engine) == before
    assert engine.run(Workload([GOOD])).outputs["good"] == generate(GOOD)


@pytest.mark.parametrize(
    ("bad", "limits", "match"),
    [
        (
            request("big", 30, 35),
            {"num_blocks": 4, "block_size": 16},
            "30 prompt tokens and 35 new ones exceed the whole KV pool of 4 blocks of 16",
        ),
        (
            request("big", 30, 4067),
            {},
            "30 prompt tokens and 4067 new ones exceed the model's context of 4096",
        ),
        (request("odd", (4, 50), 1), {}, "token id 50 is outside the vocabulary of 50"),
        (request("odd", (4, -1), 1), {}, "token id -1 is outside the vocabulary"),
        (
            request("wide", 30, 1),
            {"max_num_batched_tokens": 20, "chunked_prefill": False},
            "prompt of 30 tokens never fits the budget of 20",
        ),
        (Request("text", prompt="abc"), {}, "a text prompt needs a tokenizer"),
        (request("stop", 4, 3, stop=("a",)), {}, "stop strings need a tokenizer"),
    ],
)
def test_requests_that_could_never_run(bad: Request, limits: dict, match: str) -> None:
    refused(memory_engine(**limits), bad, match)


def test_without_a_context_the_pool_still_bounds_a_request() -> None:
    engine = memory_engine(model=MemoryModel(context=None))
    with pytest.raises(InvalidRequest, match="exceed the whole KV pool"):
        engine.run(Workload([request("endless", 4, 2**31 - 1)]))


@pytest.mark.parametrize(
    ("prompt", "match"),
    [
        ("abzbz", r"cannot encode the characters 'z'\.$"),
        ("aé\ud83d"[:2], r"'é'\.$"),
        ("zyxazwvu", r"characters 'z' 'y' 'x' 'w' 'v'\.$"),
    ],
)
@pytest.mark.parametrize("unk", [None, "<unk>"])
def test_characters_that_the_tokenizer_cannot_encode(
    unk: str | None, prompt: str, match: str
) -> None:
    refused(memory_engine(tokenizer=letters(unk)), Request("odd", prompt=prompt), match)


@pytest.mark.parametrize("given", ["text", "messages"])
@pytest.mark.parametrize("odd", ["z", "a" * 40 + "!"], ids=["unknown", "endless"])
def test_what_breaks_a_tokenizer_is_refused(given: str, odd: str) -> None:
    """A pattern that searches for too long ends in a panic, which is no Exception."""
    tokenizer = letters()
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex("(?:a|aa|a?)+$"), "isolated"),
            tokenizer.backend_tokenizer.pre_tokenizer,
        ]
    )
    tokenizer.chat_template = "{{ messages[0].content }}"
    asked = {"text": {"prompt": odd}, "messages": {"messages": [{"role": "user", "content": odd}]}}
    refused(memory_engine(tokenizer=tokenizer), Request("odd", **asked[given]), "cannot encode")


def test_a_prompt_of_which_no_token_is_left_is_refused() -> None:
    """Spaces are stripped, and the template writes nothing else of a conversation."""
    tokenizer = letters()
    tokenizer.backend_tokenizer.normalizer = normalizers.Strip()
    tokenizer.chat_template = "{{ messages[0].content }} "
    for said, asked in (
        ("turns the prompt into no tokens", {"prompt": " "}),
        ("cannot encode the conversation", {"messages": [{"role": "user", "content": " "}]}),
    ):
        refused(memory_engine(tokenizer=tokenizer), Request("odd", **asked), said)


def test_an_unknown_token_asked_for_by_name_is_no_error() -> None:
    engine = memory_engine(tokenizer=letters("<unk>"))
    engine.add_request(Request("r", prompt="a<unk>b"))


def test_duplicate_ids() -> None:
    with pytest.raises(InvalidWorkload, match="Two requests are called 'r0'"):
        Workload([request("r0", 3), request("r0", 4)])
    engine = memory_engine()
    engine.add_request(GOOD)
    before = snapshot(engine)
    with pytest.raises(InvalidRequest, match="There is already a request 'good'"):
        engine.add_request(request("good", 9))
    assert snapshot(engine) == before


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("max_new_tokens", (0, -1, 1.5, True, "3", None, 10**5000, math.nan)),
        ("temperature", (-0.1, math.nan, math.inf, "hot", True, None, 10**400)),
        ("top_p", (0, -1, 1.1, math.nan, "all", False, None)),
        ("top_k", (-1, 2.0, True, 10**5000, None)),
        ("seed", (-1, 2**63, 1.0, True, 10**5000)),
        ("stop", ("text", ("",), (3,), None, ["\ud800"], ("x" * 10**6, 1))),
        ("ignore_eos", (0, 1, "no", None)),
    ],
)
def test_sampling_out_of_range(field: str, values: tuple) -> None:
    for value in values:
        with pytest.raises(InvalidRequest, match=f"^{field} must be") as caught:
            SamplingParams(**{field: value})
        assert one_sentence(str(caught.value)), str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"id": ""},
        {"id": 3},
        {"id": None},
        {"id": "\udc00"},
        {"prompt": ""},
        {"prompt": 3},
        {"prompt": "a\ud800"},
        {"prompt": None},
        {"prompt_token_ids": (1,)},
        {"prompt": None, "prompt_token_ids": ()},
        {"prompt": None, "prompt_token_ids": "12"},
        {"prompt": None, "prompt_token_ids": [1.0]},
        {"prompt": None, "prompt_token_ids": [True]},
        {"prompt": None, "prompt_token_ids": [10**5000]},
        {"arrival": -1},
        {"arrival": math.nan},
        {"arrival": math.inf},
        {"arrival": "now"},
        {"arrival": True},
        {"arrival": 10**400},
        {"sampling": {}},
        {"sampling": None},
    ],
)
def test_requests_that_are_none(fields: dict) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Request(**{"id": "r", "prompt": "text", **fields})
    assert one_sentence(str(caught.value)), str(caught.value)


@pytest.mark.parametrize(
    "limits",
    [
        {"policy": "magic"},
        {"policy": None},
        {"policy": []},
        {"max_num_seqs": 0},
        {"max_num_seqs": True},
        {"max_num_seqs": 10**5000},
        {"block_size": 1.5},
        {"num_blocks": 0},
        {"num_blocks": "all"},
        {"max_num_batched_tokens": -5},
        {"chunked_prefill": 1},
        {"prefix_caching": None},
        {"max_num_batched_tokens": 3, "max_num_seqs": 4},
        {"policy": "static", "prefix_caching": True},
    ],
)
def test_limits_that_contradict(limits: dict) -> None:
    with pytest.raises(InvalidConfig) as caught:
        EngineConfig(**limits)
    assert one_sentence(str(caught.value)), str(caught.value)


def test_unknown_names() -> None:
    with pytest.raises(
        InvalidConfig, match="There is no policy 'magic'; the policies are sequential, static"
    ):
        EngineConfig(policy="magic")
    with pytest.raises(InvalidConfig, match="no limit called 'speed'"):
        EngineConfig.from_json({"speed": 9})
    with pytest.raises(InvalidWorkload, match="There is no preset 'nothing'"):
        preset("nothing")
    engine = memory_engine()
    with pytest.raises(InflightError, match="There is no request 'ghost'"):
        engine.cancel("ghost")
    trace = engine.run(Workload([GOOD]))
    for ask in (lambda: trace.text("ghost"), lambda: trace.event(77), lambda: trace.mask(0, 5)):
        with pytest.raises(InflightError):
            ask()


# -- huge numbers ----------------------------------------------------------------------------------


def test_a_pool_beyond_the_devices_memory_is_refused_before_anything_is_allocated() -> None:
    with pytest.raises(
        InvalidConfig,
        match="num_blocks must be a whole number from 1 to 2,147,483,647, not 1000000000000",
    ):
        EngineConfig(num_blocks=10**12)
    of_memory = re.search(r"MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text("utf-8"))
    tracemalloc.start()
    try:
        with pytest.raises(
            InvalidConfig,
            match="A KV pool of 2,147,483,647 blocks of 1048576 tokens takes .* GiB, and cpu has"
            f" {int(of_memory[1]) / 2**20:,.1f} GiB in all",
        ):
            memory_engine(num_blocks=2**31 - 1, block_size=2**20).run(Workload([GOOD]))
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_lanes_and_blocks_cost_nothing_until_they_are_used() -> None:
    made = requests((5, 3), (4, 2), (6, 4, 1))
    config = EngineConfig(policy="static", max_num_seqs=2**31 - 1)
    tracemalloc.start()
    try:
        world = SchedulerWorld(config, made, num_blocks=2**31 - 1).run()
        assert len(world.finish_steps) == 3
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
    trace = memory_engine("static", max_num_seqs=2**31 - 1, num_blocks=8).run(Workload(made))
    assert [len(trace.outputs[r.id]) for r in made] == [3, 2, 4]


# -- cut short -------------------------------------------------------------------------------------


class Interrupts(MemoryModel):
    """Ctrl-C in the middle of a pass."""

    passes = 0

    def forward(self, batch, pool, backend=None):
        self.passes += 1
        if self.passes == 4:
            raise KeyboardInterrupt
        return super().forward(batch, pool, backend)


def test_ctrl_c_leaves_the_trace_so_far(tmp_path: Path) -> None:
    engine = memory_engine(model=Interrupts())
    with pytest.raises(KeyboardInterrupt):
        engine.run(Workload(requests((5, 9), (3, 9))))
    trace = engine.trace
    assert len(trace.events) == 3 and not trace.complete
    trace.save(tmp_path / "t.jsonl")
    loaded = Trace.load(tmp_path / "t.jsonl")
    assert not loaded.complete and loaded.events == trace.events
    again = engine.run(Workload([GOOD]))  # and the engine is free
    assert again.complete and again.outputs["good"] == generate(GOOD)
    assert not trace.complete and len(trace.events) == 3


def test_a_busy_engine_takes_no_second_workload() -> None:
    engine = memory_engine()
    stream = engine.stream(Workload([GOOD]))
    next(stream)
    with pytest.raises(InflightError, match="still at work"):
        engine.run(Workload([GOOD]))
    assert len(list(stream)) == 2 and engine.trace.complete


def test_nobody_takes_a_step_within_a_step() -> None:
    """A policy asks for one while it decides; another thread would be refused likewise."""
    said: list[str] = []

    class Nosy(Policy):
        def admit(self, request: RequestView, capacity: Capacity) -> None:
            with pytest.raises(InflightError) as refused:
                engine.step()
            said.append(str(refused.value))

    engine = memory_engine(policy=Nosy(name="nosy"))
    trace = engine.run(Workload([GOOD]))
    assert said == ["The engine is in the middle of a step: it is for one thread."]
    assert trace.complete and trace.outputs["good"] == generate(GOOD)


def test_a_stream_given_up_late_does_not_touch_the_next_run() -> None:
    engine = memory_engine()
    first = engine.stream(Workload([GOOD]))
    next(first)
    while engine.has_work:
        engine.step()
    second = engine.stream(Workload([request("other", 4, 5)]))
    next(second)
    first.close()
    assert len(list(second)) == 4


# -- cancelling, arriving --------------------------------------------------------------------------


def test_cancel_before_arrival_while_waiting_and_while_running() -> None:
    engine = memory_engine(max_num_seqs=1)
    stream = engine.stream(
        Workload(
            [
                request("runs", 4, 9),
                request("waits", 4, 9),
                request("comes", 4, 9, 50),
                request("stays", 4, 2, 1),
            ]
        )
    )
    next(stream)
    for name in ("comes", "waits", "runs", "waits"):
        engine.cancel(name)
    list(stream)
    trace = engine.trace
    assert {f.request: f.finish_reason for e in trace.events for f in e.finished} == {
        "comes": "cancelled",
        "waits": "cancelled",
        "runs": "cancelled",
        "stays": "length",
    }
    assert len(trace.outputs["runs"]) == 1 and trace.outputs["stays"] == generate(
        request("stays", 4, 2)
    )
    checker = checker_of(trace)
    assert [checker.fault(e) for e in trace.events] == [None] * len(trace.events)


def test_empty_turns_count_but_are_not_waited_out() -> None:
    engine = memory_engine()
    trace = engine.run(Workload([request("late", 4, 2, 10**12), request("half", 4, 1, 2.5)]))
    assert [e.step for e in trace.events] == [3, 10**12, 10**12 + 1]
    one_by_one = memory_engine()
    one_by_one.add_request(request("late", 4, 1, 2))
    assert [one_by_one.step() is None for _ in range(3)] == [True, True, False]


def test_an_id_that_was_taken_out_and_comes_again_comes_at_its_new_time() -> None:
    old, new = (RequestState(request("r", 3, arrival=at), (4, 5, 6)) for at in (2, 7))
    future = FutureRequests()
    future.add(old)
    assert future.first is future.take("r") is old
    future.add(new)
    assert (future.first, len(future), future.turn("r")) == (new, 1, (7, 0))
    assert [*future.take_due(6)] == [] and [*future.take_due(7)] == [new] and not future


def test_who_is_cancelled_before_arriving_is_gone_before_the_next_one_comes() -> None:
    engine = memory_engine()
    for event in engine.stream(Workload(requests((3, 2), (3, 2, 30), (3, 2, 60)))):
        if event.finished and event.finished[0].request == "r0":
            engine.cancel("r1")
    numbers = {f.request: e.step for e in engine.trace.events for f in e.finished}
    assert numbers["r0"] < numbers["r1"] < 30 and numbers["r2"] > 60
    assert check(engine.trace).from_outside == {"cancelled": 1}


def test_other_limits_make_another_pool_and_keep_how_passes_are_computed() -> None:
    engine = Engine(MemoryModel(), config=EngineConfig(num_blocks=8, block_size=4))
    first = engine.run(Workload(requests((9, 4), (5, 6))))
    engine.begin(config=EngineConfig(num_blocks=8, block_size=8))
    for one in requests((9, 4), (5, 6)):
        engine.add_request(one)
    while engine.has_work:
        engine.step()
    assert engine.trace.outputs == first.outputs and check(engine.trace).num_tokens == 10
    assert [event.kv.used for event in engine.trace.events] != [e.kv.used for e in first.events]
    exact = Execution(asynchronous=False)
    assert Engine(MemoryModel(), execution=exact).under(EngineConfig()).execution is exact


def test_arrivals_in_seconds_are_slept_for() -> None:
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    engine = Engine(MemoryModel(), None, EngineConfig(), clock=lambda: now[0], sleep=sleep)
    trace = engine.run(
        Workload([request("a", 4, 1, 90.0), request("b", 4, 1, 0.25)], arrival_unit="s")
    )
    arrived = {a.request: a.t for e in trace.events for a in e.arrived}
    assert arrived == {"a": 90.0, "b": 0.25} and now[0] == 190.0


# -- stopping --------------------------------------------------------------------------------------


def test_end_of_sequence_and_stop_strings() -> None:
    stops = [
        r
        for r in (request(f"r{i}", (4 + i, 9), 200, ignore_eos=False) for i in range(8))
        if EOS in generate(r)
    ]
    trace = memory_engine().run(Workload(stops))
    assert stops and all(
        trace.outputs[r.id] == generate(r) and trace.outputs[r.id][-1] == EOS for r in stops
    )

    class Letters(MemoryModel):
        def forward(self, batch, pool, backend=None):
            logits = super().forward(batch, pool, backend)
            folded = logits.new_zeros(logits.shape)
            folded[:, :3] = logits.view(len(logits), -1)[:, :48].view(len(logits), 16, 3).amax(1)
            return folded

    engine = memory_engine(model=Letters(), tokenizer=letters("<unk>"))
    free = engine.run(
        Workload([Request("r", prompt="ab", sampling=SamplingParams(max_new_tokens=30))])
    )
    text = "".join("abc"[i] for i in free.outputs["r"])
    stop = text[5:8]
    # beside a prompt that is computed in chunks
    engine = memory_engine(model=Letters(), tokenizer=letters("<unk>"), max_num_batched_tokens=8)
    long = Request("long", prompt="abc" * 7, sampling=SamplingParams(max_new_tokens=1))
    asked = Request("r", prompt="ab", sampling=SamplingParams(max_new_tokens=30, stop=(stop,)))
    cut = engine.run(Workload([asked, long]))
    end = text.index(stop) + 3
    assert "".join("abc"[i] for i in cut.outputs["r"]) == text[:end]
    assert cut.events[-1].finished[0].finish_reason == "stop"


def test_a_pool_that_cannot_be_allocated_after_all(monkeypatch) -> None:
    # as where a device does not say what it has
    monkeypatch.setattr("core.torch_engine.pool_size._memory_of", lambda device: None)
    engine = memory_engine(num_blocks=2**20, block_size=2**31 - 1)
    with pytest.raises(
        ExecutionFailed, match=r"^The KV pool and its passes could not be prepared: .*\.$"
    ) as caught:
        engine.run(Workload(requests((3, 4)), name="huge"))
    assert one_sentence(str(caught.value))


def test_a_kernel_that_fails_ends_the_run_in_a_sentence_and_the_engine_runs_again(
    tmp_path: Path,
) -> None:
    class Fails(MemoryModel):
        broken = True

        def forward(self, batch, pool, backend=None):
            if self.broken and int(batch.position_ids.max()) == 6:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return super().forward(batch, pool, backend)

    model = Fails()
    engine = memory_engine(model=model)
    with pytest.raises(
        ExecutionFailed, match=r"^Step 4 could not be computed: the machine ran out of memory\.$"
    ):
        engine.run(Workload(requests((3, 20)), name="fails"))
    assert [e.step for e in engine.trace.events] == [0, 1, 2, 3] and not engine.trace.complete
    assert not engine.has_work
    model.broken = False
    assert engine.run(Workload(requests((3, 20)), name="fails")).complete


def test_a_full_gpu_is_told_with_its_sizes(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**29, 3 * 2**30))
    executor = ModelExecutor(SimpleNamespace(device=torch.device("cuda")), Execution())
    assert executor.failure(torch.OutOfMemoryError("CUDA out of memory.")) == (
        "the GPU ran out of memory (0.50 of 3.00 GiB were free); a smaller KV pool or budget needs"
        " less"
    )


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), "the machine ran out of memory"),
        (MemoryError(), "the machine ran out of memory"),
        (
            torch.AcceleratorError("CUDA error: device-side assert triggered.\nFor debugging …"),
            "CUDA error: device-side assert triggered",
        ),
        (
            RuntimeError("CUDA error: an illegal memory access was encountered"),
            "CUDA error: an illegal memory access was encountered",
        ),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory."),
            "DefaultCPUAllocator: can't allocate memory",
        ),
        (RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"), None),
        (ValueError("not enough values to unpack"), None),
        (AssertionError(), None),
    ],
)
def test_a_bug_of_ours_looks_like_a_bug(error: Exception, why: str | None) -> None:
    class Broken(MemoryModel):
        def forward(self, *args, **kwargs):
            raise error

    with pytest.raises(ExecutionFailed if why else type(error)) as failed:
        memory_engine(model=Broken()).run(Workload([GOOD]))
    assert not why or str(failed.value) == f"Step 0 could not be computed: {why}."


def test_without_chunks_a_prompt_may_take_the_whole_budget_and_no_more():
    limits = {"chunked_prefill": False, "max_num_batched_tokens": 8, "max_num_seqs": 2}
    trace = memory_engine(**limits).run(Workload([request("fits", 8, 1)]))
    assert trace.events[0].budget.unused == 0 and trace.complete
    with pytest.raises(InvalidRequest, match="9 tokens never fits the budget of 8"):
        memory_engine(**limits).run(Workload([request("does not", 9, 1)]))
